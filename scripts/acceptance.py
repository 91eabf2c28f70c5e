#!/usr/bin/env python3
"""Print the time that one round spends in acceptance, in ONNX Runtime on a CPU: batch 1, a chain of 4 drafts, 1 thread.

scripts/acceptance.py [--runs N] [VOCABULARY ...]      # medians, in microseconds
"""

import argparse
import logging
import time
import warnings
from collections.abc import Callable
from statistics import median

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import torch
from torch import Tensor, nn

from speccompile.compiler.lower import neutral, onnxruntime
from speccompile.compiler.lower.translations import translation
from speccompile.compiler.step.sampling import Settings
from speccompile.compiler.step.verify import Acceptance, RoundInputs
from speccompile.compiler.step.verify.rules import Exact
from speccompile.compiler.step.verify.sampled import Speculative
from speccompile.compiler.step.window import ChainLayout
from speccompile.tree import chain

DRAFTS, CANDIDATES, HISTORY = 4, 64, 512
ROWS = DRAFTS + 1
VOCABULARIES = (4096, 32000, 151936)
OFF = {"temperature": 0.8, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
LIMITED = OFF | {"top_k": 50, "top_p": 0.95}
PENALIZED = LIMITED | {"repetition_penalty": 1.1}

Feeds = dict[str, np.ndarray]


class Alone(nn.Module):
    """Acceptance of a chain whose logits are given. kind: greedy, sampling (certain drafts) or drawn (sampled ones)."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.shape = kind, ChainLayout()
        self.acceptance = Acceptance(Exact(), Speculative(chain(DRAFTS)) if kind == "drawn" else None)

    def forward(self, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        named, seen = dict(inputs), None
        logits = named.pop("logits")
        if self.kind != "greedy":
            named["settings"] = settings = Settings(**{name: named.pop(name) for name in Settings._fields})
            seen = torch.cat([settings.history, named["window"]], 1)[:, None].expand(-1, logits.shape[1], -1)
        given = RoundInputs(length=torch.zeros_like(named["n_given"]), **named)
        walk, bonus = self.acceptance(given, logits, seen, self.shape, None)
        return walk.n_accepted, bonus


def inputs_of(kind: str, vocabulary: int, settings: dict[str, float], history: int) -> Feeds:
    """Return a round whose rows' distributions have about the entropy of a language model's, 2 to 3 nats."""
    random = np.random.default_rng(0)
    ranks = np.stack([random.permutation(vocabulary) for _ in range(ROWS)])
    logits = (random.standard_normal((ROWS, vocabulary)) - 1.4 * np.log(ranks + 1)).astype(np.float32)[None]
    tokens = logits.argmax(-1)
    feeds: Feeds = {
        "logits": logits,
        "window": np.concatenate([tokens[:, :1], tokens[:, :DRAFTS]], 1),
        "n_given": np.array([1]),
        "n_total": np.array([ROWS]),
        "logit_rows": np.arange(ROWS),
    }
    if kind != "greedy":
        integers = {"top_k"}
        feeds |= {name: np.array([value], np.int64 if name in integers else np.float32)
                  for name, value in settings.items()}  # fmt: skip
        feeds["history"] = random.integers(0, vocabulary, (1, history))
        feeds["uniforms"] = random.random((1, ROWS), np.float32)
    if kind == "drawn":
        feeds["accept_uniforms"] = random.random((1, DRAFTS), np.float32)
        feeds["ids"] = np.argsort(-logits[:, :DRAFTS], -1)[..., : min(vocabulary, CANDIDATES)]
        feeds["probs"] = np.full(feeds["ids"].shape, 1 / feeds["ids"].shape[2], np.float32)
    return feeds


@torch.no_grad()
def lowered(kind: str, vocabulary: int) -> bytes:
    """Return the acceptance alone, exported for any number of rows, and lowered."""
    feeds = inputs_of(kind, vocabulary, OFF, HISTORY)
    example = {name: torch.from_numpy(value) for name, value in feeds.items()}
    dynamic = {name: {} for name in feeds} | {"history": {1: torch.export.Dim.DYNAMIC}} if kind != "greedy" else None
    program = torch.export.export(Alone(kind), (example,), dynamic_shapes=(dynamic,) if dynamic else None, strict=False)
    model: ir.Model = torch.onnx.export(
        program, dynamo=True, opset_version=neutral.OPSET, optimize=False, verbose=False,
        custom_translation_table=translation(),
    ).model  # fmt: skip
    for value, name in zip(model.graph.inputs, feeds, strict=True):
        value.name = name
    neutral.add_functions(model)
    onnxruntime.lower(model)
    return ir.to_proto(model).SerializeToString()


def timed(graph: bytes, feeds: Feeds, runs: int) -> float:
    """Median microseconds of a run, inputs and outputs bound once."""
    session = opened(graph)
    binding = session.io_binding()
    for value in session.get_inputs():
        binding.bind_ortvalue_input(value.name, ort.OrtValue.ortvalue_from_numpy(feeds[value.name]))
    for value in session.get_outputs():
        binding.bind_output(value.name, "cpu")
    return 1e6 * median(_seconds(lambda: session.run_with_iobinding(binding)) for _ in range(runs))


def opened(graph: bytes) -> ort.InferenceSession:
    """Return a session of one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


CASES: dict[str, tuple[str, dict[str, float], int]] = {
    "greedy": ("greedy", OFF, 1),
    "sampling, temperature 0": ("sampling", OFF | {"temperature": 0.0}, 1),
    "sampling": ("sampling", OFF, 1),
    "top-k 50, top-p 0.95": ("sampling", LIMITED, 1),
    f"and a penalty on {HISTORY} tokens": ("sampling", PENALIZED, HISTORY),
    "drawn drafts": ("drawn", OFF, 1),
    "drawn drafts, top-k 50, top-p 0.95": ("drawn", LIMITED, 1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vocabularies", nargs="*", type=int, default=VOCABULARIES)
    parser.add_argument("--runs", type=int, default=300)
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # of the exporter
    warnings.simplefilter("ignore")
    kinds = dict.fromkeys(kind for kind, _, _ in CASES.values())
    graphs = {(kind, size): lowered(kind, size) for kind in kinds for size in options.vocabularies}
    print(f"{'microseconds':<36}" + "".join(f"{size:>10}" for size in options.vocabularies))
    for title, (kind, settings, history) in CASES.items():
        times = [timed(graphs[kind, size], inputs_of(kind, size, settings, history), options.runs)
                 for size in options.vocabularies]  # fmt: skip
        print(f"{title:<36}" + "".join(f"{value:>10.0f}" for value in times))


if __name__ == "__main__":
    main()
