"""Every combination that the table of `recipe.drafts` allows, and a bundle of tiny models for each.

A row of the table is all that is needed: what a recipe says for a word stands in the tables below.
"""

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
import yaml
from blake3 import blake3
from transformers import AutoConfig, PreTrainedModel

from speccompile.compiler.build import build
from speccompile.compiler.prove.repeats import RepeatProposer
from speccompile.compiler.step.layers import find_layers
from speccompile.drafters import KINDS_WITH_WEIGHTS
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.capabilities import DRAFTER_KEYS
from speccompile.recipe.combinations import COMBINATIONS
from speccompile.recipe.verification import METHOD
from tests.compile.tiny_bundles import noisy, save
from tests.heads.every import HEADS
from tests.suite import counting
from tests.suite.selection import covering

MAX_LENGTH, BATCH_SIZE = 64, 2
"""Rows of bundles that sample, whose settings may differ, and of those on states. Greedy ones have one: tracing for
several takes half as long again."""

SECTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "model": {"model": "drafter"},
    "models": {"models": ["drafter", "other"]},
    "prompt_lookup": {"ngram": 2},
    "lookahead": {"window": 3, "level": 3, "guesses": 2},
    "jacobi": {},
    "retrieval": {},
    "token_recycling": {"top_k": 3},
    "suffix": {"remember": 256},
    "layer_skip": {"layers": [0]},
    **{kind: {"model": kind} for kind in HEADS},
    "kangaroo": {"model": "kangaroo", "threshold": 0.0},
}
"""Drafter kind -> keys that it needs."""

TREES: dict[str, dict[str, Any]] = {
    "chain": {"tokens": 2},
    "static": {"tree": [2, 1]},
    "dynamic": {"tree": {"depth": 2, "top_k": 3, "nodes": 5}},
}

LOOSE: dict[str, dict[str, float]] = {
    "exact": {},
    "typical": {"epsilon": 0.02, "delta": 0.3},
    "lenience": {"lenience": 0.3},
    "top_k": {"k": 4, "gap": 3.0},
    "bild": {"fallback": 0.01, "rollback": 5.0},
}
"""Method -> parameters with which it accepts more than the exact one, on models as unsure as random ones are."""


@dataclass(frozen=True)
class Where:
    """What a combination is tried on: a model of the zoo, and how TensorRT-RTX gets it."""

    architecture: str
    capability: str
    precision: str


WHERE = {
    ("chain", "greedy"): Where("gpt2", "8.6", "float32"),
    ("chain", "sampling"): Where("qwen2", "8.9", "float16"),
    ("static", "greedy"): Where("phi", "12.0", "float16"),
    ("static", "sampling"): Where("phi", "8.6", "float32"),
    ("dynamic", "greedy"): Where("mistral", "8.9", "float16"),
    ("dynamic", "sampling"): Where("mistral", "12.0", "float32"),
}

FUSED = (
    ("model", "static"),
    ("suffix", "dynamic"),
    *((kind, "chain") for kind in ("models", "prompt_lookup", "token_recycling", "layer_skip", *HEADS)),
)
"""Drafters and trees of exact bundles that are built as one `step` graph."""


