"""One half of a layer skipped alone, in every architecture, against transformers with that half taken out by hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from speccompile.compiler.build import build
from speccompile.compiler.lower.export import export_draft
from speccompile.compiler.models.probe import probe
from speccompile.compiler.models.sublayers import check_sublayers
from speccompile.compiler.prove.schedule import Schedule
from speccompile.compiler.step.decoder import CacheShape, Decoder
from speccompile.compiler.step.draft.fixed import FixedDrafter
from speccompile.compiler.step.draft.target_layers import LayersReader
from speccompile.compiler.step.frequencies import freeze_positions
from speccompile.compiler.step.layers import find_layers
from speccompile.drafters.layer_skip.drafter import skip_layers
from speccompile.errors import UnsupportedModelError
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from speccompile.tree import chain
from tests import zoo
from tests.compile.drafter_graphs import BATCH, Driven
from tests.compile.drafter_graphs import decoder as deep_decoder
from tests.compile.test_taps import WITHOUT_LAYERS, assert_near, run_windows, tokens
from tests.compile.tiny_bundles import save
from tests.suite.selection import sweep_but

pytestmark = pytest.mark.builds(1)

ATTENTION = ("self_attn", "attn", "attention")
MLP = ("mlp", "block_sparse_moe", "feed_forward", "fc2")
"""What transformers' decoder layers call them; `fc2` is the last thing in an MLP that has no module of its own."""
WITHOUT_HALVES = (
    "bamba", "falcon_h1", "falcon_mamba", "gemma3n_text", "gemma4_text", "gemma4_text_moe", "granitemoehybrid", "jamba",
    "lfm2", "llama4_text", "llama4_chunked", "mamba", "mamba2", "minimax", "qwen3_5_text",
)  # fmt: skip
"""Layers that carry a state, that scale their sums, have a third part, or give an MLP's output another shape."""
OTHER_NAMES = ("jetmoe",)
"""Halves that transformers calls otherwise than all others."""
EVERY = [name for name in zoo.names("works") if name not in (*WITHOUT_HALVES, *WITHOUT_LAYERS, *OTHER_NAMES)]
DRAFTS, NEW_TOKENS = 3, 24


@contextmanager
def without(model: PreTrainedModel, names: tuple[str, ...], layer: int) -> Iterator[None]:
    """Yield transformers' own model, one of the parts with these names giving zeros."""
    part: nn.Module = next(filter(None, (getattr(find_layers(model)[layer], name, None) for name in names)))

    def nothing(module: nn.Module, args: object, output: Tensor | tuple[Tensor, ...]) -> object:
        return (torch.zeros_like(output[0]), *output[1:]) if isinstance(output, tuple) else torch.zeros_like(output)

    hook = part.register_forward_hook(nothing)
    yield
    hook.remove()


def decoder_of(name: str) -> Decoder:
    model = zoo.model(name).requires_grad_(False)
    freeze_positions(model, 32)
    return probe(model, CacheShape(1, 64, 32))


@pytest.mark.parametrize("name", sweep_but(zoo.FIRST, WITHOUT_HALVES, zoo.REASON))
def test_layers_without_halves_are_refused(name: str) -> None:
    decoder = decoder_of(name)
    every = range(decoder.model.config.num_hidden_layers)
    with pytest.raises(UnsupportedModelError, match=r"^layer \d+ of \w+ has no halves of which one can be"):
        check_sublayers(decoder.model, every)


@torch.no_grad()
@pytest.mark.parametrize("name", sweep_but(zoo.FIRST, EVERY, zoo.REASON))
def test_a_half_adds_nothing_in_every_architecture(name: str) -> None:
    decoder, text, fresh = decoder_of(name), tokens(), zoo.model(name)
    freeze_positions(fresh, 32)
    every = range(decoder.model.config.num_hidden_layers)
    for names, kept in ((ATTENTION, (every[1:], every)), (MLP, (every, every[1:]))):
        skipped = skip_layers(decoder, *kept)
        assert len(skipped.cache_shapes()) == 2 * len(kept[0])
        got, _ = run_windows(skipped, text)
        with without(fresh, names, 0):
            expected = fresh(input_ids=text, use_cache=False).logits
        assert_near(got, expected)
        assert (expected - fresh(input_ids=text, use_cache=False).logits).abs().max() > 1e-3 * expected.abs().max()


def save_target(folder: Path) -> PreTrainedModel:
    """Return a model of four layers, with windows shorter than the prompts, whose later layers say less."""
    model = zoo.model("gemma2")
    with torch.no_grad():
        for layer in model.model.layers[1:]:
            for parameter in layer.parameters():
                parameter *= 0.6 if parameter.dim() > 1 else 1.0
    save(model, folder / "target", tokenizer=False)
    return model.eval()


