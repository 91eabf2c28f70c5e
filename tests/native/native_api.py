"""The C ABI from Python, by ctypes: signatures are those that include/speccompile.h declares, errors are exceptions.

bundle = NativeBundle(folder, library=native_library, onnxruntime=onnxruntime_library)
result, = bundle.session().generate(["def main("], max_new_tokens=16, temperature=[0.8])
"""

import ctypes
import functools
import json
import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from speccompile.runtime import Proposer
from speccompile.runtime.images.encoder import LowDetail
from tests.native.native_errors import CLASSES, HEADER, KINDS, NativeError

ALL = 2 ** (8 * ctypes.sizeof(ctypes.c_size_t)) - 1
NUMBERS = ("temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty")

Prompt = str | bytes | Sequence[int]

_SCALARS: dict[str, Any] = {
    "void": None, "int": ctypes.c_int, "double": ctypes.c_double, "float": ctypes.c_float, "size_t": ctypes.c_size_t,
    "uint8_t": ctypes.c_uint8, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
}  # fmt: skip


@functools.cache
def _ctype(declared: str) -> Any:
    """Return the ctypes type of a type in the header. Handles are addresses."""
    if found := re.fullmatch(r"(.+) \( \* \) \( (.+) \)", declared):
        return ctypes.CFUNCTYPE(*(_ctype(each.strip()) for each in (found[1], *found[2].split(","))))
    words = [word for word in declared.split() if word != "const"]
    base, stars = words[0], len(words) - 1
    if not stars:
        return _SCALARS[base]
    if base == "char":
        found, stars = ctypes.c_char_p, stars - 1
    elif base in _SCALARS and base != "void":
        found = _SCALARS[base]
    else:
        found, stars = ctypes.c_void_p, stars - 1
    for _ in range(stars):
        found = ctypes.POINTER(found)
    return found


def _callback(function: str, parameter: int) -> Any:
    """Return the ctypes type of what a function of the header calls back."""
    (types,) = (each.parameters for each in HEADER.functions if each.name == function)
    return _ctype(types[parameter])


Sink, Propose = _callback("spc_log_to", 0), _callback("spc_session_propose", 1)


@functools.cache
def load(path: Path) -> ctypes.CDLL:
    """Return the library, with the header's signatures; a function that returns an error raises it."""
    library = ctypes.CDLL(str(path))
    for declared in HEADER.functions:
        function = getattr(library, declared.name)
        function.argtypes = [_ctype(each) for each in declared.parameters]
        function.restype = _ctype(declared.result)
        if declared.result == "spc_error *":
            function.errcheck = functools.partial(_raise, library)
    return library


def _raise(library: ctypes.CDLL, error: int | None, _function: Any, _arguments: Any) -> None:
    if error is None:
        return
    kind, message = library.spc_error_kind(error), library.spc_error_message(error).decode()
    hint, exit_code = library.spc_error_hint(error).decode(), library.spc_error_exit_code(error)
    library.spc_error_free(error)
    raise CLASSES.get(kind, NativeError)(kind, message, hint, exit_code)


class _Handle:
    """Something of the library's, freed once: by close, with the last reference, or at the end of the process."""

    def __init__(self, library: ctypes.CDLL, make: str, free: str, *arguments: Any) -> None:
        made = ctypes.c_void_p()
        getattr(library, make)(*arguments, ctypes.byref(made))
        self.library, self.handle = library, made
        self.close = weakref.finalize(self, getattr(library, free), made)


class NativeBundle(_Handle):
    """spc_bundle. options: engine, threads, verify; True and False become the words of the ABI."""

    def __init__(self, folder: Path | str, *, library: Path, onnxruntime: Path | None = None, **options: Any) -> None:
        if onnxruntime is not None:
            options["onnxruntime"] = onnxruntime
        words: list[bytes | None] = []
        for name, value in options.items():
            words += [name.encode(), (str(value).lower() if isinstance(value, bool) else str(value)).encode()]
        words.append(None)
        given = (ctypes.c_char_p * len(words))(*words)
        super().__init__(load(library), "spc_bundle_open", "spc_bundle_free", str(folder).encode(), given)

    @property
    def manifest(self) -> dict[str, Any]:
        return json.loads(self.library.spc_bundle_manifest(self.handle))

    @property
    def description(self) -> dict[str, Any]:
        return json.loads(self.library.spc_bundle_description(self.handle))

    def encode(self, text: str | bytes, special_tokens: bool = True) -> list[int]:
        data, count = _bytes(text), ctypes.c_size_t(0)
        call = functools.partial(self.library.spc_bundle_encode, self.handle, data, len(data), int(special_tokens))
        if not _asks_for_room(call, count):
            return []
        ids = (ctypes.c_int64 * count.value)()
        call(ids, ctypes.byref(count))
        return list(ids[: count.value])

    def decode(self, ids: Sequence[int]) -> str:
        given, size = (ctypes.c_int64 * len(ids))(*ids), ctypes.c_size_t(0)
        call = functools.partial(self.library.spc_bundle_decode, self.handle, given, len(ids))
        if not _asks_for_room(call, size):
            return ""
        text = ctypes.create_string_buffer(size.value)
        call(text, ctypes.byref(size))
        return text.raw[: size.value].decode()

    def session(self) -> "NativeSession":
        return NativeSession(self)


