"""Options of a call: their names, values that are refused, and objects that hold them."""

import dataclasses
from types import SimpleNamespace
from typing import Any, get_type_hints

import numpy as np
import pytest

import speccompile
from speccompile.cli import generate
from speccompile.errors import PromptError, UsageError
from speccompile.runtime import GenerationKeywords, GenerationOptions
from speccompile.runtime.images.bundle_prompts import open_reader
from speccompile.runtime.options import NEW_TOKENS
from speccompile.serving.scheduler import Service
from tests.light.serve_example import chat_bundle
from tests.light.toy_models import VOCABULARY, autoregressive

PROMPT = [3, 1, 4, 1, 5]
CHAT = [{"role": "user", "content": "ab"}]
CALLS = ("generate", "generate_batch", "stream", "chat", "stream_chat")


def call(bundle, name, *options, **keywords):
    given = {"generate_batch": [PROMPT], "chat": CHAT, "stream_chat": CHAT}.get(name, PROMPT)
    return getattr(bundle, name)(given, *options, **keywords)


def test_keywords_are_the_fields_and_the_command_has_the_same_defaults():
    fields = get_type_hints(GenerationOptions)
    assert list(fields.items()) == list(get_type_hints(GenerationKeywords).items())
    assert GenerationKeywords.__total__ is False
    defaults = {field.name: field.default for field in dataclasses.fields(GenerationOptions)}
    shown = {option.name: option.default for option in generate.command.params if option.name in defaults}
    assert len(shown) > 10
    neutral = {None: (None, ""), (): ((), None)}
    for name, default in shown.items():
        same = defaults[name] if name != "repetition_penalty" else None
        assert default == same or default in neutral.get(same, ()) or repr(default).startswith("Sentinel"), name


@pytest.mark.parametrize("name", CALLS)
def test_an_unknown_keyword_is_named_with_the_nearest(name):
    bundle = chat_bundle()
    message = rf"^Bundle\.{name}\(\) got an unexpected keyword argument 'max_token'; did you mean 'max_new_tokens'\?$"
    with pytest.raises(TypeError, match=message):
        call(bundle, name, max_token=4)
    with pytest.raises(TypeError, match=rf"^Bundle\.{name}\(\) got .* 'wibble'; expected one of adapter, "):
        call(bundle, name, GenerationOptions(), wibble=4)
    with pytest.raises(TypeError, match=rf"^Bundle\.{name}\(\) received 4 as options, expected GenerationOptions"):
        call(bundle, name, 4)
    with pytest.raises(TypeError, match=r"received \{'seed': 1\} as options, .* give its entries as keywords"):
        call(bundle, name, {"seed": 1})


def test_an_unknown_keyword_of_a_service_is_named_too():
    with (
        Service(chat_bundle()) as service,
        pytest.raises(TypeError, match=r"^Service\.submit\(\) got .* 'stops'; did you mean 'stop'\?$"),
    ):
        service.submit(PROMPT, stops="a")


def test_keywords_replace_the_fields_of_the_object():
    bundle, options = chat_bundle(), GenerationOptions(max_new_tokens=3, autoregressive=True)
    assert bundle.generate(PROMPT, options).token_ids == autoregressive(PROMPT, 3)
    longer = bundle.generate(PROMPT, options, max_new_tokens=9)
    assert (longer.token_ids, longer.mode) == (autoregressive(PROMPT, 9), "autoregressive")
    assert options == GenerationOptions(max_new_tokens=3, autoregressive=True)
    assert len(bundle.generate(PROMPT, GenerationOptions()).token_ids) == NEW_TOKENS
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.max_new_tokens = 4


