"""Constraints in whole bundles: against transformers' logits masked by llguidance, token by token."""

import json
import re
from collections.abc import Sequence
from decimal import Decimal

import jsonschema
import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from llguidance import LLMatcher, LLTokenizer

from speccompile.compiler.prove.chi_square import chi_square
from speccompile.errors import UsageError
from speccompile.runtime import Bundle, Generation
from speccompile.runtime.constraints.grammar import WHITESPACE
from tests import zoo
from tests.compile.tiny_bundles import Built, each_constrained
from tests.random_schemas import SCHEMAS

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "kind": {"enum": ["person", "people", None, 12]},
        "ages": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3},
    },
    "required": ["name", "kind", "ages"],
    "additionalProperties": False,
}
CASES = {
    "json_schema": PERSON,
    "regex": "[0-9]{2,4}-[a-f]{3,9}x?",
    "grammar": 'start: "say " word ("," word)* "."\nword: /[a-z]{1,4}/',
    "choice": ["alpha", "alphabet", "beta\n"],
}
SAMPLES, MOST = 900, 110


@pytest.fixture(scope="module", params=each_constrained())
def made(request, built) -> Built:
    return built(request.param)


def tokenizer() -> LLTokenizer:
    return LLTokenizer(zoo.byte_tokenizer().backend_tokenizer.to_str(), n_vocab=zoo.VOCABULARY, eos_token=zoo.PAD)


def grammar(kind: str) -> str:
    """Return it as llguidance itself writes it."""
    text = CASES[kind]
    if kind == "json_schema":
        return LLMatcher.grammar_from_json_schema(text, overrides={"whitespace_pattern": WHITESPACE})
    if kind == "regex":
        return LLMatcher.grammar_from_regex(text)
    return LLMatcher.grammar_from_lark(text if kind == "grammar" else f"start: {' | '.join(map(json.dumps, text))}")


def logits_after(model, texts: Sequence[Sequence[int]]) -> np.ndarray:
    """Return logits of transformers, float32 [texts, V]; all of one length."""
    with torch.no_grad():
        return model(torch.tensor(texts)).logits[:, -1].numpy()


def allowed(matcher: LLMatcher) -> np.ndarray:
    """Return bool [V], by llguidance's other function for masks."""
    return np.frombuffer(matcher.compute_logit_bias(), np.uint8)[: zoo.VOCABULARY] > 0


_REFERENCES: dict[tuple[str, tuple[int, ...]], list[int]] = {}
"""Of the target that the bundles of `CONSTRAINED` have alike: it says every token anew from the whole text."""


def expected(model, prompt: Sequence[int], kind: str) -> list[int]:
    key = (kind, tuple(prompt))
    if key not in _REFERENCES:
        _REFERENCES[key] = reference(model, prompt, kind, MOST)
    return _REFERENCES[key]


def reference(model, prompt: Sequence[int], kind: str, most: int) -> list[int]:
    """Return the best token that is allowed, until the grammar is complete or an end token comes."""
    matcher, found = LLMatcher(tokenizer(), grammar(kind)), []
    while len(found) < most and not matcher.is_stopped():
        scores = np.where(allowed(matcher), logits_after(model, [[*prompt, *found]])[0], -np.inf)
        found.append(int(scores.argmax()))
        if found[-1] == zoo.PAD:
            break
        assert matcher.consume_token(found[-1])
    return found


@pytest.mark.parametrize("kind", CASES)
def test_greedy_is_the_masked_target_s_own(made, kind):
    """Side by side with a row that is free, whose tokens stay what they are."""
    bundle, prompts = made.bundle, made.prompts()[2:5]
    constraint = bundle.constraint(kind, CASES[kind])
    for prompt in prompts:
        options = {"max_new_tokens": MOST, "adaptive": False}
        got = bundle.generate(prompt, constraint=constraint, **options)
        single = bundle.generate(prompt, constraint=constraint, autoregressive=True, **options)
        assert got.token_ids == single.token_ids == expected(made.target, prompt, kind)
        assert got.finish_reason == "stop"
        check(kind, got)
    free = bundle.generate(prompts[0], max_new_tokens=12)
    beside = bundle.generate_batch(prompts[:2], max_new_tokens=12, constraint=[None, constraint])
    assert beside[0].token_ids == free.token_ids