@dataclass(frozen=True)
class Combination:
    """One word for each dimension of the table."""

    drafter: str
    tree: str
    sample: bool
    decoding: str
    method: str
    pair: str = ""
    """Architectures of target and drafter, as in "gpt2+lfm2", or of both, where they are not those of `WHERE`."""

    def __str__(self) -> str:
        words = [self.drafter, self.tree, "drawn" if self.sample else "", self.decoding, self.method, self.pair]
        return "-".join(filter(None, words))

    @property
    def where(self) -> Where:
        """Trees of several models are merged, so that even their chains are no chain together."""
        found = WHERE["static" if self.drafter == "models" else self.tree, self.decoding]
        return replace(found, architecture=self.pair) if self.pair else found

    @property
    def batch_size(self) -> int:
        return BATCH_SIZE if self.decoding == "sampling" or self.pair else 1

    @property
    def proposer(self) -> RepeatProposer | None:
        """Return a proposer for bundles without a graph that drafts."""
        if self.drafter != "retrieval":
            return None
        return RepeatProposer(2, 2, True) if self.tree == "chain" else RepeatProposer(5, 2, False)

    @property
    def exact(self) -> bool:
        return self.method == METHOD

    @property
    def agrees(self) -> bool:
        """Return whether some drafts are accepted: random heads know nothing of their target."""
        return self.drafter not in ("none", *HEADS) and "+" not in self.pair

    def recipe(
        self, parameters: Mapping[str, float], engine: Mapping[str, Any], batch_size: int | None = None
    ) -> dict[str, Any]:
        fused = self.exact and (self.drafter, self.tree) in FUSED and (not self.pair or self.drafter == "layer_skip")
        drafter = {
            "kind": self.drafter,
            **SECTIONS[self.drafter],
            **(TREES[self.tree] if "tree" in DRAFTER_KEYS[self.drafter] else {}),
        }
        if (self.drafter, self.tree) == ("retrieval", "dynamic"):
            drafter["tree"] = {"depth": 2, "nodes": 5}
        if not self.exact:  # which go with no answers that are remembered
            drafter.pop("remember", None)
        if "sample" in DRAFTER_KEYS[self.drafter]:
            drafter["sample"] = self.sample
        return {
            "name": "tiny",
            "target": {"model": "target"},
            "drafter": drafter,
            "decoding": self.decoding,
            "graphs": "fused" if fused else "separate",
            "verify": {"method": self.method, **parameters},
            "cache": {"max_length": MAX_LENGTH, "batch_size": batch_size or self.batch_size, "prefill_chunk": 16},
            "engines": [engine],
        }

    def tensorrt(self) -> dict[str, Any]:
        where = self.where
        precision = {"target": where.precision} | (
            {"drafter": where.precision} if self.drafter in KINDS_WITH_WEIGHTS else {}
        )
        return {"backend": "tensorrt_rtx", "compute_capability": where.capability, "precision": precision}


def every() -> list[Combination]:
    """Return all that the table allows, each once."""
    dimensions = ("drafter", "tree", "sample", "decoding", "method")
    words = dict.fromkeys(found for row in COMBINATIONS for found in product(*(row[name] for name in dimensions)))
    return [Combination(drafter, tree, sample == "true", *rest) for drafter, tree, sample, *rest in words]


RULES = list(
    {(each.method, each.decoding, each.sample): each for each in every() if not each.exact and each.agrees}.values()
)
"""Of an approximate method one combination for each decoding: what drafts is no business of the rule's."""


def _on_states(drafter: str, pair: str, decoding: str = "greedy", *, sample: bool = False) -> Combination:
    return Combination(drafter, "chain", sample, decoding, METHOD, pair)


ON_STATES = [
    _on_states("model", "qwen3_5_text"),
    _on_states("model", "gpt2+lfm2"),
    _on_states("model", "falcon_h1+qwen2", "sampling", sample=True),
    _on_states("eagle3", "granitemoehybrid"),
    _on_states("dflash", "lfm2"),
    _on_states("layer_skip", "qwen3_5_text"),
    _on_states("prompt_lookup", "falcon_h1", "sampling"),
    Combination("model", "dynamic", False, "greedy", METHOD, "mixtral"),
]
"""Some with models that carry states from token to token: as target, as drafter, or both; one that pairs features with
tokens, and one that reads the target's states, in one graph. Others would draft there in every round: they could not
read later what they missed. And one whose layers have experts."""


def is_tried(combination: Combination) -> bool:
    """Return True, of heads, which are many, those that draw, and trees that grow: where the temperature is zero a
    bundle that draws takes the best drafts, greedily. Greedy bundles of every head are in its own tests. Of an
    approximate method one combination for each decoding: what drafts is no business of the rule's."""
    drawn_or_grown = combination.sample or combination.tree == "dynamic"
    if not combination.exact:
        return combination in RULES
    return combination.drafter not in HEADS or (combination.decoding == "sampling" and drawn_or_grown)


