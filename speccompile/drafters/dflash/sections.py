"""Where a block drafter's config says what: at its top, in `dflash_config`, or in the layers' own config."""

from speccompile.drafters.dflash.dialects import SPECULATORS
from speccompile.drafters.dialects import Dialect, Keys
from speccompile.plan.head import HeadFolder


class Sections:
    """top, nested (`dflash_config`), and layers, which is the top for all dialects but that of speculators."""

    def __init__(self, folder: HeadFolder, dialect: Dialect) -> None:
        self.top, self.nested = Keys(folder), Keys(folder, "dflash_config")
        self.layers = Keys(folder, "transformer_layer_config") if dialect.name == SPECULATORS else self.top

    def of(self, *names: str) -> Keys:
        """The section that says one of these: the inner one first, as z-lab's own code looks for them."""
        self.top.ignore(*names)
        self.nested.ignore(*names)
        return self.nested if any(self.nested.values.get(name) is not None for name in names) else self.top

    def refuse_unknown(self) -> None:
        """Raises CheckpointError for a key that nobody has asked for."""
        self.top.ignore("dflash_config", "transformer_layer_config", "speculators_model_type", "speculators_version")
        for each in (self.top, self.nested, *((self.layers,) if self.layers is not self.top else ())):
            each.refuse_unknown()