def check(kind: str, generation: Generation) -> None:
    """Check that the text is what was asked for, by what has nothing to do with llguidance."""
    text, case = generation.text, CASES[kind]
    if kind == "json_schema":
        jsonschema.validate(json.loads(text), case)
    elif kind == "choice":
        assert text in case
    else:
        assert re.fullmatch(case if kind == "regex" else "say [a-z]{1,4}(,[a-z]{1,4})*\\.", text)


@pytest.mark.sweep("900 draws each", but=["chain"])
@pytest.mark.parametrize("name", ["constrained_chain", "constrained_dynamic"])
def test_samples_are_distributed_as_the_masked_target(built, name):
    """Test the first two tokens: of the prefill, and of a round whose drafts know of no constraint."""
    made, prompt, text = built(name), [5, 80, 81, 17], "[^a-m]{3,}"
    bundle, constraint = made.bundle, made.bundle.constraint("regex", text)
    drawn = list[Generation]()
    while len(drawn) < SAMPLES:
        drawn += bundle.generate_batch(
            [prompt] * 3, max_new_tokens=2, temperature=0.7, adaptive=False, constraint=constraint,
            seed=range(len(drawn), len(drawn) + 3),
        )  # fmt: skip
    assert any(each.path_lengths[0] > 1 for each in drawn)
    pairs = np.array([each.token_ids for each in drawn])
    first = masked(made.target, [prompt], text, [[]])[0]
    begins = np.unique(pairs[:, 0])
    behind = masked(made.target, [[*prompt, token] for token in begins], text, [[token] for token in begins])
    expected = sum(behind[np.searchsorted(begins, token)] for token in pairs[:, 0])
    for place, wanted in enumerate([first * len(drawn), expected]):
        observed = np.bincount(pairs[:, place], minlength=zoo.VOCABULARY)
        assert not observed[wanted == 0].any()
        assert chi_square(observed.astype(float), wanted).p_value > 1e-6