def prompts() -> list[list[int]]:
    random = torch.Generator().manual_seed(5)
    return [torch.randint(3, zoo.VOCABULARY, (length,), generator=random).tolist() for length in (50, 7)]


@pytest.mark.sweep("a bundle each, with its proof; test_family_layer_skip.py builds halves in the first tier")
@pytest.mark.parametrize(
    ("drafter", "graphs"),
    [
        ("layers: {attention: [0, 2, 3], mlp: [0, 1]}", "fused"),
        ("layers: {attention: [], mlp: [1, 3]}", "separate"),
        ("layers: {attention: [0, 3]}, tree: {depth: 2, top_k: 2, nodes: 4}", "separate"),
        ("layers: [0, 3], tree: [2, 1], sample: true", "separate"),
    ],
)
def test_halves_draft_what_transformers_says_and_change_no_token(tmp_path: Path, drafter: str, graphs: str) -> None:
    """Prove drafts by the reference, which knows keys and values of transformers alone."""
    model = save_target(tmp_path)
    shape = "" if "tree" in drafter else f", tokens: {DRAFTS}"
    lines = (
        "name: tiny", "target: {model: target}", f"drafter: {{kind: layer_skip, {drafter}{shape}}}",
        "cache: {max_length: 112, prefill_chunk: 16, batch_size: 2}", f"graphs: {graphs}",
        f"decoding: {'sampling' if 'sample' in drafter else 'greedy'}",
    )  # fmt: skip
    (tmp_path / "recipe.yaml").write_text("\n".join(lines))
    build(make_plan(load_recipe(tmp_path)), tmp_path / "bundle")
    bundle = Bundle.open(tmp_path / "bundle", threads=1)
    for generation, prompt in zip(
        bundle.generate_batch(prompts(), max_new_tokens=NEW_TOKENS, adaptive=False), prompts(), strict=True
    ):
        ids = torch.tensor([prompt])
        greedy = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS, eos_token_id=None
        )
        assert generation.token_ids == greedy[0, len(prompt) :].tolist()
        assert generation.rounds < NEW_TOKENS - 1  # something was accepted


@torch.no_grad()
@pytest.mark.sweep("a trace each", but=["mlp"])
@pytest.mark.parametrize(
    ("attention", "mlp"),
    [([0, 3], [0, 3]), ([0, 3], [3]), ([3], [0, 3])],
    ids=["layers", "half of them by attention", "half of them by mlp"],
)
def test_nothing_is_left_of_what_is_skipped(attention: list[int], mlp: list[int]) -> None:
    """Find neither weights nor caches nor attention, of layers or halves."""
    decoder = skip_layers(deep_decoder("gemma2"), attention, mlp)
    drafts = Driven(export_draft(FixedDrafter(LayersReader(decoder), chain(2)), BATCH), Schedule([], []), [])
    for part, layers in (("self_attn", attention), ("mlp", mlp)):
        named = {layer for layer in range(4) if any(f"layers.{layer}.{part}." in name for name in drafts.weights)}
        assert named == set(layers)
    assert drafts.n_nodes("Attend") == 2 * len(attention)
    assert drafts.n_nodes("Commit") == 0
    states = [tensor.name for tensor in drafts.graph.inputs if tensor.role == "state"]
    assert states == [f"target.{kind}.{layer}" for layer in attention for kind in ("key", "value")]


def test_a_layer_skipping_drafter_has_the_very_weights_of_the_target() -> None:
    target = deep_decoder("gemma2")
    skipping = skip_layers(target, [0, 3], [0])
    assert [id(p) for p in skipping.parameters()] == [id(p) for p in target.parameters()]


class Joined(nn.Module):
    """A layer whose parts are wrapped in one."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.inner, self.attention_type = layer, "full_attention"

    def forward(self, *args: object, **kwargs: object) -> Tensor:
        return self.inner(*args, **kwargs)


def test_halves_that_are_not_apart_are_refused() -> None:
    target = deep_decoder("llama")
    layers = find_layers(target.model)
    layers[1] = Joined(layers[1])
    assert skip_layers(target, [0]).skipped == {1}
    message = "^layer 1 of LlamaForCausalLM has no halves of which one can be skipped alone: it does not hold one part"
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        skip_layers(target, [0, 1], [0])
    assert caught.value.hint == "name whole layers, for example `layers: [0, 2]`"


def test_halves_that_are_not_all_of_a_layer_are_refused() -> None:
    """Refuse a norm behind the sum, which acts where nothing is added."""
    target = deep_decoder("llama")
    layer = find_layers(target.model)[1]
    layer.register_forward_hook(lambda _, args, output: output * 1.5)
    with pytest.raises(UnsupportedModelError, match=r"alone: without both it does not hand its input on$"):
        skip_layers(target, [0, 1], [0])
    skip_layers(target, [0, 1], [1])  # layer 0 has halves
