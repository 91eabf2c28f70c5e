"""Models that attend, place or branch in a way that the trace would get wrong: each is refused, with the reason."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import LlamaForCausalLM, PreTrainedModel
from transformers.masking_utils import create_sliding_window_causal_mask
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.models.mistral import modeling_mistral

from speccompile.compiler.lower.export import export_verify
from speccompile.compiler.models.probe import probe
from speccompile.compiler.step.decoder import CacheShape, Decoder
from speccompile.compiler.step.frequencies import freeze_positions
from speccompile.compiler.step.verify import Verify
from speccompile.errors import UnsupportedModelError
from tests import zoo

pytestmark = pytest.mark.builds(4)

LONGEST = 200


def llama(kind: type[LlamaForCausalLM] = LlamaForCausalLM) -> LlamaForCausalLM:
    """Return the zoo's llama, run by another class."""
    model = kind(zoo.config("llama")).eval().requires_grad_(False)
    model.load_state_dict(zoo.model("llama").state_dict())
    return model


def probed(model: PreTrainedModel) -> Decoder:
    return probe(model, CacheShape(1, LONGEST + 20, LONGEST))


def refusal(model: PreTrainedModel, match: str) -> UnsupportedModelError:
    with pytest.raises(UnsupportedModelError, match=f"^{type(model).__name__} cannot be compiled: {match}") as caught:
        probed(model)
    return caught.value


class IgnoresPositions(LlamaForCausalLM):
    def forward(self, position_ids: Tensor | None = None, **inputs: Any) -> CausalLMOutputWithPast:
        return super().forward(**inputs)


class SingleTokensApart(LlamaForCausalLM):
    def forward(self, input_ids: Tensor, **inputs: Any) -> CausalLMOutputWithPast:
        output = super().forward(input_ids, **inputs)
        output.logits = output.logits * 1.001 if input_ids.shape[1] == 1 else output.logits
        return output


