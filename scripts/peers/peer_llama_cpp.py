#!/usr/bin/env python3
"""llama.cpp through llama-cpp-python's low-level functions, at its defaults. A Llama is written as GGUF.

In Q8_0 and Q4_0 every matrix is of that type, embedding and head included; `llama-quantize` would keep a larger head.
"""

import json
from collections.abc import Callable, Iterator
from ctypes import c_void_p
from pathlib import Path
from time import perf_counter
from typing import Any

from common import LONGEST, Form, Generated, Pair, Peer, main, side_by_side, stepwise

FORMS = {
    "F32": Form("fp32", "F32"),
    "Q8_0": Form("8-bit", "Q8_0"),
    "Q4_0": Form("4-bit", "Q4_0"),
    "its own types": Form("gguf", "gguf"),
    "Q4_0, F16 caches": Form("long", "Q4_0", settings={"n_ctx": LONGEST}),
    "Q4_0, Q8_0 caches": Form("long", "Q4_0", settings={"n_ctx": LONGEST, "type_k": 8, "type_v": 8}),
}
"""type_k, type_v: ggml's number of Q8_0. Attention over quantized values needs its fused form, which is the default."""


def prepare(model: Path, folder: Path, form: Form) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if form.weights == "gguf":
        (folder / "model.gguf").symlink_to(model.resolve())
        return
    write(model, folder / "model.gguf", form.weights, lambda writer, _: writer.add_tokenizer_model("no_vocab"))


def write(model: Path, file: Path, weights: str, add_vocabulary: Callable[[Any, Path], None]) -> None:
    """Write a GGUF file. weights: their type. add_vocabulary: takes gguf's writer and the model's folder."""
    import gguf

    config = json.loads((model / "config.json").read_text())
    received = config["architectures"]
    if received != ["LlamaForCausalLM"]:
        raise SystemExit(f"{model}: received the architecture {received}, expected LlamaForCausalLM")
    writer = gguf.GGUFWriter(file, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH.LLAMA])
    _add_config(writer, config)
    add_vocabulary(writer, model)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    kind = gguf.GGMLQuantizationType[weights]
    for name, weight in _weights(model, config):
        own = kind if weight.ndim == 2 else gguf.GGMLQuantizationType.F32
        data = gguf.quants.quantize(weight, own)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), data, raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_config(writer: Any, config: dict[str, Any]) -> None:
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])


def _weights(model: Path, config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield names and arrays for llama.cpp, which rotates neighbouring columns of a head, not both halves."""
    import gguf
    from gguf.utility import SafetensorsLocal

    heads = {"q_proj.weight": config["num_attention_heads"], "k_proj.weight": config["num_key_value_heads"]}
    for file in sorted(model.glob("*.safetensors")):
        for name, tensor in SafetensorsLocal(file).tensors.items():
            rows = tensor.mmap_bytes().reshape(tensor.shape[0], -1)
            weight = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[tensor.dtype]).reshape(tensor.shape)
            count = heads.get(".".join(name.split(".")[-2:]))
            if count:
                halves = weight.reshape(count, 2, -1, weight.shape[1])
                weight = halves.swapaxes(1, 2).reshape(weight.shape)
            yield name, weight


class Model:
    """A loaded model and its cache, over llama.cpp's low-level functions."""

    def __init__(self, library: Any, file: Path, form: Form, threads: int) -> None:
        self._library = library
        self._model = library.llama_model_load_from_file(str(file).encode(), library.llama_model_default_params())
        assert self._model, f"llama.cpp cannot load {file}"
        context = library.llama_context_default_params()
        context.n_ctx, context.n_threads, context.n_threads_batch = 512, threads, threads
        for name, value in form.settings.items():
            setattr(context, name, value)
        self._batch = context.n_batch
        self._context = library.llama_init_from_model(self._model, context)
        assert self._context, f"llama.cpp makes no context with {form.settings}"
        self._size = library.llama_vocab_n_tokens(library.llama_model_get_vocab(self._model))
        self.length = 0

    def keep(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        memory = self._library.llama_get_memory(self._context)
        assert self._library.llama_memory_seq_rm(memory, 0, length, -1)
        self.length = length

    def best_after(self, tokens: list[int], count: int = 1) -> list[int]:
        """Read tokens; return the best successor of each of the last `count`, which one batch holds."""
        for start in range(0, len(tokens) - self._batch, self._batch):
            self._read(tokens[start : start + self._batch], 0)
        rest = (len(tokens) - 1) // self._batch * self._batch
        return self._read(tokens[rest:], count)

    def _read(self, tokens: list[int], count: int) -> list[int]:
        """Read one batch of tokens; return the best successor of each of the last `count`."""
        import numpy as np

        batch = self._library.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for place, token in enumerate(tokens):
            batch.token[place], batch.pos[place] = token, self.length + place
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, 0
            batch.logits[place] = place >= len(tokens) - count
        failed = self._library.llama_decode(self._context, batch)
        self._library.llama_batch_free(batch)
        assert not failed, f"llama_decode returned {failed}"
        self.length += len(tokens)
        places = range(len(tokens) - count, len(tokens))
        rows = [self._library.llama_get_logits_ith(self._context, place) for place in places]
        return [int(np.ctypeslib.as_array(row, (self._size,)).argmax()) for row in rows]


class Session:
    """Greedy decoding; with `drafts` > 0 the drafter's best tokens are verified in one window, as llama.cpp's own
    programs do, with no least probability for a draft."""

    def __init__(self, folder: Path, form: Form, threads: int, drafter: Path | None = None, drafts: int = 0) -> None:
        import llama_cpp

        self._log = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._log, c_void_p(0))
        llama_cpp.llama_backend_init()
        self._target = Model(llama_cpp, folder / "model.gguf", form, threads)
        self._drafter = Model(llama_cpp, drafter / "model.gguf", form, threads) if drafter else None
        self._drafts = drafts

    def generate(self, prompt: list[int], new_tokens: int) -> Generated:
        self._target.keep(0)
        if self._drafter is not None:
            return self._speculate(self._drafter, prompt, new_tokens)
        tokens: list[int] = []

        def forward(given: list[int]) -> int:
            tokens.extend(self._target.best_after(given))
            return tokens[-1]

        return stepwise(lambda: forward(prompt), lambda: forward(tokens[-1:]), new_tokens)

    def _speculate(self, drafter: Model, prompt: list[int], new_tokens: int) -> Generated:
        drafter.keep(0)
        start = perf_counter()
        tokens = self._target.best_after(prompt)
        first_seconds, rounds = perf_counter() - start, 0
        while len(tokens) < new_tokens:
            text = prompt + tokens
            drafts = drafter.best_after(text[drafter.length :])
            while len(drafts) < self._drafts:
                drafts += drafter.best_after(drafts[-1:])
            best = self._target.best_after([tokens[-1], *drafts], len(drafts) + 1)
            accepted = next((place for place, draft in enumerate(drafts) if draft != best[place]), len(drafts))
            tokens += best[: accepted + 1]
            self._target.keep(len(text) + accepted)
            drafter.keep(min(drafter.length, len(text) + accepted))
            rounds += 1
        return Generated(tokens[:new_tokens], first_seconds, perf_counter() - start, rounds)


if __name__ == "__main__":
    pair = Pair(side_by_side(prepare), lambda folder, form, threads, drafts: Session(
        folder / "target", form, threads, folder / "drafter", drafts))  # fmt: skip
    main(Peer("llama-cpp-python", FORMS, prepare, Session, pair=pair))
