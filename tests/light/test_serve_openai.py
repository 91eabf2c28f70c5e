"""`speccompile serve` by OpenAI's own client, which checks every response and every piece of a stream.

But for streams of /v1/completions: the client's types have no null as the reason for an end that has not come, which
OpenAI's own server sends.
"""

import math

import openai
import pytest

from speccompile.runtime.adapters import LoadedAdapter
from speccompile.serving.http.app import Settings
from speccompile.serving.http.keys import Keys
from tests.light.serve_example import asked, chat_bundle, puppet_server, toy_server, toy_text
from tests.light.toy_models import logits

GREEDY = {"batch_size": 2}
SAMPLING = {"batch_size": 4, "sampling": True, "sample": True, "tree": "static"}


def client_of(running, strict=True, **options):
    given = {"api_key": "unused", "max_retries": 0} | options
    return openai.OpenAI(base_url=f"{running.address}/v1", _strict_response_validation=strict, **given)


@pytest.fixture(scope="module")
def server():
    with toy_server(**GREEDY) as running:
        yield running


@pytest.fixture(scope="module")
def greedy(server):
    return client_of(server)


@pytest.fixture(scope="module")
def lenient(server):
    return client_of(server, strict=False)


@pytest.fixture(scope="module")
def sampling():
    with toy_server(**SAMPLING) as running:
        yield client_of(running)


def expected(prompt, **options):
    """Return the generation of the bundle without a server."""
    return chat_bundle(**GREEDY).generate(prompt, **options)


def written(content):
    """Return the one message of a user, in the template."""
    return toy_text().encode(f"<s>user:{content}\nassistant:", special_tokens=False)


def test_the_models_are_listed(greedy):
    (model,) = greedy.models.list().data
    assert (model.id, model.object, model.owned_by) == ("toy", "model", "speccompile")
    assert greedy.models.retrieve("toy") == model
    with pytest.raises(openai.NotFoundError, match="the model 'other/one' does not exist: expected 'toy'"):
        greedy.models.retrieve("other/one")


def test_an_adapter_is_a_model_of_its_own():
    with puppet_server() as (running, puppet):
        running.model.bundle._adapters._loaded["poet"] = LoadedAdapter("poet", 1, "key")
        client = client_of(running)
        assert [model.id for model in client.models.list().data] == ["toy", "toy:poet"]
        assert client.models.retrieve("toy:poet").to_dict()["parent"] == "toy"
        for name in ("toy:other", "poet", "toy:"):
            with pytest.raises(openai.NotFoundError, match="does not exist: expected 'toy'"):
                client.completions.create(model=name, prompt="def")
        assert asked(running, puppet, model="toy:poet")[1]["adapter"] == "poet"
        assert "adapter" not in asked(running, puppet, model="toy")[1]


@pytest.mark.parametrize("prompt", ["def main(", [256, 7, 9], ["def", "é"], [[1, 2], [3]]])
def test_a_completion_is_what_the_bundle_generates(greedy, prompt):
    answer = greedy.completions.create(model="toy", prompt=prompt, max_tokens=24)
    prompts = prompt if isinstance(prompt, list) and not isinstance(prompt[0], int) else [prompt]
    alone = [expected(each, max_new_tokens=24) for each in prompts]
    assert [choice.text for choice in answer.choices] == [each.text for each in alone]
    assert [choice.index for choice in answer.choices] == list(range(len(prompts)))
    assert {choice.finish_reason for choice in answer.choices} == {"length"}
    assert answer.usage.completion_tokens == 24 * len(prompts)
    assert answer.usage.prompt_tokens == sum(each.prompt_tokens for each in alone)
    drafts = answer.usage.completion_tokens_details  # their number depends on the load: rounds draft as far as it pays
    assert drafts.accepted_prediction_tokens >= 0 <= drafts.rejected_prediction_tokens


def test_sixteen_tokens_are_the_default_of_a_completion(greedy):
    answer = greedy.completions.create(model="toy", prompt="def")
    assert answer.choices[0].text == expected("def", max_new_tokens=16).text


