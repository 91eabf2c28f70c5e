"""Layers that attend to the keys and values of an earlier one: drafting with some of them, and reading inside them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.modules import drafter_context
from speccompile.compiler.models.probe import probe
from speccompile.compiler.models.sublayers import check_sublayers
from speccompile.compiler.prove.drafts import DrafterInputs
from speccompile.compiler.step.decoder import CacheShape, Decoder
from speccompile.compiler.step.draft import Accepted
from speccompile.compiler.step.taps import Taps
from speccompile.drafters.layer_skip import drafter as layer_skip
from speccompile.drafters.layer_skip import reference
from speccompile.errors import UnsupportedModelError
from speccompile.recipe import load_recipe, make_plan
from tests import zoo

NAMES = ("gemma3n_text", "gemma4_text")
DRAFTS, TOKENS, NEW = 3, 40, 6
"""Drafts of a round, in a text of so many tokens, of which the round has committed the last."""


def random_text(length: int) -> list[int]:
    return np.random.default_rng(6).integers(3, zoo.VOCABULARY, length).tolist()


def committed(decoder: Decoder, text: list[int]) -> dict[str, Tensor]:
    """Return the caches of the whole target behind a text, by name."""
    shapes, width = decoder.cache_shapes(), len(text)
    current = decoder.begin([torch.zeros(shape) for shape in shapes.values()], torch.tensor([0]))
    positions = torch.arange(width)[None]
    current.set_positions(positions, positions, torch.ones(1, width, width, dtype=torch.bool).tril())
    decoder.run(current, torch.tensor([text]))
    return dict(zip(shapes, current.commit(current.rows()), strict=True))


@torch.no_grad()
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("layers", "read"), [([0, 3], {0, 1}), ([2, 3], {0, 1}), ([0, 2], {0}), ([1], {1})])
def test_layers_draft_with_the_rows_of_layers_that_they_skip(
    tmp_path: Path, name: str, layers: list[int], read: set[int]
) -> None:
    """Layer 2 attends to the rows of layer 0, layer 3 to those of layer 1."""
    zoo.save(name, tmp_path / "target", tokenizer=False)
    (tmp_path / "recipe.yaml").write_text(
        f"name: tiny\ntarget: {{model: target}}\ncache: {{max_length: 64}}\n"
        f"drafter: {{kind: layer_skip, layers: {layers}, tokens: {DRAFTS}}}\n"
    )
    context = drafter_context(open_round(make_plan(load_recipe(tmp_path))).draft)
    drafter, (teacher,), text = layer_skip.make(context), reference.teachers(context), random_text(TOKENS)
    assert {each.name for each in drafter.target_caches()} == {
        f"target.{kind}.{layer}" for layer in read for kind in ("key", "value")
    }
    caches = committed(context.target(), text[:-1])
    path = torch.tensor([text[-1 - NEW :]])
    accepted = Accepted(path, torch.tensor([NEW]), torch.tensor([TOKENS - 1 - NEW]))
    drafted = drafter(accepted, [caches[each.name.removeprefix("target.")] for each in drafter.target_caches()])
    window = drafted.window[0].tolist()
    assert window[0] == text[-1]
    assert window[1:] == teacher(DrafterInputs(text), window[1:-1]).argmax(-1).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_halves_of_layers_with_more_than_two_parts_are_refused(name: str) -> None:
    model = zoo.model(name)
    with pytest.raises(UnsupportedModelError, match=rf"^layer 1 of {type(model).__name__} has no halves of which one"):
        check_sublayers(model, [1])


def taps_of(model: PreTrainedModel, name: str, text: Tensor) -> Tensor:
    decoder, taps = probe(model, CacheShape(1, 64, 48)), Taps(model, [name])
    current = decoder.begin(decoder.empty(1), torch.tensor([0]))
    positions = torch.arange(text.shape[1])[None]
    current.set_positions(positions, positions, torch.ones(1, text.shape[1], text.shape[1], dtype=torch.bool).tril())
    decoder.run(current, text, taps=taps)
    return taps.features()


@torch.no_grad()
@pytest.mark.parametrize("name", NAMES)
def test_what_the_final_norm_gives_can_be_read(name: str) -> None:
    """Find the norm as wide as the stream: another one belongs to the embedding for every layer."""
    text, model = torch.tensor([random_text(30)]), zoo.model(name)
    expected = model.model(input_ids=text, use_cache=False).last_hidden_state
    torch.testing.assert_close(taps_of(model, "norm.output", text), expected, rtol=0, atol=1e-4)


@torch.no_grad()
def test_streams_beside_each_other_cannot_be_read() -> None:
    text = torch.tensor([random_text(30)])
    model = zoo.model("gemma4_text")
    hidden = model(input_ids=text, use_cache=False, output_hidden_states=True).hidden_states
    torch.testing.assert_close(taps_of(model, "layers.1.output", text), hidden[2], rtol=0, atol=1e-4)
    with pytest.raises(UnsupportedModelError, match=r"'layers\.1\.output' of Gemma3nForCausalLM, where 4 streams go"):
        taps_of(zoo.model("gemma3n_text"), "layers.1.output", text)
