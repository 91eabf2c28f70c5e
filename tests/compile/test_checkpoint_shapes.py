"""Every architecture of the zoo, as transformers saves it: a whole checkpoint is planned; one that lacks a layer, or
whose config says another vocabulary, is refused before the work.
"""

import json

import pytest
from safetensors.torch import load_file, save_file

from speccompile.compiler.checkpoints.facts import read_checkpoint
from speccompile.errors import CheckpointError
from tests import zoo
from tests.suite.selection import sweep_but


@pytest.mark.parametrize("name", sweep_but(zoo.FIRST, zoo.ROWS, zoo.REASON))
def test_shapes_are_compared_with_the_config(tmp_path, name):
    folder = tmp_path / "model"
    zoo.save(name, folder)
    _, facts = read_checkpoint(folder)
    weights = load_file(folder / "model.safetensors")
    # HRM's stacks have two, and are run several times; RoBERTa calls them otherwise; Bart's config counts an encoder's.
    layers = {"hrm_text": 2, "roberta": None}.get(name, facts.layers)
    if layers:
        kept = {key: tensor for key, tensor in weights.items() if f".{layers - 1}." not in key}
        save_file(kept, folder / "model.safetensors")
        with pytest.raises(CheckpointError, match=f"received no tensor of layer {layers - 1}, expected layers 0 to"):
            read_checkpoint(folder)
        save_file(weights, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": facts.vocabulary_size + 64}))
    if name == "roberta":  # whose table is called otherwise
        return
    with pytest.raises(CheckpointError, match=rf"expected \[{facts.vocabulary_size + 64}, .*a row for each token"):
        read_checkpoint(folder)
