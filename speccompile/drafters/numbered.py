"""Count the numbered heads of a folder, one for every draft depth."""

from collections.abc import Iterable, Mapping

from speccompile.drafters.dialects import Keys
from speccompile.plan.head import TensorSource


def count_numbered(names: Iterable[str], prefix: str) -> int:
    """Return one more than the highest number in names `<prefix>.<number>.`; 0 without any."""
    names = (name.removeprefix(f"{prefix}.") for name in names if name.startswith(f"{prefix}."))
    return max((int(name.partition(".")[0]) + 1 for name in names), default=0)


def count_heads(keys: Keys, found: Mapping[str, TensorSource], prefix: str, *names: str) -> tuple[int, tuple[str, ...]]:
    """Return the number of heads in the weights, and notes if the config says fewer, as published ones do.

    names: keys of the config; the first that is present counts. Raise CheckpointError if the config says more.
    """
    count = count_numbered(found, prefix)
    said = keys.count(*names, default=max(count, 1))
    name = next((each for each in names if keys.values.get(each) is not None), names[0])
    if said > count:
        raise keys.wrong(name, said, f"at most {count}, as many heads as the weights beside it hold")
    if said == count:
        return count, ()
    where = f"{keys.folder.config_file.parent.name}/{keys.folder.config_file.name}: {name}"
    return count, (f"{where}: received {said}, but the weights hold {count} heads: all of them are used",)
