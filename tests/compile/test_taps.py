"""Layers that are skipped or tapped: by hooks on the model, in every architecture, against transformers' own words."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from speccompile.compiler.models.probe import probe
from speccompile.compiler.step.decoder import CacheShape, Decoder
from speccompile.compiler.step.frequencies import freeze_positions
from speccompile.compiler.step.layers import find_layers, find_norm, skipping
from speccompile.compiler.step.taps import Taps
from speccompile.drafters.layer_skip.drafter import skip_layers
from speccompile.errors import UnsupportedModelError
from tests import zoo
from tests.suite.selection import sweep_but

WIDTHS = (7, 1, 5)
WITHOUT_LAYERS = ("bart", "hrm_text")
"""The config counts an encoder's; layers are two stacks, each of which is run several times."""

EVERY = [name for name in zoo.names("works") if name not in WITHOUT_LAYERS]
TAPPED = ["llama", "recurrent_gemma", "gemma2", "gpt2", "opt", "cohere", "glm4", "mixtral", "biogpt"]


def tokens() -> Tensor:
    return torch.randint(3, zoo.VOCABULARY, (1, sum(WIDTHS)), generator=torch.Generator().manual_seed(0))


def run_windows(decoder: Decoder, text: Tensor, taps: Taps | None = None) -> tuple[Tensor, Tensor | None]:
    """Return logits and taps of every token, window by window over the committed caches."""
    caches, logits, features, start = [torch.zeros(shape) for shape in decoder.cache_shapes().values()], [], [], 0
    for width in WIDTHS:
        current = decoder.begin(caches, torch.tensor([start]))
        positions = torch.arange(start, start + width)[None]
        current.set_positions(positions, positions, torch.ones(1, width, width, dtype=torch.bool).tril())
        logits.append(decoder.run(current, text[:, start : start + width], taps=taps))
        features += [taps.features()] if taps else []
        caches = current.commit(current.rows(), torch.tensor([width]))
        start += width
    return torch.cat(logits, 1), torch.cat(features, 1) if taps else None


def decoder_of(name: str) -> Decoder:
    model = zoo.model(name).requires_grad_(False)
    freeze_positions(model, 32)
    return probe(model, CacheShape(1, 64, 32))


def assert_near(got: Tensor, expected: Tensor) -> None:
    assert got.shape == expected.shape
    assert (got - expected).abs().max() <= 3e-5 * expected.abs().max()


@pytest.mark.parametrize("name", WITHOUT_LAYERS)
def test_layers_that_are_no_list_of_all_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedModelError, match=r"^\w+ has no list of its \d+ layers, so that"):
        find_layers(zoo.model(name))


@torch.no_grad()
@pytest.mark.parametrize("name", sweep_but(zoo.FIRST, EVERY, zoo.REASON))
def test_skipped_layers_hand_on_their_input_in_every_architecture(name: str) -> None:
    decoder, text = decoder_of(name), tokens()
    last = decoder.model.config.num_hidden_layers - 1
    got, _ = run_windows(skip_layers(decoder, [last]), text)
    whole, _ = run_windows(decoder, text)
    decoder.model.set_attn_implementation("eager")
    with skipping(decoder.model, range(last)):
        assert_near(got, decoder.model(input_ids=text, use_cache=False).logits)
    assert_near(whole, decoder.model(input_ids=text, use_cache=False).logits)  # nothing is left behind
    assert (got - whole).abs().max() > 0.1 * whole.abs().max()


@torch.no_grad()
def test_a_model_of_the_kept_layers_alone_says_the_same() -> None:
    """Compare with transformers' own model, without our hooks and without the other layers."""
    decoder, text = decoder_of("llama"), tokens()
    got, _ = run_windows(skip_layers(decoder, [1]), text)
    alone = zoo.model("llama")
    alone.model.layers = nn.ModuleList([alone.model.layers[1]])
    alone.config.num_hidden_layers = 1
    assert_near(got, alone(input_ids=text, use_cache=False).logits)


@torch.no_grad()
@pytest.mark.parametrize("name", sweep_but(zoo.FIRST, TAPPED, zoo.REASON))
def test_taps_are_the_hidden_states_of_transformers(name: str) -> None:
    decoder, text = decoder_of(name), tokens()
    n_layers = decoder.model.config.num_hidden_layers
    names = ["norm.output", *(f"layers.{n}.input" for n in range(n_layers)), "layers.0.output"]
    _, features = run_windows(decoder, text, Taps(decoder.model, names))
    assert features is not None
    assert features.dtype == torch.float32
    hidden = zoo.model(name)(input_ids=text, use_cache=False, output_hidden_states=True).hidden_states
    parts = features.chunk(len(names), 2)
    expected = [hidden[n_layers], *hidden[:n_layers], hidden[1]]
    for got, wanted in zip(parts, expected, strict=True):
        assert_near(got, wanted)


@torch.no_grad()
def test_the_last_layers_output_is_what_the_norm_reads() -> None:
    decoder, text = decoder_of("llama"), tokens()
    _, features = run_windows(decoder, text, Taps(decoder.model, ["layers.1.output", "norm.output"]))
    before, after = features.chunk(2, 2)
    assert_near(decoder.model.model.norm(before), after)


@pytest.mark.parametrize(
    ("tap", "message"),
    [
        (
            "layers.1",
            r"^received the tap 'layers.1' of LlamaForCausalLM, expected layers.<number>.input, layers.<number>",
        ),
        ("head.input", r"^received the tap 'head.input' of LlamaForCausalLM, expected .* or norm.output$"),
        ("layers.2.input", r"^received layer 2 of LlamaForCausalLM, expected one of its layers 0 to 1$"),
    ],
)
def test_a_tap_that_does_not_exist_is_refused(tap: str, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        Taps(zoo.model("llama"), ["norm.output", tap])


@pytest.mark.parametrize("layer", [-1, 2])
def test_a_layer_that_does_not_exist_is_refused(layer: int) -> None:
    message = rf"^received layer {layer} of LlamaForCausalLM, expected one of its layers 0 to 1$"
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        skip_layers(decoder_of("llama"), [0, layer])
    assert caught.value.hint == "name layers that the target has; they are counted from 0"


def test_a_model_without_a_list_of_layers_is_refused() -> None:
    model = zoo.model("llama")
    model.config = deepcopy(model.config)
    model.config.num_hidden_layers = 3
    with pytest.raises(UnsupportedModelError, match=r"^LlamaForCausalLM has no list of its 3 layers, so that"):
        find_layers(model)


def test_a_model_with_two_norms_is_refused() -> None:
    model = zoo.model("llama")
    model.model.other_norm = nn.LayerNorm(model.config.hidden_size)
    with pytest.raises(
        UnsupportedModelError, match=r"^LlamaForCausalLM has 2 norms beside its layers, expected one, wh"
    ):
        find_norm(model)
