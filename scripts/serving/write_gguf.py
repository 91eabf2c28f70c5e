#!/usr/bin/env python3
"""Write a Llama and its byte-level tokenizer, a local Hugging Face folder, as GGUF.

    build/serving/llama_cpp/bin/python scripts/serving/write_gguf.py recipes/demo/target build/target.gguf

Runs in the environment that scripts/serving/setup makes; the standard library and gguf are all that it needs.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))

from peer_llama_cpp import write

WEIGHTS = ("F32", "Q8_0", "Q4_0")
SPLIT = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
"""The one way of cutting a text into words that is written: GPT-2's."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--weights", choices=WEIGHTS, default="F32", help="type of every matrix")
    arguments = parser.parse_args()
    write(arguments.model, arguments.file, arguments.weights, add_vocabulary)


def add_vocabulary(writer: Any, model: Path) -> None:
    """Add the tokenizer; a first token is added to a prompt where it adds one."""
    import gguf

    tokenizer = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
    _refuse_others(model, tokenizer)
    tokens = dict(tokenizer["model"]["vocab"]) | {each["content"]: each["id"] for each in tokenizer["added_tokens"]}
    size = json.loads((model / "config.json").read_text())["vocab_size"]
    names, kinds = [f"[PAD{index}]" for index in range(size)], [gguf.TokenType.UNUSED] * size
    for token, index in tokens.items():
        names[index], kinds[index] = token, gguf.TokenType.NORMAL
    for each in tokenizer["added_tokens"]:
        kinds[each["id"]] = gguf.TokenType.CONTROL if each["special"] else gguf.TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(names)
    writer.add_token_types(kinds)
    special = gguf.SpecialVocab(model, load_merges=True, n_vocab=size)
    special.add_special_token = {"bos": False, "eos": False} | special.add_special_token
    special.add_to_gguf(writer, quiet=True)


def _refuse_others(model: Path, tokenizer: dict[str, Any]) -> None:
    received = tokenizer["pre_tokenizer"] or {}
    same = all(received.get(name) == value for name, value in SPLIT.items())
    if tokenizer["model"]["type"] != "BPE" or not same or tokenizer["normalizer"]:
        raise SystemExit(
            f"{model}: received the tokenizer {tokenizer['model']['type']} behind {received} and"
            f" {tokenizer['normalizer']}, expected BPE behind {SPLIT} alone"
        )


if __name__ == "__main__":
    main()
