"""The option --adapter: LoRA adapters that are loaded into slots of a bundle."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from speccompile.runtime import Bundle

ADAPTER: dict[str, Any] = {
    "metavar": "NAME=FOLDER",
    "multiple": True,
    "help": "Load this LoRA adapter into a slot of the bundle. May be given several times.",
}
"""Settings of the option --adapter of a command that serves."""
USED_ADAPTER: dict[str, Any] = {
    "metavar": "NAME=FOLDER",
    "help": "Generate with this LoRA adapter, in a slot of the bundle.",
}
"""Settings of the option --adapter of every command that generates."""


def take_adapter(bundle: "Bundle", options: dict[str, Any]) -> None:
    """Load the adapter NAME=FOLDER in options["adapter"], if it is not None, and replace it by its name. options: of
    `Bundle.generate`. Raise the errors of `Bundle.load_adapter`."""
    from speccompile.runtime.adapters import read_named

    given = options["adapter"]
    for name, folder in read_named([] if given is None else [given]).items():
        bundle.load_adapter(name, folder)
        options["adapter"] = name
