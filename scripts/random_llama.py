#!/usr/bin/env python3
"""Write a random Llama, for measurements of builds and speed: scripts/random_llama.py FOLDER [--size 8b].

It is a folder as transformers' save_pretrained would write it. The weights are drawn and written a few megabytes at a
time, so that a model of any size takes no more memory than a small one. A weight depends on its name and its place in
the tensor alone: neither on the other tensors nor on the shards.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

CONFIG: dict[str, Any] = {
    "num_hidden_layers": 24,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2816,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
# Shapes of meta-llama's Llama-3.2-1B, Llama-3.2-3B and Meta-Llama-3-8B; positions are not scaled.
_LLAMA_3 = {
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    "num_key_value_heads": 8,
}
SIZES = {
    "0.35b": CONFIG,
    "1b": _LLAMA_3
    | {
        "num_hidden_layers": 16,
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "head_dim": 64,
        "intermediate_size": 8192,
        "tie_word_embeddings": True,
    },
    "3b": _LLAMA_3
    | {
        "num_hidden_layers": 28,
        "hidden_size": 3072,
        "num_attention_heads": 24,
        "head_dim": 128,
        "intermediate_size": 8192,
        "tie_word_embeddings": True,
    },
    "8b": _LLAMA_3
    | {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "head_dim": 128,
        "intermediate_size": 14336,
        "tie_word_embeddings": False,
    },
}
DTYPES = {"float32": ("F32", torch.float32), "float16": ("F16", torch.float16), "bfloat16": ("BF16", torch.bfloat16)}
SCALE = 0.02  # the standard deviation of a Llama's first weights
CHUNK = 1 << 22  # numbers drawn at a time, each chunk from a generator of its own


def write(folder: Path, config: LlamaConfig, dtype: str, shard_size: str) -> None:
    """Write the model to a new folder."""
    write_model(folder, *_empty(config, DTYPES[dtype][1]), dtype, shard_size)


def write_model(
    folder: Path,
    model: PreTrainedModel,
    tensors: dict[str, Tensor],
    dtype: str,
    shard_size: str,
    constants: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Write a model's tensors, here without storage, drawn at random, to a new folder; config.json comes last, so that
    what an interruption leaves is no model. constants: end of a name -> what such a tensor is filled with."""
    folder.mkdir(parents=True, exist_ok=True)
    if left := sorted(folder.glob("*.safetensors*")):
        raise SystemExit(f"{folder}: expected a folder without a model, it has {left[0].name}")
    n_parameters = sum(tensor.numel() for tensor in tensors.values())
    shards = split_torch_state_dict_into_shards(tensors, max_shard_size=shard_size)
    total, done = sum(tensor.nbytes for tensor in tensors.values()), 0
    back = "\r" if sys.stderr.isatty() else ""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, names in shards.filename_to_tensors.items():
            its = {name: tensors[name] for name in sorted(names)}
            for written in _write_shard(folder / file, its, dtype, pool, constants):
                done += written
                if back:  # elsewhere every part would be a line
                    _say(f"{back}{folder}: {done / 1e9:.2f} of {total / 1e9:.2f} GB")
    _say(f"{back}{folder}: {n_parameters / 1e9:.3f} B parameters in {total / 1e9:.2f} GB\n")
    if shards.is_sharded:
        metadata = {"total_parameters": n_parameters, **shards.metadata}
        index = {"metadata": metadata, "weight_map": shards.tensor_to_filename}
        text = json.dumps(index, indent=2, sort_keys=True) + "\n"
        (folder / "model.safetensors.index.json").write_text(text)
    model.generation_config.eos_token_id = None
    model.generation_config.save_pretrained(folder)
    model.config.save_pretrained(folder)


def _empty(config: LlamaConfig, dtype: torch.dtype) -> tuple[LlamaForCausalLM, dict[str, Tensor]]:
    """Return the model without storage, and its tensors; one that is tied to another is not written."""
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(dtype)
    model.config.dtype = dtype
    model.config.architectures = [LlamaForCausalLM.__name__]
    return model, dict(model.named_parameters(remove_duplicate=True))


def _write_shard(
    path: Path, tensors: dict[str, Tensor], dtype: str, pool: ThreadPoolExecutor, constants: Mapping[str, float]
) -> Iterator[int]:
    """Write one safetensors file. Yields the bytes of each chunk when it is written."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        places = [end, end := end + tensor.nbytes]
        header[name] = {"dtype": DTYPES[dtype][0], "shape": list(tensor.shape), "data_offsets": places}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.flush()
        file.truncate(first := 8 + len(text) + end)
        first -= end

        def write_chunk(name: str, index: int) -> int:
            constant = next((value for end, value in constants.items() if name.endswith(end)), None)
            data = _numbers(name, tensors[name], index, DTYPES[dtype][1], constant)
            place = first + header[name]["data_offsets"][0] + index * CHUNK * data.itemsize
            view = data.view(torch.uint8).numpy()
            assert os.pwrite(file.fileno(), view, place) == view.nbytes, f"{path}: the disk is full"
            return view.nbytes

        chunks = [(name, index) for name, tensor in tensors.items() for index in range(-(-tensor.numel() // CHUNK))]
        yield from pool.map(lambda chunk: write_chunk(*chunk), chunks)


def _numbers(name: str, tensor: Tensor, index: int, dtype: torch.dtype, constant: float | None) -> Tensor:
    """Return the chunk `index` of a tensor: ones for a norm, else normal(0, SCALE); or a constant."""
    count = min(CHUNK, tensor.numel() - index * CHUNK)
    if constant is not None:
        return torch.full((count,), constant, dtype=dtype)
    if tensor.ndim == 1:
        return torch.ones(count, dtype=dtype)
    seed = int.from_bytes(sha256(f"{name}:{index}".encode()).digest()[:8], "little")
    drawn = torch.empty(count).normal_(0, SCALE, generator=torch.Generator().manual_seed(seed))
    return drawn.to(dtype)


def _say(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or name not in CONFIG | _LLAMA_3:
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(CONFIG | _LLAMA_3)} and =NUMBER, got {text!r}")
    return name, json.loads(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=SIZES, default="0.35b")
    parser.add_argument("--dtype", choices=DTYPES, help="float32 for 0.35b, bfloat16 for the others")
    parser.add_argument("--shard-size", default="2GB", help="at most, but for a single tensor; 2GB by default")
    parser.add_argument(
        "--set", type=_setting, action="append", default=[], metavar="NAME=VALUE", help="change the size's config"
    )
    options = parser.parse_args()
    config = LlamaConfig(**SIZES[options.size] | dict(options.set), eos_token_id=None)
    dtype = options.dtype or ("float32" if options.size == "0.35b" else "bfloat16")
    torch.set_num_threads(1)  # a chunk is one thread's work
    write(options.folder, config, dtype, options.shard_size)


if __name__ == "__main__":
    main()
