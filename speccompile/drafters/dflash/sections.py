"""Sections of a block drafter's config: top level, `dflash_config`, and the config of the layers."""

from speccompile.drafters.dflash.dialects import SPECULATORS
from speccompile.drafters.dialects import Dialect, Keys
from speccompile.plan.head import HeadFolder


class Sections:
    """Sections of a config: top, nested (`dflash_config`), and layers, which is the top except in speculators'
    dialect."""

    def __init__(self, folder: HeadFolder, dialect: Dialect) -> None:
        self.top, self.nested = Keys(folder), Keys(folder, "dflash_config")
        self.layers = Keys(folder, "transformer_layer_config") if dialect.name == SPECULATORS else self.top

    def of(self, *names: str) -> Keys:
        """Return the section with one of these keys, `dflash_config` first as in z-lab's code; by default the top."""
        self.top.ignore(*names)
        self.nested.ignore(*names)
        return self.nested if any(self.nested.values.get(name) is not None for name in names) else self.top

    def refuse_unknown(self) -> None:
        """Raise CheckpointError for a key that was not read."""
        self.top.ignore("dflash_config", "transformer_layer_config", "speculators_model_type", "speculators_version")
        for each in (self.top, self.nested, *((self.layers,) if self.layers is not self.top else ())):
            each.refuse_unknown()
