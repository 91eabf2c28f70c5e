"""GPTQ checkpoints whose `dynamic` gives some layers other bits or groups than the rest."""

import re

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from speccompile.cli.plan import command
from speccompile.errors import UnsupportedModelError
from tests.light.quantized_checkpoints import CONFIGS, LAYER, LIBRARIES, gptq, layer, write
from tests.light.test_quantized import planned

OTHER = "model.layers.0.mlp.gate_proj"
DYNAMIC = {"dynamic": {r"+:.*gate_proj": {"bits": 8}}}


def mixed(name: str) -> dict[str, torch.Tensor]:
    """Return a layer of 4 bits, and one that a library has packed as `name`."""
    return layer("gptq") | {f"{OTHER}{key.removeprefix(LAYER)}": tensor for key, tensor in layer(name).items()}


@pytest.mark.parametrize("name", ["gptq-8", "gptq-channel"])
def test_layers_of_other_widths_are_what_their_library_makes_of_them(tmp_path, name):
    found = write(tmp_path, mixed(name), CONFIGS["gptq"] | DYNAMIC)
    for key, variant in ((LAYER, "gptq"), (OTHER, name)):
        expected = LIBRARIES[f"{variant}:unpacked"]
        assert torch.equal(torch.from_numpy(found.weights[f"{key}.weight"].read_all()).to(expected.dtype), expected)


@pytest.mark.parametrize(
    ("name", "told", "precision"),
    [
        (
            "gptq-8",
            f"but 1 of 2 layers in 8 bits, groups of 32 ({OTHER}); int4 rounds 8 bits again, by up to 1/30",
            "float32",
        ),
        ("gptq-channel", f"but 1 of 2 layers in 4 bits, groups of 64 ({OTHER})", "int4"),
        ("gptq", None, "int4"),
    ],
)
def test_the_plan_says_which_layers_have_other_widths(tmp_path, make_checkpoint, name, told, precision):
    make_checkpoint(tmp_path / "target")
    save_file({key: each.clone() for key, each in mixed(name).items()}, tmp_path / "target/model.safetensors")
    (engine,) = planned(tmp_path, gptq() | DYNAMIC).engines
    assert engine.precision.target == precision
    output = CliRunner().invoke(command, [str(tmp_path)]).output
    assert ("but 1 of 2" in output) == (told is not None)
    assert re.search(rf"quantized +gptq, 4 bits, groups of 32{re.escape(f', {told}') if told else ' '}", output)


def test_layers_in_three_bits_are_named(tmp_path, make_checkpoint):
    make_checkpoint(tmp_path / "target")
    tensors = layer("gptq")
    tensors[f"{LAYER}.qzeros"] = torch.zeros(2, 3, dtype=torch.int32)  # 32 outputs
    save_file(tensors, tmp_path / "target/model.safetensors")
    with pytest.raises(UnsupportedModelError, match=f"received the layer '{LAYER}' in 3 bits, expected 4 or 8 bits"):
        planned(tmp_path, gptq() | DYNAMIC)
