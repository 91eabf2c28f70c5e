"""Logit biases, frequency and presence penalties: OpenAI's formula over transformers' eager logits, and speculation
that leaves what it says."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    WhisperTimeStampLogitsProcessor,
)

from speccompile.bundle.sampling import SamplingParams
from speccompile.compiler.prove import distribution
from speccompile.compiler.prove.distribution import Request
from speccompile.compiler.prove.filters import adjusted
from speccompile.compiler.prove.processors import eager_reference
from speccompile.compiler.step.sampling import Adjustments, Settings
from speccompile.compiler.step.verify.target import Timestamps, sampling_target
from speccompile.errors import ProofError
from speccompile.runtime import Bundle
from tests import zoo
from tests.compile.combinations import FIRST, Combination

SAMPLING = [each for each in FIRST if each.exact and each.decoding == "sampling"]
NEW_TOKENS = 24
PROMPT = [17, 230, 45, 99] * 4
OTHER = [5, 9, 77, 140, 3]


class OpenAIPenalties(LogitsProcessor):
    """Subtract both penalties as OpenAI's reference says: mu[j] - c[j] * frequency - float(c[j] > 0) * presence."""

    def __init__(self, prompt_length: int, frequency: float, presence: float) -> None:
        self.prompt_length, self.frequency, self.presence = prompt_length, frequency, presence

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        for row, text in enumerate(input_ids.tolist()):
            for token, count in Counter(text[self.prompt_length :]).items():
                scores[row, token] -= count * self.frequency + float(count > 0) * self.presence
        return scores


def processors(prompt_length: int, options: Mapping) -> LogitsProcessorList:
    """Return the processors of some options but those that transformers' own `generate` takes."""
    biases = {(token,): float(bias) for token, bias in (options.get("logit_bias") or {}).items()}
    penalties = OpenAIPenalties(
        prompt_length, options.get("frequency_penalty", 0.0), options.get("presence_penalty", 0.0)
    )
    return LogitsProcessorList([*([SequenceBiasLogitsProcessor(biases)] if biases else []), penalties])


def eager(model: torch.nn.Module, prompt: Sequence[int], options: Mapping) -> list[int]:
    """Return transformers' greedy continuation."""
    found = model.generate(
        torch.tensor([list(prompt)]), attention_mask=torch.ones(1, len(prompt), dtype=torch.int64), do_sample=False,
        max_new_tokens=NEW_TOKENS, logits_processor=processors(len(prompt), options),
    )  # fmt: skip
    return found[0, len(prompt) :].tolist()


@pytest.fixture(scope="module", params=SAMPLING, ids=str)
def combination(request) -> Combination:
    return request.param


@pytest.fixture(scope="module")
def bundle(workshop, combination) -> Bundle:
    return Bundle.open(workshop.bundle(combination), threads=1, proposer=combination.proposer)


@pytest.fixture(scope="module")
def target(workshop, combination) -> torch.nn.Module:
    folder = workshop.models(combination.where.architecture) / "target"
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


def greedy_options(model: torch.nn.Module) -> list[dict]:
    """Return options that change the greedy continuation of the prompts."""
    first = eager(model, PROMPT, {})
    likely = [token for token, _ in Counter(first).most_common(3)]
    return [
        {"frequency_penalty": 0.7},
        {"presence_penalty": 1.1},
        {"frequency_penalty": -0.4, "presence_penalty": 1.9},
        {"logit_bias": {likely[0]: -100}},
        {"logit_bias": {200: 100}},
        {"logit_bias": dict.fromkeys(likely, -3.5) | {31: 2.25}, "frequency_penalty": 2, "presence_penalty": -2},
        {"logit_bias": dict.fromkeys(range(1024)[: zoo.VOCABULARY], 0.25) | {first[0]: -1}},
    ]


def test_without_temperature_the_tokens_are_those_of_the_formula(bundle, target, combination):
    plain, changed, accepted = eager(target, PROMPT, {}), 0, 0
    for options in greedy_options(target):
        expected = [eager(target, prompt, options) for prompt in (PROMPT, OTHER)]
        for further in ({"adaptive": False}, {}, {"autoregressive": True}):
            found = bundle.generate_batch([PROMPT, OTHER], max_new_tokens=NEW_TOKENS, **options, **further)
            assert [each.token_ids for each in found] == expected, (options, further)
            accepted += sum(length - 1 for each in found for length in each.path_lengths)
        changed += expected[0] != plain
    assert changed >= 5, "options that change nothing test nothing"
    assert accepted or not combination.agrees


def test_a_neighbour_of_the_batch_is_left_alone(bundle, target):
    options = {"logit_bias": {0: 7.5, 41: 3.0}, "presence_penalty": 2}
    each = {name: [None, value] for name, value in options.items()}
    found = bundle.generate_batch([PROMPT, OTHER], max_new_tokens=NEW_TOKENS, **each)
    assert [one.token_ids for one in found] == [eager(target, PROMPT, {}), eager(target, OTHER, options)]
    again = bundle.generate_batch([PROMPT, OTHER], max_new_tokens=NEW_TOKENS)
    assert [one.token_ids for one in again] == [eager(target, prompt, {}) for prompt in (PROMPT, OTHER)]


