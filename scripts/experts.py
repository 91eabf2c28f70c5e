"""What the products of experts cost on this CPU: every row by the experts that it chose, as graphs have it, against
every row by every expert.

    python scripts/experts.py --experts 8 16 32 64 --precision float32 int4

Prints one line for each number of experts and precision: milliseconds of one layer for every window, both ways.
"""

import argparse
import logging
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch
from torch import Tensor, nn
from transformers import Qwen3MoeConfig
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

from speccompile.compiler.lower import neutral, onnxruntime
from speccompile.compiler.lower.export import translation
from speccompile.compiler.lower.files import save
from speccompile.compiler.lower.passes.transposed_weights import transposed_weights
from speccompile.compiler.lower.quantize import quantize
from speccompile.runtime.devices.sessions import session_options

WINDOWS = (1, 5, 256)
"""Decoding alone, a round of four drafts, a chunk of a prompt."""


class EveryRow(nn.Module):
    """The same layer, in which every expert computes every row, and those that were not chosen count nothing."""

    def __init__(self, block: Qwen3MoeSparseMoeBlock) -> None:
        super().__init__()
        self.gate, self.experts, self.act = block.gate, block.experts, block.experts.act_fn

    def forward(self, hidden: Tensor) -> Tensor:
        rows = hidden.flatten(0, 1)  # [T, K]
        _, weights, chosen = self.gate(rows)
        shares = torch.zeros(len(rows), self.experts.num_experts).scatter(1, chosen, weights)
        result = torch.zeros_like(rows)
        for index in range(self.experts.num_experts):
            gate, up = (rows @ self.experts.gate_up_proj[index].T).chunk(2, -1)
            product = (self.act(gate) * up) @ self.experts.down_proj[index].T
            result = result + shares[:, index, None] * product
        return result.view_as(hidden)


class Followed(nn.Module):
    """The layer as it is, and something behind it: its last product is no head."""

    def __init__(self, block: nn.Module, width: int) -> None:
        super().__init__()
        self.block, self.head = block, nn.Linear(width, 8, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.head(hidden + self.block(hidden))


def make_layer(experts: int, chosen: int, width: int, inner: int) -> Qwen3MoeSparseMoeBlock:
    """A random layer of Qwen 3's kind, as eager as graphs are traced from."""
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        hidden_size=width, moe_intermediate_size=inner, num_experts=experts, num_experts_per_tok=chosen
    )
    config._experts_implementation = "grouped_mm"  # as transformers loads them
    block = Qwen3MoeSparseMoeBlock(config).eval().requires_grad_(False)
    for parameter in block.parameters():
        parameter.normal_(std=width**-0.5)
    return block


def open_session(module: nn.Module, width: int, precision: str, folder: Path, threads: int) -> ort.InferenceSession:
    """The layer as a CPU engine has it: traced, quantized, lowered."""
    tokens = torch.export.Dim.DYNAMIC
    program = torch.onnx.export(
        module, (torch.randn(1, 7, width),), dynamo=True, opset_version=neutral.OPSET, optimize=False, verbose=False,
        dynamic_shapes=({1: tokens},), custom_translation_table=translation(),
    )  # fmt: skip
    model = program.model
    transposed_weights(model)
    quantize(model, precision, 32, "native")
    onnxruntime.lower(model)
    path = save(model, folder / "layer.onnx", "layer.weights")
    return ort.InferenceSession(str(path), session_options(threads), providers=["CPUExecutionProvider"])


def milliseconds(session: ort.InferenceSession, tokens: int, width: int, seconds: float) -> float:
    """The least of runs over other rows each time, which choose other experts, as tokens do: what others do on the
    machine counts least."""
    random, taken = np.random.default_rng(0), []
    end, name = time.monotonic() + seconds, session.get_inputs()[0].name
    while len(taken) < 5 or time.monotonic() < end:
        feed = {name: random.standard_normal((1, tokens, width), np.float32)}
        start = time.perf_counter()
        session.run(None, feed)
        taken.append(time.perf_counter() - start)
    return 1000 * min(taken)


def measure(options: argparse.Namespace, experts: int, precision: str) -> str:
    """One line of the table. Raises AssertionError where the two ways do not give the same."""
    chosen, width = min(options.chosen, experts // 4), options.width
    block, cells, results = make_layer(experts, chosen, width, options.inner), [], []
    for module in (block, EveryRow(block)):
        with tempfile.TemporaryDirectory() as folder:
            layer = Followed(module, width).eval()
            torch.nn.init.constant_(layer.head.weight, 0.1)
            session = open_session(layer, width, precision, Path(folder), options.threads)
            rows = np.random.default_rng(1).standard_normal((1, 9, width), np.float32)
            results.append(session.run(None, {session.get_inputs()[0].name: rows})[0])
            cells.append([milliseconds(session, window, width, options.seconds) for window in WINDOWS])
    assert np.allclose(*results, rtol=0, atol=1e-3 * np.abs(results[0]).max()), "the two ways differ"
    pairs = [f"{own:.2f} / {every:.2f}" for own, every in zip(*cells, strict=True)]
    return " | ".join([str(experts), str(chosen), precision, *pairs])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--experts", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--chosen", type=int, default=8, help="a token's experts; a quarter of all at most")
    parser.add_argument("--precision", nargs="+", default=["float32", "int8", "int4"])
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--inner", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="of every cell")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of torch's exporter, on every export
    logging.disable(logging.WARNING)
    print("experts | chosen | precision | " + " | ".join(f"{n} rows: chosen / every, ms" for n in WINDOWS))
    for experts in options.experts:
        for precision in options.precision:
            print(measure(options, experts, precision), flush=True)


if __name__ == "__main__":
    main()
