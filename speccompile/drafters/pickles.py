"""Read names and shapes from a file of torch.save without torch and without unpickling: interpret its opcodes, and
never call a function that they name."""

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


_WRONG = (zipfile.BadZipFile, StopIteration, OSError, EOFError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors over a file that is no state dict; of zipfile for one that is encrypted as well."""
_MOST_BYTES = 1 << 26
"""Largest pickle of names and shapes: a hundred bytes and more for each tensor."""


class _Mark:
    """Marker on the stack below a list of arguments."""


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
    """Interpreter of a pickle's opcodes, with names instead of callables on its stack."""

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
        """Execute an opcode. PROTO and FRAME do not change the value; BINPERSID leaves its argument on the stack."""
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
                values[-1][_checked(key)] = value
            case "SETITEMS":
                pairs = self._since_mark()
                values[-1].update(zip(map(_checked, pairs[::2]), pairs[1::2], strict=True))
            case _:
                raise ValueError(f"it holds {name}, which no state dict needs")

    def _since_mark(self) -> list[Any]:
        # from the end: from the start, a stack of marks would take the square of its height
        places = range(len(self.values) - 1, -1, -1)
        start = next((place for place in places if isinstance(self.values[place], _Mark)), None)
        if start is None:
            raise ValueError("it takes a list that never began")
        found, self.values[start:] = self.values[start + 1 :], []
        return found


def _checked(key: Any) -> str:
    """Return the key of a state dict. Tuples of tuples of one object are small to store, and endless to hash."""
    if not isinstance(key, str):
        raise ValueError(f"it has a key of type {type(key).__name__}, expected a text")  # noqa: TRY004  as of all else
    return key


class _Shape(tuple[int, ...]):
    """Shape of a tensor, with its dtype."""

    dtype: str


def _made(name: Any, arguments: Any) -> Any:
    """Return the result of one of the few calls in a state dict. Raise ValueError for another name."""
    match name, arguments:
        case "collections.OrderedDict", ():
            return {}
        case "torch._utils._rebuild_tensor_v2", ((_, str(kind), *_), _, shape, *_):
            made = _Shape(int(size) for size in shape)
            made.dtype = _DTYPES.get(kind.removeprefix("torch."), "")
            return made
        case "torch._utils._rebuild_parameter", (tensor, *_):
            return tensor
    raise ValueError(f"it asks for {name if isinstance(name, str) else 'a value'}, which is no tensor")


def _read_pickle(archive: zipfile.ZipFile) -> bytes:
    """Return the pickle of names and shapes. Raise ValueError for one that is packed: torch packs none."""
    entry = next(each for each in archive.infolist() if each.filename.endswith("data.pkl"))
    if entry.compress_type != zipfile.ZIP_STORED:
        raise ValueError("its names and shapes are compressed, which torch.save never does")
    if entry.file_size > _MOST_BYTES:
        raise ValueError(f"its names and shapes take {entry.file_size} bytes, more than {_MOST_BYTES}")
    return archive.read(entry)


def read_pickle(path: Path) -> dict[str, TensorSource]:
    """Return the tensors of a state dict. Raise CheckpointError, naming the file, for any other content."""
    try:
        with zipfile.ZipFile(path) as archive:
            found = _Stack().run(_read_pickle(archive))
    except _WRONG as error:
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