def test_biases_come_before_the_repetition_penalty_and_penalties_behind(bundle, target):
    """In vLLM's order: transformers' own two processors, and the formula behind them."""
    options = {"logit_bias": {45: -30.0, 99: 1.5}, "frequency_penalty": 0.5}
    first, last = processors(len(PROMPT), {"logit_bias": options["logit_bias"]}), processors(len(PROMPT), options)[-1:]

    def choose(text: list[int]) -> int:
        scores = torch.from_numpy(eager_reference(target).logits([text])[0])[None]
        scores = first(torch.tensor([text]), scores)
        seen = torch.tensor([text])
        score = scores.gather(1, seen)
        scores = scores.scatter(1, seen, torch.where(score < 0, score * 1.4, score / 1.4))
        return int(last[0](seen, scores).argmax())

    expected = list(PROMPT)
    for _ in range(NEW_TOKENS):
        expected.append(choose(expected))
    for further in ({"adaptive": False}, {"autoregressive": True}):
        found = bundle.generate(PROMPT, max_new_tokens=NEW_TOKENS, repetition_penalty=1.4, **options, **further)
        assert found.token_ids == expected[len(PROMPT) :]


@pytest.mark.parametrize("temperature", [0.0, 0.4, 1.7])
def test_the_rule_of_times_reads_biased_and_penalized_logits(temperature):
    """Whisper's last rule in transformers' order: biases and repetition penalty, the rule, then the temperature."""
    no_times, vocabulary, penalty = 59, 90, 1.6
    text, allowed = [no_times + 5, 3, 8], torch.ones(1, 1, vocabulary, dtype=torch.bool)
    allowed[..., no_times : no_times + 6] = False  # no time up to the last one
    rule = WhisperTimeStampLogitsProcessor(GenerationConfig(no_timestamps_token_id=no_times, eos_token_id=0), 0)
    differs = 0
    for seed in range(40):
        logits = torch.randn(1, 1, vocabulary, generator=torch.Generator().manual_seed(seed)) * 2
        biases = {(token,): 1.5 * (-1) ** seed for token in range(no_times + 1, vocabulary)} | {(4,): 1.0}
        tokens = torch.tensor([[[token for (token,) in biases]]])
        added = Adjustments(tokens, torch.tensor([[list(biases.values())]]), torch.zeros(tokens.shape))
        one = torch.ones(1)
        settings = Settings(one * temperature, torch.zeros(1).long(), one, one * 0, one * penalty, torch.tensor([text]))
        found = sampling_target(
            logits, settings, torch.tensor([[text]]), torch.zeros(1, 1), allowed,
            Timestamps(torch.ones(1, dtype=torch.bool), no_times + 1), added,
        )  # fmt: skip
        order = [SequenceBiasLogitsProcessor(biases), RepetitionPenaltyLogitsProcessor(penalty), rule]
        expected = LogitsProcessorList(order)(torch.tensor([text]), logits[0])
        assert torch.allclose(found.probs[0], (expected / (temperature or 1.0)).softmax(-1), atol=1e-6)
        bare = rule(torch.tensor([text]), logits[0])
        differs += int((bare.isinf() != expected.isinf()).any())
    assert differs >= 5, "cases in which the order decides"


def test_with_a_temperature_certain_drafts_leave_what_equal_seeds_draw(bundle, combination):
    options = {"temperature": [0.8, 1.2], "seed": [1, 2], "frequency_penalty": [0.6, -0.3], "presence_penalty": 0.4}
    options |= {"logit_bias": [{5: 1.5, 17: -100}, None], "top_k": [12, 0]}
    drafted = bundle.generate_batch([PROMPT, OTHER], max_new_tokens=NEW_TOKENS, adaptive=False, **options)
    again = bundle.generate_batch([PROMPT, OTHER], max_new_tokens=NEW_TOKENS, adaptive=False, **options)
    assert [one.token_ids for one in drafted] == [one.token_ids for one in again]
    assert 17 not in drafted[0].token_ids
    if not combination.sample:
        alone = bundle.generate_batch([PROMPT, OTHER], max_new_tokens=NEW_TOKENS, autoregressive=True, **options)
        assert [one.token_ids for one in drafted] == [one.token_ids for one in alone]


def test_what_is_drawn_is_distributed_as_the_formula_says(bundle, target, monkeypatch):
    """Two new tokens: the second one's distribution depends on the first, which drafts make known early."""
    sampling = SamplingParams(
        1.0, top_k=8, frequency_penalty=1.2, presence_penalty=0.8, logit_bias=((45, 1.5), (99, -2.0))
    )
    prompt = PROMPT[:7]
    own = processors(
        len(prompt), {"logit_bias": dict(sampling.logit_bias), "frequency_penalty": 1.2, "presence_penalty": 0.8}
    )
    plain, texts = eager_reference(target), [prompt, [*prompt, 45, 9], [*prompt, 9, 9, 99]]
    for text, row, found in zip(
        texts, plain.logits(texts), adjusted(plain, sampling, len(prompt)).logits(texts), strict=True
    ):
        assert np.allclose(found, own(torch.tensor([text]), torch.from_numpy(row)[None])[0], atol=1e-5)
    drawn = [distribution.draw(bundle, prompt, sampling, Request((sampling,), 600), seed=9)]
    rows = distribution.check(bundle.manifest, drawn, plain)
    assert {row["token"] for row in rows} >= {"first", "first two"}
    assert all(row["outside"] == 0 for row in rows)
    monkeypatch.setattr(distribution, "adjusted", lambda reference, *_: reference)
    with pytest.raises(ProofError, match="600 samples"):  # excluded, or another distribution
        distribution.check(bundle.manifest, drawn, plain)
