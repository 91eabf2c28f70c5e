"""Whole bundles over toy models, that generate in milliseconds."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers, processors

from speccompile.bundle import BundleWriter, Manifest
from speccompile.bundle.manifest import canonical_json
from speccompile.runtime import Bundle
from speccompile.runtime.text.tokenizer import Tokenizer
from tests.light.bundle_example import cpu_entry, manifest
from tests.light.toy_engine import DYNAMIC, STATIC, ToyEngine
from tests.light.toy_graphs import toy_graphs
from tests.light.toy_models import VOCABULARY

JSON_KEYS = [
    "text",
    "token_ids",
    "prompt_tokens",
    "rounds",
    "mean_accepted",
    "seconds",
    "tokens_per_second",
    "finish_reason",
    "mode",
    "engine",
    "exact",
    "kernels",
    "seed",
]
"""What `generate --json` prints, in order, as the design documents it."""

TEMPLATE = "{{ bos_token }}{{ messages[0].content }}!"


def toy_manifest(
    *,
    speculative: bool = True,
    fused: bool = False,
    tree: str = "chain",
    sampling: bool = False,
    sample: bool = False,
    features: bool = False,
    pairs: bool = False,
    carried: bool = False,
    **changes: object,
) -> Manifest:
    """Return the manifest of a toy bundle; `changes` as in `bundle_example.manifest`."""
    values: dict[str, Any] = {
        "vocabulary_size": VOCABULARY, "eos_token_ids": (), "max_length": 160, "batch_size": 1, "prefill_chunk": 16,
        "decoding": "sampling" if sampling else "greedy", "tree": tree, "sample": sample,
        "plan": {"verify": {"method": "exact", "exact": True, "parameters": {}}},
    }  # fmt: skip
    if tree != "chain":
        shape = STATIC if tree == "static" else DYNAMIC[1]
        values |= {"tokens": shape.drafts, "depth": shape.depth, "catch_up": shape.depth + 1}
        values["plan"] = {**values["plan"], "drafter": {"tree": {"parents": list(shape.parents)}, "models": []}}
    elif not speculative:
        values |= {"tokens": 0, "depth": 0, "catch_up": 0}
    else:
        values["depth"] = changes.get("tokens", 4)
    values = {"tokens": 4} | values | changes
    rows = values["max_length"] + max(values["prefill_chunk"], values["tokens"] + 1) + values["tokens"] + 1
    kinds = {"tree": tree, "sampling": sampling, "sample": sample, "features": features} | {
        "pairs": pairs,
        "carried": carried,
    }
    graphs = toy_graphs(values["batch_size"], rows, values["tokens"], fused=fused, **kinds)  # type: ignore[arg-type]
    graphs = graphs if speculative else graphs[:1]
    entries = tuple(
        cpu_entry(graphs, {graph.name: f"graphs/{graph.name}.onnx" for graph in graphs}, name)
        for name in ("onnxruntime-cpu", "other")
    )
    return manifest(**({"graphs": graphs, "engines": entries} | values))


def toy_tokenizer() -> FastTokenizer:
    """Return one token a byte. <s> begins every text."""
    alphabet = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<s>", "</s>"]
    tokenizer = FastTokenizer(models.BPE(vocab={name: index for index, name in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 256)])
    return tokenizer


def toy_bundle(text: Tokenizer | None = None, *, ranges: bool = False, **changes: object) -> Bundle:
    """Return a bundle that lies in no folder. ranges: its engine may run some rows alone."""
    made = toy_manifest(**changes)  # type: ignore[arg-type]
    return Bundle(made, ToyEngine(made, has_ranges=ranges), made.engines[0], text, None)


def write_toy_bundle(
    output: Path, *, tokenizer: bool = True, chat: bool = True, proof: dict[str, Any] | None = None, **changes: object
) -> Path:
    """Return the folder of a toy bundle. Its graphs are no ONNX files: `ToyEngine` must stand in for ONNX Runtime."""
    made = toy_manifest(tokenizer=tokenizer, **changes)  # type: ignore[arg-type]
    with BundleWriter(output) as writer:
        for graph in made.graphs:
            file = writer.folder / f"graphs/{graph.name}.onnx"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(b"graph")
        if tokenizer:
            (writer.folder / "tokenizer").mkdir()
            toy_tokenizer().save(str(writer.folder / "tokenizer" / "tokenizer.json"))
        if tokenizer and chat:
            special = {"bos_token": "<s>", "eos_token": "</s>"}
            chat_json = canonical_json({"template": TEMPLATE, "special_tokens": special})
            (writer.folder / "tokenizer" / "chat.json").write_bytes(chat_json)
        writer.finish(made, {}, proof or {})
    return output
