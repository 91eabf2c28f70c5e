"""Models whose weights stay in their checkpoint: the same numbers as transformers' own loading, and no memory."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from speccompile.compiler.lower.export import export_verify
from speccompile.compiler.lower.files import GRAPHS, neutral_file, read_neutral, write_neutral
from speccompile.compiler.models.load import load_model
from speccompile.compiler.models.probe import probe
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.verify import Verify
from speccompile.compiler.weights import graph as weights_graph
from speccompile.compiler.weights.session import open_linked
from speccompile.compiler.weights.tensor import WeightTensor
from tests import zoo

pytestmark = pytest.mark.builds(3)

TOKENS = torch.tensor([[5, 90, 7, 7, 31, 200, 12]])


def save(name: str, folder: Path, dtype: torch.dtype, **settings: int) -> Path:
    zoo.model(name, **settings).to(dtype).save_pretrained(folder, max_shard_size="100KB")
    return folder


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["llama", "llama_tied", "gpt2", "gemma2", "mixtral"])
def test_logits_are_those_of_transformers_own_float32_model(tmp_path, name, dtype):
    folder = save(name, tmp_path / "model", dtype)
    ours = load_model(folder, 64)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    assert all(isinstance(parameter, WeightTensor) for parameter in ours.parameters())
    with torch.no_grad():
        got, expected = (model(input_ids=TOKENS, use_cache=False).logits for model in (ours, theirs))
    assert type(got) is torch.Tensor
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.sweep("two traces each", but=["llama_tied-torch.bfloat16"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["llama_tied", "gpt2", "mixtral"])
def test_a_graph_names_the_checkpoint_and_computes_as_with_weights_of_its_own(tmp_path, name, dtype):
    folder = save(name, tmp_path / "model", dtype)
    paths = []
    for place in ("linked", "own"):
        exported = export_verify(Verify(probe(load_model(folder, 32), CacheShape(1, 48, 32))))
        paths.append(
            write_neutral(exported.model, exported.graph, tmp_path / place, "weights", in_place=place == "linked")
        )
    links = [path for path in paths[0].parent.iterdir() if path.is_symlink()]
    assert {path.resolve().parent for path in links} == {folder}
    assert len(links) > 1
    feeds = {}
    for tensor in exported.graph.inputs:
        shape = tensor.concrete_shape({"window": 7, "logit_rows": 7})
        feeds[tensor.name] = np.zeros(shape, tensor.dtype)
    feeds |= {"window": TOKENS.numpy(), "n_given": np.array([7]), "n_total": np.array([7])}
    feeds |= {"logit_rows": np.arange(7)}
    outputs = [open_linked(path, 1).run(["logits"], feeds)[0] for path in paths]
    np.testing.assert_allclose(*outputs, rtol=1e-5, atol=1e-5)


def test_a_graph_is_the_same_after_its_way_over_the_disk(tmp_path):
    folder = save("mixtral", tmp_path / "model", torch.bfloat16, num_hidden_layers=1)
    exported = export_verify(Verify(probe(load_model(folder, 32), CacheShape(1, 48, 32))))
    path = write_neutral(exported.model, exported.graph, tmp_path, "weights", in_place=True)
    again = weights_graph.load(path)
    weights_graph.store(again, path.parent)
    ir.save(again, path.with_name("again.onnx"))
    first, second = (weights_graph.load(each).graph.initializers for each in (path, path.with_name("again.onnx")))
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(value.const_value.numpy(), second[name].const_value.numpy(), err_msg=name)


@pytest.mark.sweep("two traces; test_reproducible.py builds a whole bundle elsewhere in the first tier")
def test_equal_checkpoints_in_other_places_give_equal_graphs(tmp_path):
    found = []
    for place in ("one", "other"):
        folder = save("llama", tmp_path / place / "model", torch.bfloat16)
        exported = export_verify(Verify(probe(load_model(folder, 32), CacheShape(1, 48, 32))))
        found.append(write_neutral(exported.model, exported.graph, tmp_path / place, "weights", in_place=True))
    one, other = found
    assert one.name == Path(neutral_file(exported.graph)).name
    assert one.parent.name == GRAPHS
    assert one.read_bytes() == other.read_bytes()
    weights = [value.const_value.numpy() for value in read_neutral(one).graph.initializers.values() if value.shape]
    assert sum(weight.size for weight in weights) > 50_000


MEMORY = """
import sys, threading, time, torch
from pathlib import Path
from speccompile.compiler.models.load import load_model
from speccompile.compiler.models.probe import probe
from speccompile.compiler.lower.export import export_verify
from speccompile.compiler.lower.files import write_neutral, write_quantized
from speccompile.compiler.lower.lowering_targets import WeightFormat
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.verify import Verify
from speccompile.machine.system import process_sizes

peak = 0

def watch():
    global peak
    while True:
        peak = max(peak, process_sizes()["RssAnon"])
        time.sleep(0.002)

threading.Thread(target=watch, daemon=True).start()
folder, work = Path(sys.argv[1]), Path(sys.argv[2])
for name in ("small", "large"):  # the first one loads libraries, and what they hold
    peak = 0
    decoder = probe(load_model(folder / name, 64), CacheShape(1, 96, 64))
    exported = export_verify(Verify(decoder))
    write_neutral(exported.model, exported.graph, work / name, "weights", in_place=True)
    write_quantized(exported.graph, "target", WeightFormat("int4", 32, "native", "float32"), work / name)
    del decoder, exported
    print(peak)
"""


@pytest.mark.sweep("processes of their own")
def test_memory_does_not_grow_with_the_model(tmp_path):
    """50 million parameters are 200 MB in float32: at no time does the process hold half of that besides."""
    shape = {"vocab_size": 8192, "num_attention_heads": 8, "num_key_value_heads": 8, "max_position_embeddings": 128}
    sizes = {"small": (64, 1), "large": (1024, 4)}
    for name, (width, layers) in sizes.items():
        config = LlamaConfig(hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers, **shape)
        LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path / name)
    run = subprocess.run(
        [sys.executable, "-c", MEMORY, tmp_path, tmp_path / "work"], capture_output=True, text=True, check=True
    )
    small, large = map(int, run.stdout.splitlines())
    parameters = sum(file.stat().st_size for file in (tmp_path / "large").glob("*.safetensors")) // 2
    assert parameters > 45_000_000
    assert large - small < 2 * parameters  # half of it in float32
