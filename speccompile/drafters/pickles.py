"""Names and shapes in a file of torch.save, read without torch and without unpickling: its opcodes are looked at, and
nothing that they name is ever called."""

import pickletools
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from speccompile.errors import CheckpointError
from speccompile.plan.head import TensorSource

_DTYPES = {
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "DoubleStorage": "F64",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "BoolStorage": "BOOL",
    "ByteStorage": "U8",
}


class _Mark:
    """What stands on the stack where a list of arguments begins."""


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "MARK": _Mark,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
}
_MEMORY = ("BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET")
_LITERALS = ("BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE", "BINFLOAT")


class _Stack:
    """What a pickle's opcodes leave, with names in the place of what they would call."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return self.values[-1]
            self._step(opcode.name, argument)
        raise ValueError("it ends early")

    def _step(self, name: str, argument: Any) -> None:
        """PROTO and FRAME say nothing of the value, and what BINPERSID names is on the stack as it is."""
        if name in _CONSTANTS:
            self.values.append(_CONSTANTS[name]())
        elif name in _LITERALS:
            self.values.append(argument)
        elif name in _MEMORY:
            self._remember(name, argument)
        elif name not in ("PROTO", "FRAME", "BINPERSID"):
            self._combine(name, argument)

    def _remember(self, name: str, argument: Any) -> None:
        if "GET" in name:
            self.values.append(self.memo[argument])
        else:
            self.memo[len(self.memo) if argument is None else argument] = self.values[-1]

    def _combine(self, name: str, argument: Any) -> None:
        values = self.values
        match name:
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                values[-int(name[-1]) :] = [tuple(values[-int(name[-1]) :])]
            case "TUPLE":
                values.append(tuple(self._since_mark()))
            case "GLOBAL":
                values.append(argument.replace(" ", "."))
            case "REDUCE":
                arguments = values.pop()
                values[-1] = _made(values[-1], arguments)
            case "BUILD":  # a state dict's own attributes
                values.pop()
            case "SETITEM":
                key, value = values[-2:]
                del values[-2:]
                values[-1][key] = value
            case "SETITEMS":
                pairs = self._since_mark()
                values[-1].update(zip(pairs[::2], pairs[1::2], strict=True))
            case _:
                raise ValueError(f"it holds {name}, which no state dict needs")

    def _since_mark(self) -> list[Any]:
        start = max(index for index, value in enumerate(self.values) if isinstance(value, _Mark))
        found, self.values[start:] = self.values[start + 1 :], []
        return found


class _Shape(tuple[int, ...]):
    """The shape of a tensor, which remembers its dtype."""

    dtype: str


def _made(name: Any, arguments: Any) -> Any:
    """What a call would give, of the few calls that a state dict is made of."""
    match name, arguments:
        case "collections.OrderedDict", ():
            return {}
        case "torch._utils._rebuild_tensor_v2", (storage, _, shape, *_):
            made = _Shape(int(size) for size in shape)
            made.dtype = _DTYPES.get(str(storage[1]).removeprefix("torch."), "")
            return made
        case "torch._utils._rebuild_parameter", (tensor, *_):
            return tensor
    raise ValueError(f"it asks for {name}, which is no tensor")


def read_pickle(path: Path) -> dict[str, TensorSource]:
    """The tensors of a state dict. Raises CheckpointError, naming the file, for anything else."""
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(each for each in archive.namelist() if each.endswith("data.pkl"))
            found = _Stack().run(archive.read(name))
    except (zipfile.BadZipFile, StopIteration, OSError, EOFError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path}: truncated, corrupt or not only tensors: {error or type(error).__name__}; expected the state dict "
            "of a torch.save of version 1.6 or later",
            hint="copy or download the file again; or convert it where you trust it: torch.load it, then "
            "safetensors.torch.save_file",
        ) from None
    if not isinstance(found, dict) or not all(isinstance(each, _Shape) for each in found.values()):
        raise CheckpointError(
            f"{path}: received something else than a flat state dict, expected names and tensors alone",
            hint="save the head's own state dict: torch.save(head.state_dict(), FILE)",
        )
    return {str(name): TensorSource(path.name, str(name), tuple(each), each.dtype) for name, each in found.items()}
