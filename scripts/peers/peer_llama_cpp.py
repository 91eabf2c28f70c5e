#!/usr/bin/env python3
"""llama.cpp through llama-cpp-python's low-level functions, at its defaults. A Llama is written as GGUF.

In Q8_0 and Q4_0 every matrix is of that type, embedding and head included; `llama-quantize` would keep a larger head.
"""

import json
from collections.abc import Callable, Iterator
from ctypes import c_void_p
from pathlib import Path
from typing import Any

from common import LONGEST, Form, Generated, Peer, main, stepwise

FORMS = {
    "F32": Form("fp32", "F32"),
    "Q8_0": Form("8-bit", "Q8_0"),
    "Q4_0": Form("4-bit", "Q4_0"),
    "Q4_0, F16 caches": Form("long", "Q4_0", settings={"n_ctx": LONGEST}),
    "Q4_0, Q8_0 caches": Form("long", "Q4_0", settings={"n_ctx": LONGEST, "type_k": 8, "type_v": 8}),
}
"""type_k, type_v: ggml's number of Q8_0. Attention over quantized values needs its fused form, which is the default."""


def prepare(model: Path, folder: Path, form: Form) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write(model, folder / "model.gguf", form.weights, lambda writer, _: writer.add_tokenizer_model("no_vocab"))


def write(model: Path, file: Path, weights: str, add_vocabulary: Callable[[Any, Path], None]) -> None:
    """weights: of which type. add_vocabulary: takes gguf's writer and the model's folder."""
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
    """Names and arrays as llama.cpp wants them: it rotates neighbouring columns of a head, transformers both halves."""
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


class Session:
    def __init__(self, folder: Path, form: Form, threads: int) -> None:
        import llama_cpp

        self._library = llama_cpp
        self._log = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._log, c_void_p(0))
        llama_cpp.llama_backend_init()
        path = str(folder / "model.gguf").encode()
        self._model = llama_cpp.llama_model_load_from_file(path, llama_cpp.llama_model_default_params())
        assert self._model, f"llama.cpp cannot load {folder / 'model.gguf'}"
        context = llama_cpp.llama_context_default_params()
        context.n_ctx, context.n_threads, context.n_threads_batch = 512, threads, threads
        for name, value in form.settings.items():
            setattr(context, name, value)
        self._batch = context.n_batch
        self._context = llama_cpp.llama_init_from_model(self._model, context)
        assert self._context, f"llama.cpp makes no context with {form.settings}"
        self._size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))

    def generate(self, prompt: list[int], new_tokens: int) -> Generated:
        self._library.llama_memory_clear(self._library.llama_get_memory(self._context), True)
        tokens: list[int] = []

        def forward(given: list[int]) -> int:
            tokens.append(self._best_after(given))
            return tokens[-1]

        return stepwise(lambda: forward(prompt), lambda: forward(tokens[-1:]), new_tokens)

    def _best_after(self, tokens: list[int]) -> int:
        import numpy as np

        for start in range(0, len(tokens), self._batch):
            part = tokens[start : start + self._batch]
            given = (self._library.llama_token * len(part))(*part)
            failed = self._library.llama_decode(self._context, self._library.llama_batch_get_one(given, len(part)))
            assert not failed, f"llama_decode returned {failed}"
        logits = self._library.llama_get_logits_ith(self._context, -1)
        return int(np.ctypeslib.as_array(logits, (self._size,)).argmax())


if __name__ == "__main__":
    main(Peer("llama-cpp-python", FORMS, prepare, Session))
