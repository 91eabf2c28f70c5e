"""Drafters that pair features with tokens, behind pictures: rows and positions that they read, and inputs of runs."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, Qwen2_5_VLTextConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLRotaryEmbedding
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding

from speccompile.bundle.media import MEDIA, MEDIA_BEHIND, MEDIA_NEXT, MEDIA_OFFSETS, MEDIA_ROWS
from speccompile.compiler.build.pictured_drafts import POSITIONS, ROWS, PicturedPrompt, _blind, _other_text
from speccompile.compiler.prove.drafts import Case, DrafterInputs, PicturedText
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft import Accepted
from speccompile.compiler.step.draft.layers import Rotary
from speccompile.compiler.step.draft.pictures import PicturedPath
from speccompile.compiler.step.media_rows import MediaRows
from speccompile.drafters.find import read_head
from speccompile.drafters.mtp.drafter import check_axes
from speccompile.drafters.p_eagle.drafter import PEagleReader
from speccompile.drafters.p_eagle.reference import teachers
from speccompile.drafters.weights import load_head
from speccompile.errors import CheckpointError, UnsupportedModelError
from speccompile.machine.formats.image_settings import rotary_axes
from speccompile.plan.head import HeadRequest, HeadTarget
from speccompile.plan.layers import LayerShape
from speccompile.plan.recipe_source import RecipeSource
from speccompile.runtime.rounds.media_inputs import MediaInputs
from tests.heads import WIDTH
from tests.heads.eagle3 import eagle3
from tests.heads.p_eagle import p_eagle
from tests.light.test_heads_eagle3 import plan

PLACES = np.array([0, 1, 2, 3, 0, 0, 4, 5])
"""Two pictures of three and two rows in a prompt of eight tokens."""

__all__ = ["plan"]  # a fixture


def shown(places: np.ndarray = PLACES, first: int = 0) -> SimpleNamespace:
    """Return pictures whose row k holds the number `first` + k."""

    def rows_between(start: int, stop: int):
        found = places[start:stop]
        return found, (np.repeat(first + found[found > 0, None], 4, 1).astype(np.float32) if found.any() else None)

    return SimpleNamespace(
        has_rows=lambda part: bool(places[part.start : part.stop].any()), rows_between=rows_between, offset_behind=-3,
        offsets_between=lambda start, stop: np.arange(start, stop) * np.ones((3, 1)),
    )  # fmt: skip


class Views:
    """Host buffers by name and shape."""

    def __init__(self) -> None:
        self.arrays: dict[tuple[str, tuple[int, ...]], np.ndarray] = {}

    def host_view(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        return self.arrays.setdefault((name, tuple(shape)), np.full(shape, 99.0))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_a_run_is_given_the_row_after_each_of_its_tokens(size):
    tensors = [(MEDIA, ("media", 4)), *((name, ()) for name in (MEDIA_ROWS, MEDIA_NEXT, MEDIA_OFFSETS, MEDIA_BEHIND))]
    graph = SimpleNamespace(inputs=[SimpleNamespace(name=name, shape=shape) for name, shape in tensors])
    views, inputs = Views(), None
    inputs = MediaInputs(views, [graph], 2, 8)
    for start in range(0, 8, size):
        part = range(start, min(start + size, 8))
        parts = {1: (shown(), part)}
        count = inputs.count(parts.values())
        inputs.write(size, range(2), parts, count)
        numbers = {name: views.host_view(name, (2, size))[1].astype(int) for name in (MEDIA_ROWS, MEDIA_NEXT)}
        rows = views.host_view(MEDIA, (count, 4))[:, 0]
        for name, ahead in ((MEDIA_ROWS, 0), (MEDIA_NEXT, 1)):
            found = [int(rows[number - 1]) if number else 0 for number in numbers[name][: len(part)]]
            assert found == [*PLACES, 0][part.start + ahead : part.stop + ahead]
        assert not views.host_view(MEDIA_NEXT, (2, size))[0].any()
        assert views.host_view(MEDIA_BEHIND, (2,)).tolist() == [0, -3]


def test_slots_of_a_run_have_rows_of_their_own():
    names = ((MEDIA, ("media", 4)), (MEDIA_ROWS, ()), (MEDIA_NEXT, ()))
    graph = SimpleNamespace(inputs=[SimpleNamespace(name=name, shape=shape) for name, shape in names])
    views, whole = Views(), range(8)
    inputs, places = MediaInputs(views, [graph], 3, 8), (PLACES, np.roll(PLACES, 2), PLACES[::-1])
    parts = {slot: (shown(each, 100 * slot), whole) for slot, each in enumerate(places)}
    count = inputs.count(parts.values())
    inputs.write(8, range(3), parts, count)
    rows, numbers = views.host_view(MEDIA, (count, 4))[:, 0], views.host_view(MEDIA_ROWS, (3, 8)).astype(int)
    for slot, each in enumerate(places):
        found = [int(rows[number - 1]) if number else 0 for number in numbers[slot]]
        assert found == [100 * slot + place if place else 0 for place in each]


def test_rows_stand_in_place_of_next_tokens():
    table, media = torch.randn(9, 4), torch.randn(3, 8)
    given = Accepted(*[torch.zeros(2, 4).long()] * 2, torch.zeros(2).long(), torch.arange(3))
    given = given._replace(media=media, media_next=torch.tensor([[0, 2, 3, 0], [0, 0, 0, 1]]))
    embed, tokens = torch.nn.Embedding.from_pretrained(table), torch.tensor([[5, 900, 900], [1, 2, 3]])
    found = PicturedPath(MediaRows(8, stacked=1), given).merged(embed, tokens)
    expected = torch.stack([torch.stack([table[5], media[1, :4], media[2, :4]]), table[1:4]])
    assert torch.equal(found, expected)
    assert torch.equal(PicturedPath(None, given).merged(embed, tokens[1:]), table[1:4][None])


@pytest.mark.parametrize("interleaved", [False, True])
def test_positions_on_three_axes_are_those_of_transformers(interleaved):
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2], "mrope_interleaved": interleaved}
    layers = LayerShape(64, 96, 4, 2, 16, 1e-6, "silu", rope, 256, (0,))
    config = Qwen2_5_VLTextConfig(hidden_size=64, num_attention_heads=4, head_dim=16, rope_parameters=rope)
    whole = (Qwen3VLTextRotaryEmbedding if interleaved else Qwen2_5_VLRotaryEmbedding)(config)
    positions, offsets = torch.arange(5, 11)[None], torch.randint(-4, 9, (1, 3, 6))
    expected = whole(torch.zeros(1), (positions[:, None] + offsets).transpose(0, 1))
    for found, wanted in zip(Rotary(layers, 64)(positions, offsets), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)
    plain = Rotary(layers, 64)(positions)
    same = Rotary(layers, 64)(positions, torch.zeros_like(offsets))
    assert all(torch.allclose(one, other) for one, other in zip(plain, same, strict=True))


def test_frequencies_of_the_axes_follow_each_other_or_take_turns():
    assert rotary_axes([2, 3, 3], interleaved=False) == (0, 0, 1, 1, 1, 2, 2, 2)
    assert rotary_axes([4, 2, 2], interleaved=True) == (0, 1, 2, 0, 1, 2, 0, 0)
    assert rotary_axes((), interleaved=False) == ()


def test_a_head_says_its_axes(plan, tmp_path):
    target = LlamaConfig(hidden_size=32, num_hidden_layers=8, vocab_size=8)
    scaling = {"type": "mrope", "mrope_section": [2, 1, 1]}
    eagle3(tmp_path / "head", target, rope_scaling=scaling)
    head = plan().drafter.head
    assert head.layers.axes == (0, 0, 1, 2)
    assert head.layers.plain_rope == {"rope_type": "default", "rope_theta": 10000.0}
    for wrong in ([2, 1], [2, 2, 1], [2.0, 1, 1], "2, 1, 1"):
        eagle3(tmp_path / "head", target, rope_scaling=scaling | {"mrope_section": wrong})
        with pytest.raises(CheckpointError, match=r"rope_scaling\.mrope_section: received .*three numbers that add up"):
            plan()


def test_mtp_layers_without_positions_on_three_axes_are_refused():
    turned = torch.nn.Linear(1, 1)
    turned.mrope_section = [2, 1, 1]
    check_axes([torch.nn.Sequential(turned)])
    with pytest.raises(UnsupportedModelError, match=r"MTP layers of Linear: received target\.images with positions on"):
        check_axes([torch.nn.Sequential(turned), torch.nn.Linear(1, 1)])


@torch.no_grad()
@pytest.mark.parametrize("axes", [(), (2, 1, 1)])
def test_mask_rows_of_p_eagle_are_those_of_its_formula(tmp_path, axes):
    """Compare nine tokens, of which two and three stand for rows of pictures; two masks behind them."""
    rope = {"rope_scaling": {"type": "mrope", "mrope_section": list(axes)}} if axes else {}
    folder = p_eagle(tmp_path, LlamaConfig(vocab_size=96, hidden_size=WIDTH, num_hidden_layers=2), "vllm", **rope)
    target = HeadTarget("some/target", 96, WIDTH, 2)
    head = read_head(folder, HeadRequest("p_eagle", target, RecipeSource(tmp_path / "recipe.yaml"), (), {}))
    reader = load_head(PEagleReader(head, CacheShape(1, 32, 24), None, 2), head)
    reader.fold()
    reader.media = MediaRows(WIDTH, axes=head.layers.axes)
    torch.manual_seed(0)
    is_row = torch.tensor([0, 1, 1, 0, 0, 1, 1, 1, 0, 0]).bool()
    known, rows, features = torch.randint(0, 96, (10,)), 5 * torch.randn(5, WIDTH), torch.randn(1, 9, 3 * WIDTH)
    offsets, numbers = torch.randint(-3, 3, (3, 9)), torch.where(is_row, is_row.cumsum(0), 0)
    given = Accepted(
        known[None], torch.tensor([9]), torch.tensor([0]), torch.arange(9), features, media=rows,
        media_next=numbers[None, 1:], media_offsets=offsets[None], media_behind=torch.tensor([-2]),
    )  # fmt: skip
    states = [torch.zeros(each.shape) for each in reader.states()]
    found = reader.begin(given, states).depths[0]
    positions = torch.cat([torch.arange(9) + offsets, (torch.arange(9, 14) - 2).expand(3, -1)], 1).numpy()
    whole = np.zeros((9, WIDTH), np.float32)
    whole[is_row[:9]] = rows.numpy()
    text = PicturedText(whole, is_row[:9].numpy(), positions if axes else None, lambda *_: None)
    fed = DrafterInputs(known.tolist(), features[0].numpy(), known[1:].tolist(), pictures=text)
    (teacher,) = teachers(SimpleNamespace(head=head))
    np.testing.assert_allclose(found.numpy(), teacher(fed, [0, 0]), rtol=0, atol=1e-4)
    blind = reader.begin(given._replace(media_next=0 * given.media_next), states).depths[0]
    assert float((blind - found).abs().max()) > 0.1
    if axes:
        straight = reader.begin(given._replace(media_offsets=0 * given.media_offsets), states).depths[0]
        assert float((straight - found).abs().max()) > 0.01


def test_other_prompts_of_the_proof_keep_the_pictures_and_little_text():
    family = SimpleNamespace(images=SimpleNamespace(token_id=7))
    prompt = PicturedPrompt(torch.nn.Identity(), family, [1, 2, 3, 7, 7, 4, 5, 7, 6], [])
    found = {tuple(_other_text(prompt, seed, 10).ids) for seed in range(1, 40)}
    assert len(found) > 30
    for ids in found:
        assert [token == 7 for token in ids] == [False, True, True, False, True, False]
        assert max(ids) < 10


def test_a_blind_reference_lacks_the_rows_or_the_positions():
    pictures = PicturedText(np.ones((3, 2), np.float32), np.array([False, True, True]), np.full((3, 5), 9), print)
    case = Case("here", 0, DrafterInputs([1, 2], pictures=pictures), None, {})
    rows, straight = (_blind(case, name).fed.pictures for name in (ROWS, POSITIONS))
    assert (rows.is_row.any(), straight.is_row.any()) == (False, True)
    assert straight.positions.tolist() == 3 * [[0, 1, 2, 3, 4]]
    assert rows.positions is pictures.positions
