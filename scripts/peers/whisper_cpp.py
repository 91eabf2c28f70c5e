"""A Whisper of transformers in whisper.cpp's format, and its greedy decoding by whisper.cpp's own library.

The format is that of whisper.cpp's models/convert-h5-to-ggml.py. In place of float32, in which its convolutions do not
run, matrices are float16, as in its published models; int8 is its Q8_0, as its program quantize writes. The head is the
embedding there, so that the tokens of a model with a head of its own differ, and take as long.
"""

import ctypes
import struct
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

MAGIC, BANDS, BLOCK = 0x67676D6C, 201, 32
FLOAT32, FLOAT16, Q8_0 = 0, 1, 8
FTYPES = {"float32": 1, "int8": 7}
NAMES = {
    "embed_tokens": "token_embedding", "embed_positions.weight": "positional_embedding", "layers.": "blocks.",
    "self_attn_layer_norm": "attn_ln", "encoder_attn_layer_norm": "cross_attn_ln", "final_layer_norm": "mlp_ln",
    "self_attn.": "attn.", "encoder_attn.": "cross_attn.", "q_proj": "query", "k_proj": "key", "v_proj": "value",
    "out_proj": "out", "fc1": "mlp.0", "fc2": "mlp.2",
}  # fmt: skip


def convert(folder: Path, precision: str, target: Path) -> None:
    """Write the Whisper in `folder`, in float32 or int8."""
    from transformers import WhisperForConditionalGeneration

    model = WhisperForConditionalGeneration.from_pretrained(folder)
    config = model.config
    sizes = (
        config.vocab_size, config.max_source_positions, config.d_model, config.encoder_attention_heads,
        config.encoder_layers, config.max_target_positions, config.d_model, config.decoder_attention_heads,
        config.decoder_layers, config.num_mel_bins, FTYPES[precision],
    )  # fmt: skip
    with target.open("wb") as file:
        file.write(struct.pack("<12i", MAGIC, *sizes))
        filters = np.zeros((config.num_mel_bins, BANDS), np.float32)  # features are given
        file.write(struct.pack("<2i", *filters.shape) + filters.tobytes() + struct.pack("<i", config.vocab_size))
        for token in range(config.vocab_size):
            word = f"{token}".encode()
            file.write(struct.pack("<i", len(word)) + word)
        for name, weight in model.model.state_dict().items():
            file.write(tensor(renamed(name), weight.float().numpy(), precision))


def renamed(name: str) -> str:
    side, _, rest = name.partition(".")
    for theirs, ours in NAMES.items():
        rest = rest.replace(theirs, ours)
    return f"{side}." + rest.replace("layer_norm", "ln_post" if side == "encoder" else "ln")


def tensor(name: str, weight: Any, precision: str) -> bytes:
    """Return a tensor in ggml's format: header with the sizes from the last axis on, name, data."""
    if name.endswith(("conv1.bias", "conv2.bias")):
        weight = weight.reshape(-1, 1)
    is_table = name.endswith("positional_embedding")
    kind = FLOAT32
    if weight.ndim > 1 and not is_table and not name.endswith("bias"):
        kind = Q8_0 if precision == "int8" and weight.ndim == 2 else FLOAT16
    data = {FLOAT32: weight, FLOAT16: weight.astype(np.float16)}.get(kind)
    written = quantized(weight) if data is None else data.tobytes()
    head = struct.pack("<3i", weight.ndim, len(name), kind) + struct.pack(f"<{weight.ndim}i", *weight.shape[::-1])
    return head + name.encode() + written


def quantized(weight: Any) -> bytes:
    """Quantize a weight to Q8_0: blocks of a float16 scale and 32 int8 codes."""
    blocks = weight.reshape(-1, BLOCK)
    scales = np.abs(blocks).max(1, keepdims=True) / 127
    codes = np.round(blocks / np.where(scales == 0, 1, scales)).astype(np.int8)
    rows = np.empty((len(blocks), 2 + BLOCK), np.int8)
    rows[:, :2], rows[:, 2:] = scales.astype(np.float16).view(np.int8), codes
    return rows.tobytes()


def run(model: Path, prompt: list[int], never: int, count: int) -> dict[str, Any]:
    """Return the time to the first token, the tokens per second after it, and `count` greedy tokens, on one thread.
    never: a suppressed token."""
    library = load()
    context = library.whisper_init_from_file(str(model).encode())
    size = library.whisper_n_vocab(context)

    def heard(seed: int) -> Any:
        return (np.random.default_rng(seed).normal(size=(80, 3000)) * 0.3).astype(np.float32)

    def decoded(features: Any, tokens: int) -> Iterator[int]:
        library.whisper_set_mel(context, features.ctypes.data_as(ctypes.c_void_p), features.shape[1], features.shape[0])
        assert library.whisper_encode(context, 0, 1) == 0
        given, place = prompt, 0
        for _ in range(tokens):
            written = (ctypes.c_int * len(given))(*given)
            assert library.whisper_decode(context, written, len(given), place, 1) == 0
            place += len(given)
            logits = np.ctypeslib.as_array(library.whisper_get_logits(context), (len(given), size))[-1].copy()
            logits[never] = -np.inf
            given = [int(logits.argmax())]
            yield given[0]

    list(decoded(heard(1), 4))
    start, times, found = perf_counter(), [], []
    for token in decoded(heard(0), count):
        times.append(perf_counter() - start)
        found.append(token)
    return {"first": times[0], "speed": (count - 1) / (times[-1] - times[0]), "tokens": found, "accepted": None}


def load() -> Any:
    """Return whisper.cpp's library of the package pywhispercpp."""
    spec = find_spec("_pywhispercpp")
    assert spec is not None, "pywhispercpp is installed"
    assert spec.origin is not None
    library = ctypes.CDLL(str(next(Path(spec.origin).parent.glob("pywhispercpp.libs/libwhisper*"))))
    library.whisper_init_from_file.restype = ctypes.c_void_p
    library.whisper_get_logits.restype = ctypes.POINTER(ctypes.c_float)
    for name in ("set_mel", "encode", "decode", "get_logits", "n_vocab"):
        getattr(library, f"whisper_{name}").argtypes = [ctypes.c_void_p, *SIGNATURES[name]]
    return library


SIGNATURES: dict[str, list[Any]] = {
    "set_mel": [ctypes.c_void_p, ctypes.c_int, ctypes.c_int], "encode": [ctypes.c_int, ctypes.c_int],
    "decode": [ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_int, ctypes.c_int], "get_logits": [], "n_vocab": [],
}  # fmt: skip