def _asks_for_room(call: Any, size: ctypes.c_size_t) -> bool:
    """Call without a buffer: `size` then is what it needs. False where it needs none."""
    try:
        call(None, ctypes.byref(size))
    except NativeError as error:
        if error.kind != KINDS["TOO_SMALL"]:
            raise
        return True
    return False


class NativeRequest(_Handle):
    """spc_request. An option has one value, or a sequence with one for each prompt; None is the default."""

    def __init__(
        self, library: ctypes.CDLL, prompts: Sequence[Prompt], stop: Sequence[str | bytes], options: Mapping[str, Any]
    ) -> None:
        super().__init__(library, "spc_request_create", "spc_request_free")
        for prompt in prompts:
            if isinstance(prompt, str | bytes):
                library.spc_request_add_text(self.handle, _bytes(prompt), len(_bytes(prompt)))
            else:
                library.spc_request_add_tokens(self.handle, (ctypes.c_int64 * len(prompt))(*prompt), len(prompt))
        for text in stop:
            library.spc_request_add_stop(self.handle, _bytes(text), len(_bytes(text)))
        self._show(options.get("images") or ())
        self._read(options.get("source"))
        self._hear(options.get("audio"))
        named = options.get("adapter")
        for prompt, each in enumerate(named) if isinstance(named, list | tuple) else [(ALL, named)]:
            library.spc_request_set_adapter(self.handle, prompt, None if each is None else each.encode())
        if constraint := options.get("constraint"):  # kind and text
            kind, text = (None if each is None else _bytes(each) for each in constraint)
            library.spc_request_set_constraint(self.handle, kind, text, len(text or b""))
        self._bias(options.get("logit_bias"))
        for name, value in options.items():
            if name in ("adapter", "audio", "constraint", "images", "source", "logit_bias"):
                continue
            if isinstance(value, str):
                library.spc_request_set_text(self.handle, name.encode(), value.encode())
            else:
                for prompt, each in enumerate(value) if isinstance(value, list | tuple) else [(ALL, value)]:
                    self._set(name, each, prompt)

    def _bias(self, biases: Any) -> None:
        """Set numbers by token for all prompts, or a list with those of each."""
        for prompt, own in enumerate(biases) if isinstance(biases, list) else [(ALL, biases)]:
            for each in (own or {}).items():
                self.library.spc_request_set_logit_bias(self.handle, prompt, *each)

    def _show(self, images: Sequence[Sequence[Any]]) -> None:
        """Add each prompt's pictures: uint8 [height, width, 3], a file's bytes, or one of them as `LowDetail`."""
        for prompt, given in ((prompt, image) for prompt, own in enumerate(images) for image in own):
            image = given.source if isinstance(given, LowDetail) else given
            if isinstance(image, bytes):
                self.library.spc_request_add_image_file(self.handle, prompt, image, len(image))
            else:
                rgb = (ctypes.c_uint8 * image.size).from_buffer_copy(image.tobytes())
                self.library.spc_request_add_image(self.handle, prompt, rgb, *image.shape[1::-1])
            if isinstance(given, LowDetail):
                self.library.spc_request_set_image_detail(self.handle, prompt, b"low")

    def _read(self, source: Any) -> None:
        """Set a source for all prompts, a text or ids, or one for each."""
        if source is None:
            return
        is_one = isinstance(source, str | bytes) or not source or isinstance(source[0], int)
        for prompt, each in [(ALL, source)] if is_one else enumerate(source):
            if isinstance(each, str | bytes):
                self.library.spc_request_set_source(self.handle, prompt, _bytes(each), len(_bytes(each)))
            else:
                ids = (ctypes.c_int64 * len(each))(*each)
                self.library.spc_request_set_source_tokens(self.handle, prompt, ids, len(each))

    def _hear(self, audio: Any) -> None:
        """Set a sound for all prompts, float32 [n] samples or the bytes of a file, or a list with one for each."""
        for prompt, each in enumerate(audio) if isinstance(audio, list) else [] if audio is None else [(ALL, audio)]:
            if isinstance(each, bytes):
                self.library.spc_request_set_audio_file(self.handle, prompt, each, len(each))
            else:
                samples = (ctypes.c_float * len(each)).from_buffer_copy(each.tobytes())
                self.library.spc_request_set_audio(self.handle, prompt, samples, len(each))

    def _set(self, name: str, value: float | None, prompt: int = ALL) -> None:
        if value is None:
            return
        # A number that is no integer of the ABI is refused as what it is.
        is_integer = isinstance(value, int) and name not in NUMBERS and 0 <= value < 2**64
        put = self.library.spc_request_set_integer if is_integer else self.library.spc_request_set_number
        put(self.handle, prompt, name.encode(), value)