def masked(model, texts: Sequence[Sequence[int]], regex: str, said: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the masked target's probabilities after some texts, float64 [texts, V]."""
    found = []
    for logits, tokens in zip(logits_after(model, texts), said, strict=True):
        matcher = LLMatcher(tokenizer(), LLMatcher.grammar_from_regex(regex))
        assert matcher.consume_tokens(list(map(int, tokens)))
        weights = np.where(allowed(matcher), np.exp((logits.astype(np.float64) - logits.max()) / 0.7), 0)
        found.append(weights / weights.sum())
    return np.array(found)


def test_seeds_give_the_same_whatever_is_beside(built):
    bundle = built("constrained_chain").bundle
    constraint, options = bundle.constraint("json_schema", PERSON), {"temperature": 1.0, "max_new_tokens": MOST}
    prompts = built("constrained_chain").prompts()[2:5]
    alone = [bundle.generate(prompt, constraint=constraint, seed=7, **options) for prompt in prompts]
    beside = bundle.generate_batch(prompts, constraint=constraint, seed=7, **options)
    assert [each.token_ids for each in alone] == [each.token_ids for each in beside]
    for each in alone:
        assert each.finish_reason == "stop"
        check("json_schema", each)


def test_logprobs_are_the_target_s_own(made):
    """Compare log-probabilities with those without a constraint, and tokens with those without log-probabilities."""
    bundle, prompt = made.bundle, made.prompts()[2]
    constraint = bundle.constraint("regex", "[0-9]{2}-[a-f]{3}")
    plain = bundle.generate(prompt, constraint=constraint)
    told = bundle.generate(prompt, constraint=constraint, logprobs=True)
    assert plain.token_ids == told.token_ids
    for place, (token, found) in enumerate(zip(told.token_ids, told.logprobs, strict=True)):
        logits = torch.tensor(logits_after(made.target, [[*prompt, *told.token_ids[:place]]])[0])
        assert found == pytest.approx(float(torch.log_softmax(logits, 0)[token]), abs=1e-4)


@settings(max_examples=10, database=None, derandomize=True, phases=[Phase.generate])
@given(SCHEMAS)
def test_random_schemas_have_valid_answers(built, schema):
    """`scripts/random_schemas.py` asks for a thousand."""
    bundle = built("constrained_chain").bundle
    dense = schema | {"x-guidance": {"whitespace_pattern": " ?"}}  # there is little room
    constraint = bundle.constraint("json_schema", dense)
    found = bundle.generate([5], constraint=constraint, max_new_tokens=250, temperature=1.0, seed=1)
    assert found.finish_reason == "stop"
    jsonschema.Draft202012Validator(schema).validate(json.loads(found.text, parse_float=Decimal))


FORCED = 'start: "of course, nobody knew: " /[a-z]{2}/ " or something else altogether" /[0-9]/ " in the end"'


@pytest.mark.parametrize("options", [{}, {"autoregressive": True}, {"temperature": 0.9, "seed": 3}])
def test_tokens_without_alternative_are_given_and_change_nothing(made, options):
    """Log-probabilities are asked of the target token by token: the same tokens, in more rounds."""
    bundle, prompts = made.bundle, made.prompts()[2:5]
    if "temperature" in options and bundle.manifest.decoding == "greedy":
        pytest.skip("a greedy bundle does not sample")
    constraint = bundle.constraint("grammar", FORCED)
    options = options | {"constraint": constraint, "max_new_tokens": MOST, "adaptive": False}
    jumped = bundle.generate_batch(prompts, **options)
    walked = bundle.generate_batch(prompts, logprobs=True, **options)
    assert [each.token_ids for each in jumped] == [each.token_ids for each in walked]
    assert [each.token_ids for each in jumped] == [bundle.generate(each, **options).token_ids for each in prompts]
    draws = bundle.manifest.sample and "temperature" in options
    for one, other in zip(jumped, walked, strict=True):
        assert one.finish_reason == "stop"
        assert one.rounds == other.rounds if draws else one.rounds < other.rounds / 2
        assert re.fullmatch("of course, nobody knew: [a-z]{2} or something else altogether[0-9] in the end", one.text)


def test_what_is_forced_stops_where_there_is_no_room(made):
    bundle, constraint = made.bundle, made.bundle.constraint("grammar", FORCED)
    for most in range(1, 30):
        found = bundle.generate([5, 6], constraint=constraint, max_new_tokens=most)
        assert (len(found.token_ids), found.finish_reason) == (most, "length")


def test_a_bundle_without_constraints_refuses_them(built):
    bundle = built("none").bundle
    with pytest.raises(UsageError, match="was built without constraints"):
        bundle.constraint("json_object")


def test_constraints_belong_to_their_bundle(built):
    bundle = built("constrained_tree").bundle
    with pytest.raises(UsageError, match="expected what Bundle\\.constraint gives"):
        bundle.generate([5], constraint="{}")
    with pytest.raises(UsageError, match="received one of another bundle"):
        built("model_1").bundle.generate([5], constraint=bundle.constraint("json_object"))
    with pytest.raises(UsageError, match="received 1 values, expected one, or one for each of 2 prompts"):
        bundle.generate_batch([[5], [6]], constraint=[None])


def test_a_stream_ends_with_its_text(built):
    bundle: Bundle = built("constrained_tree").bundle
    stream = bundle.stream([5, 6], constraint=bundle.constraint("choice", ["yes indeed"]))
    assert "".join(stream) == "yes indeed"
    assert stream.generation.finish_reason == "stop"
