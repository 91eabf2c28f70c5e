"""Models of the Hugging Face Hub: the files of one commit, from the network or from the local cache."""

from pathlib import Path

from speccompile.compiler.checkpoints.facts import TOKENIZER_FILES
from speccompile.compiler.checkpoints.image_numbers import PROCESSOR_FILES
from speccompile.compiler.checkpoints.json_files import CONFIG, GENERATION_CONFIG
from speccompile.compiler.checkpoints.piece_tokenizers import PIECES, VOCABULARY
from speccompile.compiler.checkpoints.weights import INDEX
from speccompile.errors import CheckpointError
from speccompile.progress import LOGGER, log_step

PATTERNS = (
    CONFIG, GENERATION_CONFIG, *PROCESSOR_FILES, *TOKENIZER_FILES, VOCABULARY, *PIECES.values(), INDEX,
    "*.safetensors", "*.jinja",
)  # fmt: skip
HEAD_PATTERNS = (*PATTERNS, "*.bin", "*.pt")
"""Files of a head, which may be published as a pickle: only tensors are read from it."""
IGNORED = ("[!a]*/*", "a[!d]*/*", "ad[!d]*/*", "*/*/*", "consolidated*")
"""Other formats of the same weights, which some repositories have in subfolders or next to the safetensors files. A
pattern cannot leave out one folder: so these stand for all but additional_chat_templates."""

PATIENCE = 5.0
"""Timeout in seconds of the Hub's first answer; without it, a dead network would block a build for minutes."""


def fetch_snapshot(repository: str, revision: str | None, patterns: tuple[str, ...] = PATTERNS) -> tuple[Path, str]:
    """Return the folder of a Hub model at a revision (None: its main branch), and the commit.

    Use the local cache if the Hub does not answer. Raise CheckpointError with the Hub's reason, and OSError if the
    cache cannot be written.
    """
    from huggingface_hub import snapshot_download

    with log_step(f"look for {repository} on the Hub"):
        failure = failure_to_answer("model", repository, revision)
        try:
            folder = snapshot_download(
                repository,
                revision=revision,
                allow_patterns=list(patterns),
                ignore_patterns=list(IGNORED),
                local_files_only=failure is not None,
            )
        except _hub_errors() as error:
            if getattr(error, "errno", None) is not None:
                raise  # a full disk or the like: not the Hub's doing
            raise CheckpointError(f"the Hub {_reason(failure or error)}", hint=_hint(failure or error)) from None
    if failure is not None:
        LOGGER.warning("%s: taken from the local cache: the Hub %s", repository, _reason(failure))
    return Path(folder), Path(folder).name


def failure_to_answer(kind: str, repository: str, revision: str | None) -> Exception | None:
    """Return the error of a single request for this revision of a "model" or a "dataset", or None if the Hub has it."""
    from huggingface_hub import HfApi

    try:
        HfApi().repo_info(repository, revision=revision, repo_type=kind, timeout=PATIENCE)
    except _hub_errors() as error:
        return error
    return None


def _hub_errors() -> tuple[type[Exception], ...]:
    from huggingface_hub.errors import HTTPError

    return HTTPError, OSError, ValueError


def _hint(error: Exception) -> str:
    from huggingface_hub.errors import OfflineModeIsEnabled

    first = "unset HF_HUB_OFFLINE" if isinstance(error, OfflineModeIsEnabled) else "check name and network"
    return f"{first}, or give the model's folder"


def _reason(error: Exception) -> str:
    from huggingface_hub import errors

    match error:
        case errors.GatedRepoError():
            return "has the model behind terms of use (accept them there and set HF_TOKEN)"
        case errors.RepositoryNotFoundError():
            return "has no such model, or only for others (HF_TOKEN)"
        case errors.RevisionNotFoundError():
            return "has the model, but not this revision"
        case errors.OfflineModeIsEnabled():
            return "is switched off by HF_HUB_OFFLINE"
        case errors.HFValidationError():
            return "has no models of such a name"
        case _:
            first_line = str(error).partition("\n")[0]
            return f"cannot be reached ({type(error).__name__}: {first_line})"