class NativeSession(_Handle):
    """spc_session. Options are those of Python's `Bundle.generate_batch`."""

    def __init__(self, bundle: NativeBundle) -> None:
        super().__init__(bundle.library, "spc_session_create", "spc_session_free", bundle.handle)

    def propose_with(self, proposer: Proposer | None) -> None:
        """Return drafts of a proposer as Python's runtime takes it; None: of the bundle's own index."""

        def propose(_user: object, text: Any, count: int, drafts: Any, parents: Any, room: int) -> int:
            found = proposer.propose(text[:count]) if proposer else ((), ())
            for place, (token, parent) in enumerate(zip(*found, strict=True)):
                if place < room:
                    drafts[place], parents[place] = token, parent
            return min(len(found[0]), room)

        self.call_back(propose if proposer else None)

    def call_back(self, propose: Callable[..., int] | None) -> None:
        """Call spc_session_propose with a function of the C ABI."""
        called = Propose(propose) if propose else ctypes.cast(None, Propose)
        self.library.spc_session_propose(self.handle, called, None)
        self._called = called  # as long as the session may call it

    def reset_kept(self) -> None:
        self.library.spc_session_reset_kept(self.handle)

    def save_kept(self, path: Path) -> None:
        self.library.spc_session_save_kept(self.handle, str(path).encode())

    def load_kept(self, path: Path) -> None:
        self.library.spc_session_load_kept(self.handle, str(path).encode())

    def save(self, path: Path) -> None:
        self.library.spc_session_save(self.handle, str(path).encode())

    def load(self, path: Path) -> list[int]:
        """Return the tokens of a session."""
        ids, count = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_size_t()
        self.library.spc_session_load(self.handle, str(path).encode(), ctypes.byref(ids), ctypes.byref(count))
        return ids[: count.value]

    def load_adapter(self, name: str, folder: Path) -> None:
        self.library.spc_session_load_adapter(self.handle, name.encode(), str(folder).encode())

    def unload_adapter(self, name: str) -> None:
        self.library.spc_session_unload_adapter(self.handle, name.encode())

    def start(self, prompts: Sequence[Prompt] | str, *, stop: Sequence[str | bytes] = (), **options: Any) -> None:
        given = [prompts] if isinstance(prompts, str | bytes) else list(prompts)
        request = NativeRequest(self.library, given, [stop] if isinstance(stop, str | bytes) else stop, options)
        self.library.spc_session_start(self.handle, request.handle)

    def step(self) -> bool:
        """Return one call of spc_session_step; True when every row has ended."""
        done = ctypes.c_int(-1)
        self.library.spc_session_step(self.handle, ctypes.byref(done))
        assert done.value in (0, 1)
        return bool(done.value)

    @property
    def rows(self) -> int:
        return self.library.spc_session_rows(self.handle)

    def new_text(self, row: int = 0) -> bytes:
        """Return what the last step has added: whole characters."""
        text, size = ctypes.c_char_p(), ctypes.c_size_t()
        self.library.spc_session_new_text(self.handle, row, ctypes.byref(text), ctypes.byref(size))
        return ctypes.string_at(text, size.value) if size.value else b""

    def new_tokens(self, row: int = 0) -> list[int]:
        ids, count = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_size_t()
        self.library.spc_session_new_tokens(self.handle, row, ctypes.byref(ids), ctypes.byref(count))
        return ids[: count.value] if count.value else []

    def result(self, row: int = 0) -> dict[str, Any]:
        return NativeResult(self, row).object()

    def result_tokens(self, row: int = 0) -> list[int]:
        return NativeResult(self, row).tokens()

    def results(self) -> list[dict[str, Any]]:
        return [self.result(row) for row in range(self.rows)]

    def generate(self, prompts: Sequence[Prompt] | str, **options: Any) -> list[dict[str, Any]]:
        """Return the whole of a generation: an object of `speccompile generate --json` for every row."""
        self.start(prompts, **options)
        while not self.step():
            pass
        return self.results()

    def stream(self, prompts: Sequence[Prompt] | str, **options: Any) -> Iterator[tuple[int, str, list[int]]]:
        """Yield (row, text, tokens) of every row that a step has added something to; `results` has the whole then."""
        self.start(prompts, **options)
        done = False
        while not done:
            done = self.step()
            for row in range(self.rows):
                text, tokens = self.new_text(row).decode(), self.new_tokens(row)
                if text or tokens:
                    yield row, text, tokens

    def cancel(self) -> None:
        """Cancel from any thread: the step under way, or the next one, raises NativeError of kind CANCELLED."""
        self.library.spc_session_cancel(self.handle)


class NativeResult(_Handle):
    """spc_result."""

    def __init__(self, session: NativeSession, row: int) -> None:
        super().__init__(session.library, "spc_session_result", "spc_result_free", session.handle, row)

    def object(self) -> dict[str, Any]:
        return json.loads(self.library.spc_result_json(self.handle))

    def tokens(self) -> list[int]:
        ids, count = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_size_t()
        self.library.spc_result_tokens(self.handle, ctypes.byref(ids), ctypes.byref(count))
        return ids[: count.value] if count.value else []


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