WRONG = [
    ("images", 7, "images: received int, expected a list of paths, bytes, arrays or pictures of Pillow"),
    ("max_new_tokens", "4", "max_new_tokens is '4': expected at least 1"),
    ("stop", 5, "stop: received 5, expected a text, or several"),
    ("stop", ["a", 5], "stop: received 5, expected a text, or several"),
    ("stop", None, "stop: received None, expected a text, or several"),
    ("stop", b"a", "stop: received b'a', expected a text, or several"),
    ("stop", {"a": 1}, "stop: received {'a': 1}, expected a text, or several"),
    ("stop", "", "empty stop string"),
    ("stop_token_ids", b"a", "stop_token_ids: received b'a', expected token ids"),
    ("stop_token_ids", {5: 1}, "stop_token_ids: received {5: 1}, expected token ids"),
    ("stop_token_ids", "a", "stop_token_ids: received 'a', expected token ids"),
    ("stop_token_ids", None, "stop_token_ids: received None, expected token ids"),
    ("ignore_eos", 1, "ignore_eos: received 1, expected True or False"),
    ("chat", 1, "chat: received 1, expected True or False"),
    ("autoregressive", "no", "autoregressive: received 'no', expected True or False"),
    ("adaptive", None, "adaptive: received None, expected True or False"),
    ("logprobs", 5, "logprobs: received 5, expected True or False"),
    ("top_logprobs", True, "top_logprobs: received True, expected a whole number from 0"),
    ("top_logprobs", "5", "top_logprobs: received '5', expected a whole number from 0"),
    ("constraint", "json", "constraint: received str, expected what Bundle.constraint gives"),
    ("constraint", {"type": "object"}, "constraint: received dict, expected what Bundle.constraint gives"),
    ("temperature", "hot", "temperature: received 'hot', expected a number from 0 on"),
    ("top_k", 1.5, r"top_k: received 1\.5, expected a whole number from 0 on"),
    ("top_p", "1", "top_p: received '1', expected a number above 0"),
    ("min_p", [], "min_p: received 0 values, expected one, or one for each of 1 prompts"),
    ("repetition_penalty", False, "repetition_penalty: received False, expected a number from 0.001"),
    ("frequency_penalty", 2.5, r"frequency_penalty: received 2\.5, expected a number from -2 to 2"),
    ("presence_penalty", "1", "presence_penalty: received '1', expected a number from -2 to 2"),
    ("logit_bias", 5, "logit_bias: received 5, expected a mapping of token ids to numbers, or one for each prompt"),
    ("logit_bias", [{}, {}], "logit_bias: received 2 values, expected one, or one for each of 1 prompts"),
    ("logit_bias", [5], "logit_bias of prompt 1: received 5, expected a mapping of token ids to numbers"),
    ("logit_bias", {"5": 1}, "logit_bias: received '5', expected token ids from 0 to 257"),
    ("logit_bias", {258: 1}, "logit_bias: received 258, expected token ids from 0 to 257"),
    ("logit_bias", {-1: 1}, "logit_bias: received -1, expected token ids from 0 to 257"),
    ("logit_bias", {5: 101}, "logit_bias of token 5: received 101, expected a number from -100 to 100"),
    ("logit_bias", {5: float("nan")}, "logit_bias of token 5: received nan, expected a number from -100 to 100"),
    ("logit_bias", dict.fromkeys(range(1025), 1), "logit_bias: received 1025 tokens, expected at most 1024"),
    ("seed", 1.0, r"seed: received 1\.0, expected a whole number"),
    ("truncate", "right", "truncate: received 'right', expected 'left' or None"),
    ("adapter", 7, "adapter: received 7, expected the name of a loaded adapter"),
    ("source", [1], "received a source, but this bundle's target has no encoder"),
    ("source_language", "de", "source_language: received one, but this bundle's target has no encoder"),
    ("target_language", "de", "target_language: received one, but this bundle's target has no encoder"),
    ("audio", "a.wav", "audio: received a sound, but this bundle's target has no encoder"),
    ("task", "translate", "task: received one, but this bundle's target has no encoder"),
    ("session", 7, "session: received 7, expected the path of a file"),
    ("num_return_sequences", "1", "num_return_sequences: received '1', expected"),
]


@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_wrong_values_are_refused_in_every_way_of_giving_them(name, value, message):
    bundle = chat_bundle(sampling=True)
    for way in CALLS:
        for options, keywords in (((), {name: value}), ((GenerationOptions(**{name: value}),), {})):
            with pytest.raises(UsageError, match=message) as caught:
                call(bundle, way, *options, **keywords)
            assert caught.value.hint


def test_every_option_has_a_wrong_value():
    assert {name for name, *_ in WRONG} == {field.name for field in dataclasses.fields(GenerationOptions)}


def test_one_text_and_numpys_booleans_are_taken():
    bundle = chat_bundle()
    whole = bundle.generate(PROMPT, max_new_tokens=30).text
    stop = whole[4:6]
    assert bundle.generate(PROMPT, stop=stop, logprobs=np.True_).text == whole[: whole.find(stop)]
    with pytest.raises(UsageError, match="threads: received 0, expected at least 1"):
        speccompile.load("nowhere", threads=0)
    with pytest.raises(UsageError, match="verify: received 'no', expected True or False"):
        speccompile.load("nowhere", verify="no")
    with pytest.raises(UsageError, match="image_cache: received -1, expected a number of MiB from 0 on"):
        speccompile.load("nowhere", image_cache=-1)
    opened: Any = SimpleNamespace(manifest=bundle.manifest)
    with pytest.raises(UsageError, match="image_cache: received 9 for a bundle that sees no pictures, expected none"):
        open_reader(opened, bundle.entry, 1, None, 9)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda bundle: bundle.generate(None), PromptError, "received the prompt None, expected a text or token ids"),
        (lambda bundle: bundle.generate(["ab"]), PromptError, r"received the prompt \['ab'\], expected a text"),
        (lambda bundle: bundle.generate(CHAT), PromptError, "expected a text or token ids"),
        (lambda bundle: bundle.generate(b"ab"), PromptError, r"received the prompt b'ab', expected a text or token"),
        (lambda bundle: bundle.generate({1: 2}), PromptError, r"received the prompt \{1: 2\}, expected a text or tok"),
        (lambda bundle: bundle.generate_batch("ab"), UsageError, "received the prompts 'ab', expected a list of them"),
        (lambda bundle: bundle.generate_batch([]), PromptError, "received no prompts, expected at least one"),
        (lambda bundle: bundle.generate_batch(5), UsageError, "received the prompts '5', expected a list of them"),
    ],
)
def test_prompts_of_a_wrong_kind(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call(chat_bundle())
    assert caught.value.hint


def test_the_vocabulary_bounds_what_is_asked():
    with pytest.raises(UsageError, match=f"top_logprobs: received {VOCABULARY + 1}"):
        chat_bundle().generate(PROMPT, top_logprobs=VOCABULARY + 1)