class WarmsUpWithTheCache(LlamaForCausalLM):
    def forward(self, cache: Any = None, **inputs: Any) -> CausalLMOutputWithPast:
        n_seen = 0 if cache is None else cache.get_seq_length()
        output = super().forward(cache=cache, **inputs)
        output.logits = output.logits * (1 + n_seen // 100)
        return output


@pytest.mark.parametrize("kind", [IgnoresPositions, SingleTokensApart])
def test_windows_with_other_logits_are_refused(kind: type[LlamaForCausalLM]) -> None:
    error = refusal(llama(kind), r"through the attention hook its logits differ from transformers' eager by [\d.e-]+")
    assert error.hint == "some of its attention happens elsewhere"


def test_positions_taken_from_the_length_of_the_cache_are_refused() -> None:
    error = refusal(llama(WarmsUpWithTheCache), "through the attention hook its logits differ")
    assert error.hint == "from position 176 on, it uses more than the position_ids it is given"


def wrap_attention(model: LlamaForCausalLM, wrapper: Callable[..., Any], layer: int = 1) -> LlamaForCausalLM:
    """Let `wrapper(original, **inputs)` stand for the attention of one layer."""
    attention = model.model.layers[layer].self_attn
    original = attention.forward
    attention.forward = lambda **inputs: wrapper(original, **inputs)
    return model


class Doubled:
    """A cache that gives back other keys than it keeps."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache

    def update(self, *rows: Any, **options: Any) -> tuple[Tensor, Tensor]:
        keys, values = self.cache.update(*rows, **options)
        return 2 * keys, values


def alone(attend: Callable[..., Any], hidden_states: Tensor, **inputs: Any) -> tuple[Tensor, None]:
    return hidden_states.cumsum(1), None


def with_sinks(attend: Callable[..., Any], **inputs: Any) -> Any:
    """Pass sinks, of which Llama's own attention knows nothing."""
    return attend(s_aux=torch.ones(4), **inputs)


def with_another_bias(attend: Callable[..., Any], **inputs: Any) -> Any:
    return attend(position_bias=torch.ones(4), **inputs)


def with_other_keys(attend: Callable[..., Any], **inputs: Any) -> Any:
    return attend(**inputs | {"cache": Doubled(inputs["cache"])} if inputs.get("cache") else inputs)


def without_mask(attend: Callable[..., Any], attention_mask: Any, **inputs: Any) -> Any:
    return attend(attention_mask=None, **inputs)


def with_cut_mask(attend: Callable[..., Any], attention_mask: Any, hidden_states: Tensor, **inputs: Any) -> Any:
    cut = attention_mask[:, :, :, : hidden_states.shape[1]]
    return attend(attention_mask=cut, hidden_states=hidden_states, **inputs)


@pytest.mark.parametrize(
    ("wrapper", "match"),
    [
        (alone, "1 of its 2 layers do not go through transformers' attention interface, the first is layer 1$"),
        (with_another_bias, "LlamaAttention passes position_bias to its attention$"),
        (with_sinks, "through the attention hook its logits differ from transformers' eager"),
        (with_other_keys, "LlamaAttention changes keys or values between its cache and attention$"),
        (without_mask, "layer 1 attends without a mask from transformers' mask interface$"),
        (with_cut_mask, r"a layer attends with a part of its mask, \(slice\(None, None, None\), .* 3, None\)\)$"),
    ],
)
def test_attention_beside_the_hook_is_refused(wrapper: Callable[..., Any], match: str) -> None:
    refusal(wrap_attention(llama(), wrapper), match)


def test_a_layer_that_attends_twice_is_refused() -> None:
    model = llama()
    model.model.layers[1].self_attn = model.model.layers[0].self_attn
    refusal(model, "layer 0 attends more than once a token$")


def test_a_window_with_sinks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_first_tokens(*args: Any, **inputs: Any) -> Any:
        return create_sliding_window_causal_mask(
            *args, **inputs, or_mask_function=lambda b, h, q, k: (k < 4) & (k <= q)
        )

    monkeypatch.setattr(modeling_mistral, "create_sliding_window_causal_mask", with_first_tokens)
    refusal(
        zoo.model("mistral").requires_grad_(False),
        r"its mask is neither causal nor a causal sliding window \(seen from position \d+\)$",
    )


class HeadElsewhere(LlamaForCausalLM):
    def forward(self, use_cache: bool = True, **inputs: Any) -> CausalLMOutputWithPast:
        return CausalLMOutputWithPast(logits=linear(self.model(**inputs)[0], self.lm_head.weight))


class HeadByPosition(LlamaForCausalLM):
    def forward(self, position_ids: Tensor | None = None, **inputs: Any) -> CausalLMOutputWithPast:
        position_ids = torch.arange(inputs["input_ids"].shape[1])[None] if position_ids is None else position_ids
        output = super().forward(position_ids=position_ids, **inputs)
        output.logits = output.logits * (1 + position_ids[0, -output.logits.shape[1] :, None])
        return output


class NoHead(LlamaForCausalLM):
    def get_output_embeddings(self) -> None:
        return None


def test_logits_from_elsewhere_than_the_head_are_refused() -> None:
    refusal(llama(NoHead), "it has no output embeddings; the rows whose logits are wanted are chosen before them$")
    refusal(llama(HeadElsewhere), "its logits have 12 rows where 2 were chosen before its output embeddings: they are")
    error = refusal(llama(HeadByPosition), "through the attention hook its logits differ")
    assert error.hint == "its logits depend on more than the row they belong to"


def test_a_head_of_another_width_than_the_vocabulary_is_refused() -> None:
    model = llama()
    model.lm_head = nn.Linear(64, 300)
    refusal(model, r"its logits have shape \[1, 24, 300\], expected \[1, 24, 272\]$")


class BranchesOnWidth(LlamaForCausalLM):
    def forward(self, input_ids: Tensor, **inputs: Any) -> CausalLMOutputWithPast:
        output = super().forward(input_ids, **inputs)
        output.logits = output.logits * (1 if input_ids.shape[1] < 40 else 2)
        return output


class BakesWidth(LlamaForCausalLM):
    def forward(self, input_ids: Tensor, **inputs: Any) -> CausalLMOutputWithPast:
        output = super().forward(input_ids, **inputs)
        output.logits = output.logits + 1e-9 * int(input_ids.shape[1])
        return output


class BranchesOnPosition(LlamaForCausalLM):
    def forward(self, position_ids: Tensor | None = None, **inputs: Any) -> CausalLMOutputWithPast:
        position_ids = torch.arange(inputs["input_ids"].shape[1])[None] if position_ids is None else position_ids
        output = super().forward(position_ids=position_ids, **inputs)
        output.logits = output.logits * (1 if position_ids.max() < 5000 else 2)
        return output


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (BranchesOnWidth, "it branches on the width of the window .* < 40"),
        (BakesWidth, "Constraints violated"),
        (BranchesOnPosition, "Could not guard on data-dependent expression"),
    ],
)
def test_code_that_one_trace_cannot_hold_is_refused(
    kind: type[LlamaForCausalLM], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    verify = Verify(probed(llama(kind)))
    with pytest.raises(
        UnsupportedModelError, match=f"^{kind.__name__} cannot be compiled: its verify graph cannot be traced: {reason}"
    ):
        export_verify(verify)
    assert "def forward" not in capfd.readouterr().err


SCALING = {
    "longrope": {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "original_max_position_embeddings": 32,
        "short_factor": [1.0 + i / 10 for i in range(8)],
        "long_factor": [1.5 + i / 2 for i in range(8)],
    },
    "dynamic": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64},
}
LIMIT = {"longrope": 32, "dynamic": 256}  # dynamic scaling grows from max_position_embeddings on, whatever was original