def test_a_chat_is_what_the_bundle_generates(greedy):
    alone = expected(written("def"), max_new_tokens=24)
    for limit in ({"max_tokens": 24}, {"max_completion_tokens": 24}, {"max_tokens": 9, "max_completion_tokens": 24}):
        answer = greedy.chat.completions.create(model="toy", messages=[{"role": "user", "content": "def"}], **limit)
        (choice,) = answer.choices
        assert (choice.message.role, choice.message.content) == ("assistant", alone.text)
        assert (choice.finish_reason, answer.usage.total_tokens) == ("length", len(written("def")) + 24)


def test_a_chat_without_a_limit_ends_where_the_model_is_full(greedy):
    answer = greedy.chat.completions.create(model="toy", messages=[{"role": "user", "content": "x" * 100}])
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.total_tokens == 160


@pytest.mark.parametrize("stop", [None, "a", ["zz", "b", "\x01"]])
def test_a_stream_is_the_same_in_pieces(greedy, lenient, stop):
    ask = {"model": "toy", "prompt": "def", "max_tokens": 60, "stop": stop}
    whole = greedy.completions.create(**ask)
    chunks = list(lenient.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    *pieces, last = chunks
    assert "".join(chunk.choices[0].text for chunk in pieces) == whole.choices[0].text
    assert [chunk.choices[0].finish_reason for chunk in pieces] == [None] * (len(pieces) - 1) + [
        whole.choices[0].finish_reason
    ]
    assert (last.choices, last.usage.total_tokens) == ([], whole.usage.total_tokens)
    assert {chunk.usage for chunk in pieces} == {None}


def test_a_stream_of_chat_begins_with_the_role_and_ends_with_the_reason(greedy):
    ask = {"model": "toy", "messages": [{"role": "user", "content": "def"}], "max_tokens": 30}
    whole = greedy.chat.completions.create(**ask)
    first, *middle, last = greedy.chat.completions.create(**ask, stream=True)
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    assert "".join(chunk.choices[0].delta.content for chunk in middle) == whole.choices[0].message.content
    assert (last.choices[0].delta.content, last.choices[0].finish_reason) == (None, "length")
    assert {chunk.id for chunk in (first, *middle, last)} == {first.id}


def test_the_clients_own_reader_of_streams_understands_it(greedy):
    stop = expected(written("def"), max_new_tokens=30).text[12]
    with greedy.chat.completions.stream(
        model="toy", messages=[{"role": "user", "content": "def"}], max_tokens=30, stop=stop
    ) as stream:
        final = stream.get_final_completion()
    alone = expected(written("def"), max_new_tokens=30, stop=stop)
    assert (final.choices[0].message.content, alone.finish_reason) == (alone.text, "stop")


def test_continuous_usage_grows_to_the_final_one(lenient):
    options = {"include_usage": True, "continuous_usage_stats": True}
    ask = {"model": "toy", "prompt": "def", "max_tokens": 40, "stream": True}
    chunks = list(lenient.completions.create(**ask, stream_options=options))
    counts = [chunk.usage.completion_tokens for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == counts[-2] == 40


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_logprobs_of_a_chat_are_the_targets_own(greedy, stream):
    answer = greedy.chat.completions.create(
        model="toy", messages=[{"role": "user", "content": "def"}], max_tokens=20, logprobs=True, stream=stream
    )
    chunks = [answer] if not stream else list(answer)
    entries = [entry for chunk in chunks if chunk.choices[0].logprobs for entry in chunk.choices[0].logprobs.content]
    alone = expected(written("def"), max_new_tokens=20, logprobs=True)
    assert [entry.logprob for entry in entries] == pytest.approx(alone.logprobs)
    assert bytes(byte for entry in entries for byte in entry.bytes).decode(errors="replace") == alone.text


def test_top_logprobs_are_the_best_of_the_target(greedy):
    answer = greedy.chat.completions.create(
        model="toy", messages=[{"role": "user", "content": "def"}], max_tokens=12, logprobs=True, top_logprobs=3
    )
    text = written("def")
    for entry, token in zip(
        answer.choices[0].logprobs.content, expected(text, max_new_tokens=12).token_ids, strict=True
    ):
        scores = [float(score) for score in logits(text)]
        total = math.log(math.fsum(math.exp(score) for score in scores))
        best = sorted(scores, reverse=True)[:3]
        assert [each.logprob for each in entry.top_logprobs] == pytest.approx([score - total for score in best])
        assert entry.top_logprobs[0].token == entry.token
        text.append(token)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_logprobs_of_completions_are_columns(lenient, stream):
    answer = lenient.completions.create(model="toy", prompt="def", max_tokens=20, logprobs=2, stream=stream)
    chunks = [answer] if not stream else list(answer)
    found = [chunk.choices[0].logprobs for chunk in chunks if chunk.choices[0].logprobs]
    alone = expected("def", max_new_tokens=20, logprobs=True)
    assert [each for one in found for each in one.token_logprobs] == pytest.approx(alone.logprobs)
    texts = [each for one in found for each in one.tokens]
    offsets = [each for one in found for each in one.text_offset]
    assert offsets == sorted(offsets)
    for text, offset in zip(texts, offsets, strict=True):
        assert "\ufffd" in text or alone.text[offset:].startswith(text)
    assert all(1 <= len(best) <= 2 for one in found for best in one.top_logprobs)


def test_echo_puts_the_prompt_in_front(greedy, lenient):
    answer = greedy.completions.create(model="toy", prompt=["def", "é"], max_tokens=4, echo=True)
    assert [choice.text for choice in answer.choices] == [
        each + expected(each, max_new_tokens=4).text for each in ("def", "é")
    ]
    chunks = lenient.completions.create(model="toy", prompt="def", max_tokens=4, echo=True, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == answer.choices[0].text


def test_equal_seeds_give_equal_answers(sampling):
    ask = {"model": "toy", "prompt": "def", "max_tokens": 12, "temperature": 1.5, "n": 2}
    one, same, other = (
        [choice.text for choice in sampling.completions.create(**ask, seed=seed).choices] for seed in (5, 5, -6)
    )
    assert one == same
    assert one != other
    assert one[0] != one[1]
    options = {"temperature": 1.5, "seed": 5, "num_return_sequences": 2, "max_new_tokens": 12}
    assert one == [each.text for each in chat_bundle(**SAMPLING).generate_batch(["def"], **options)]


def test_a_sampling_bundle_draws_unless_it_is_told_not_to(sampling):
    ask = {"model": "toy", "prompt": "def", "max_tokens": 30}
    drawn = {sampling.completions.create(**ask).choices[0].text for _ in range(4)}
    assert len(drawn) > 1
    for cold in (0, 0.00001):
        assert sampling.completions.create(**ask, temperature=cold).choices[0].text == (
            expected("def", max_new_tokens=30).text
        )


def test_streams_of_several_sequences_are_told_apart(sampling):
    ask = {"model": "toy", "messages": [{"role": "user", "content": "x"}], "max_tokens": 9, "seed": 3, "n": 3}
    whole = sampling.chat.completions.create(**ask)
    texts = ["", "", ""]
    for chunk in sampling.chat.completions.create(**ask, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]


def test_the_clients_errors_are_the_right_ones():
    with toy_server(Settings(Keys(("one", "two")))) as running:
        for key in ("one", "two"):
            assert client_of(running, api_key=key).models.list()
        with pytest.raises(openai.AuthenticationError, match="an API key that is not known") as caught:
            client_of(running, api_key="tw").models.list()
        assert caught.value.code == "invalid_api_key"
        client = client_of(running, api_key="one")
        with pytest.raises(openai.NotFoundError) as caught:
            client.completions.create(model="other", prompt="x")
        assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.BadRequestError, match="maximum context length is 160 tokens") as caught:
            client.completions.create(model="toy", prompt="x" * 200)
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt")
        with pytest.raises(openai.BadRequestError, match="compiled for greedy decoding") as caught:
            client.completions.create(model="toy", prompt="x", temperature=0.7)
        assert caught.value.param == "temperature"
