"""A target whose layers are spread over two processes says what it says as a whole."""

import pytest
import torch
from safetensors.torch import load_file

from speccompile.train.processes import _shardable_layers
from tests import zoo
from tests.train.launching import launch
from tests.train.spread_target import TOKENS


@pytest.mark.sweep("another pair of processes; that of test_processes.py shares weights in the first tier")
@pytest.mark.parametrize("row", ["llama", "qwen2"])
def test_layers_spread_over_processes_read_as_whole_ones(tmp_path, row):
    model = zoo.model(row)
    model.save_pretrained(tmp_path / "target")
    launch("tests.train.spread_target", str(tmp_path / "target"), str(tmp_path / "read.safetensors"))
    read = load_file(tmp_path / "read.safetensors")
    layers = [weight for name, weight in model.named_parameters() if ".layers." in name]
    assert len(read["parts"]) == len(layers)
    assert (read["parts"] == 0.5).all()
    with torch.no_grad():
        expected = model(TOKENS).logits
        beside = model(TOKENS + 1).logits
    torch.testing.assert_close(read["alone"], expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(read["again"], read["alone"], rtol=0, atol=0)
    torch.testing.assert_close(read["second"], beside, rtol=1e-5, atol=1e-5)
    assert read["features"].abs().sum() > 0


def test_a_target_without_a_list_of_layers_stays_whole():
    """HRM's layers lie in two stacks: none is tapped, and a drafter that reads tokens alone learns."""
    assert _shardable_layers(zoo.model("hrm_text")) == []
    assert len(_shardable_layers(zoo.model("llama"))) == zoo.config("llama").num_hidden_layers