def scaled(name: str, **rope: Any) -> PreTrainedModel:
    settings = zoo.config(name).to_dict() | {"rope_parameters": rope}
    return type(zoo.model(name))(type(zoo.config(name))(**settings)).eval().requires_grad_(False)


MODELS: dict[str, Callable[[str], PreTrainedModel]] = {
    "one rope": lambda kind: scaled("llama", **SCALING[kind]),
    "a rope for each kind of layer": lambda kind: scaled(
        "gemma3_text",
        full_attention=SCALING[kind],
        sliding_attention={"rope_type": "default", "rope_theta": 10000.0},
    ),
}


def check_frozen(make: Callable[[str], PreTrainedModel], kind: str, longest: int, shorter: int) -> None:
    """Freeze a model's positions for a longest text, and compare the logits of two lengths with the model as it was."""
    model, reference = make(kind), make(kind)
    reference.load_state_dict(model.state_dict())
    freeze_positions(model, longest)
    tokens = torch.randint(3, zoo.VOCABULARY, (1, longest))
    for length in (longest, shorter):
        expected = reference(tokens[:, :length]).logits
        torch.testing.assert_close(model(tokens[:, :length]).logits, expected, rtol=0, atol=1e-6)
    frozen = [module.rope_type for module in model.modules() if hasattr(module, "rope_type")]
    assert kind not in str(frozen)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("kind", SCALING)
def test_scaling_that_changes_with_the_sequence_is_frozen_below_its_limit(
    make: Callable[[str], PreTrainedModel], kind: str
) -> None:
    check_frozen(make, kind, LIMIT[kind], 5)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_longrope_is_frozen_beyond_its_limit_as_for_long_sequences(make: Callable[[str], PreTrainedModel]) -> None:
    check_frozen(make, "longrope", LIMIT["longrope"] + 20, LIMIT["longrope"] + 1)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("kind", ["dynamic"])
def test_scaling_that_changes_within_the_sequence_is_refused(make: Callable[[str], PreTrainedModel], kind: str) -> None:
    with pytest.raises(
        UnsupportedModelError,
        match=f"rope scaling '{kind}' in model.rotary_emb changes its frequencies beyond {LIMIT[kind]} positions, "
        f"and cache.max_length is {LIMIT[kind] + 1}",
    ) as caught:
        freeze_positions(make(kind), LIMIT[kind] + 1)
    assert caught.value.hint == f"set cache.max_length to {LIMIT[kind]} or less"


def test_scaling_that_is_not_constant_below_its_limit_is_refused() -> None:
    model = scaled("llama", **SCALING["dynamic"])
    rotary = model.model.rotary_emb
    original = rotary.forward
    rotary.forward = lambda x, positions: original(x, positions * (1 + positions.max() // 50))
    with pytest.raises(UnsupportedModelError, match="is not constant over 100 positions"):
        freeze_positions(model, 100)


def test_scaling_that_goes_its_own_way_is_refused_by_the_trace() -> None:
    rope = SCALING["longrope"] | {"short_mscale": 1.2, "long_mscale": 1.4}
    model = scaled("phimoe", **rope)
    freeze_positions(model, 32)
    with pytest.raises(UnsupportedModelError, match="PhimoeForCausalLM cannot be compiled: its verify graph cannot be"):
        export_verify(Verify(probe(model, CacheShape(1, 40, 32))))
