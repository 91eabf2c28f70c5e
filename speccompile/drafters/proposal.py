"""Read the metadata that the speculators library adds to a head's config: the number of drafts and the target."""

from speccompile.drafters.dialects import Keys
from speccompile.tree import MOST_DEPTH


def read_proposal(keys: Keys) -> tuple[int | None, str | None]:
    """Return (number of drafts, target name), each None if the config does not say. keys: of the whole config."""
    config = Keys(keys.folder, "speculators_config")
    keys.ignore("speculators_config")
    methods = config.get("proposal_methods", default=[])
    tokens = next((each.get("speculative_tokens") for each in methods if isinstance(each, dict)), None)
    base = keys.folder.value("speculators_config.verifier.name_or_path") or keys.get("base_model_name_or_path")
    return tokens if isinstance(tokens, int) and 1 <= tokens <= MOST_DEPTH else None, base