def _model(name: str, noise: float, n_layers: int) -> PreTrainedModel:
    """Return a model with two layers, the second of which says little, so that the first alone is a drafter."""
    model = noisy(name, noise)
    layers = find_layers(model)
    del layers[n_layers:]
    model.config.num_hidden_layers = n_layers
    if model.config.to_dict().get("layer_types"):  # of which some classes make a property
        model.config.layer_types = model.config.layer_types[:n_layers]
    with torch.no_grad():
        for parameter in layers[1:].parameters():
            if parameter.dim() > 1:
                parameter *= 0.5
    return model


class Workshop:
    """Models and bundles, each made once. Several processes may share the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def models(self, architecture: str) -> Path:
        """Return a folder with a target, two drafters that are somewhat like it, and a head of every kind."""
        folder = self.folder / architecture
        target, drafter = architecture.split("+") if "+" in architecture else (architecture, architecture)
        with once(folder / "other") as is_new:
            if is_new:
                save(_model(target, 0.0, 2), folder / "target", tokenizer=False)
                save(_model(drafter, 0.1, 1), folder / "drafter", tokenizer=False)
                for kind, write in HEADS.items():
                    write(folder / kind, AutoConfig.from_pretrained(folder / "target"))
                save(_model(drafter, 0.2, 1), folder / "other", tokenizer=False)  # the last, which is looked for
        return folder

    def bundle(self, combination: Combination, *, batch_size: int | None = None, **parameters: float) -> Path:
        """Return the bundle for ONNX Runtime, with the method's loose parameters, or others."""
        loose = parameters or LOOSE[combination.method]
        return self._built(combination, loose, {"backend": "onnxruntime"}, batch_size)

    def engines(self, combination: Combination) -> Path:
        """Return the bundle for TensorRT-RTX."""
        return self._built(combination, LOOSE[combination.method], combination.tensorrt())

    def _built(
        self,
        combination: Combination,
        parameters: Mapping[str, float],
        engine: Mapping[str, Any],
        batch_size: int | None = None,
    ) -> Path:
        models = self.models(combination.where.architecture)
        recipe = combination.recipe(parameters, engine, batch_size)
        folder = models / f"{combination}-{_digest(recipe)}"
        with once(folder) as is_new:
            if is_new:
                file = models / f"{folder.name}.yaml"
                file.write_text(yaml.safe_dump(recipe))
                with counting.shared("workshop"):
                    build(make_plan(load_recipe(file)), folder, prove=False)  # which remembers what it traced
        return folder


def _digest(value: object) -> str:
    return blake3(repr(value).encode()).hexdigest()[:16]


@contextmanager
def once(path: Path) -> Iterator[bool]:
    """Yield whether the path is still to be made; other processes wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        yield not path.exists()


FEWER_HEADS = ("eagle3", "medusa", "dspark")
"""One whose rows pair features with tokens, one without rows, and one whose rows are features alone."""


ELSEWHERE = ("none", "prompt_lookup", "retrieval", "token_recycling", "suffix", "layer_skip", "dspark")
"""Drafters of which the first tier has another bundle: in `tiny_bundles`, or in a test of their own."""


def _first() -> list[Combination]:
    """Return every drafter but for most heads and those that have other bundles, every shape in every decoding, one
    approximate rule, two on states. Where several have a shape, one that is traced quickly."""
    exact = [each for each in every() if each.exact and is_tried(each)]
    fewer = [each for each in exact if each.drafter not in HEADS or each.drafter in FEWER_HEADS]
    fewer.sort(key=lambda each: (each.drafter == "model" and each.tree != "static", each.drafter not in ELSEWHERE))

    def words(each: Combination) -> list[object]:
        shape = (each.tree, each.sample, each.decoding)
        return [shape] if each.drafter in ELSEWHERE else [shape, each.drafter]

    return [*covering(fewer, words), *RULES[:1], ON_STATES[1], ON_STATES[3]]


FIRST = _first()
"""The combinations of the first tier: whatever needs bundles of every kind takes these, so that each is built once."""
REASON = "every combination of the table: two graphs are traced for each"
