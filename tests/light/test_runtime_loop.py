"""Bundles over a toy engine, against the toy target's own continuation."""

from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.errors import EngineError, PromptError, UsageError
from speccompile.runtime import Bundle
from speccompile.runtime.text.tokenizer import IncrementalDetokenizer, Tokenizer
from tests.light.fake_bundle import JSON_KEYS, TEMPLATE, toy_bundle, toy_manifest, toy_tokenizer, write_toy_bundle
from tests.light.toy_engine import ToyEngine
from tests.light.toy_models import VOCABULARY, autoregressive, path_lengths

PROMPT = [3, 1, 4, 1, 5]

prompts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=20)
sizes = st.integers(1, 9)


@given(st.lists(prompts, min_size=1, max_size=4), sizes, sizes, st.integers(1, 30), st.integers(0, 2), st.booleans())
@settings(max_examples=150)
def test_every_row_gets_the_targets_own_tokens(rows, tokens, chunk, count, idle_rows, fused):
    batch = len(rows) + idle_rows
    bundle = toy_bundle(tokens=tokens, prefill_chunk=chunk, batch_size=batch, max_length=32, fused=fused)
    for speculative in (True, False, True):
        generations = bundle.generate_batch(rows, max_new_tokens=count, autoregressive=not speculative, adaptive=False)
        for prompt, generation in zip(rows, generations, strict=True):
            room = min(count, 32 - len(prompt))
            assert generation.token_ids == autoregressive(prompt, room)
            assert generation.finish_reason == ("length" if count <= room else "capacity")
            assert generation.path_lengths == path_lengths(prompt, room, tokens if speculative else 0)
            assert generation.prompt_tokens == len(prompt)


@given(prompts, sizes, st.sets(st.integers(0, 255), min_size=1, max_size=40))
@settings(max_examples=60)
def test_an_end_token_ends_its_row_and_is_kept(prompt, tokens, ends):
    bundle = toy_bundle(tokens=tokens, batch_size=2, eos_token_ids=tuple(ends))
    expected = autoregressive(prompt, 40)
    first = next((place for place, token in enumerate(expected) if token in ends), None)
    for generation in bundle.generate_batch([prompt, prompt[::-1]], max_new_tokens=40)[:1]:
        assert generation.token_ids == expected[: 40 if first is None else first + 1]
        assert generation.finish_reason == ("length" if first is None else "stop")


def test_tokens_that_end_a_generation_are_given_or_taken_away():
    expected = autoregressive(PROMPT, 40)
    bundle = toy_bundle(eos_token_ids=(expected[20],))
    first = expected.index(expected[20])
    assert bundle.generate(PROMPT, max_new_tokens=40).token_ids == expected[: first + 1]
    assert bundle.generate(PROMPT, max_new_tokens=40, ignore_eos=True).token_ids == expected
    stopped = bundle.generate(PROMPT, max_new_tokens=40, stop_token_ids=[expected[5]])
    assert stopped.token_ids == expected[: min(first, expected.index(expected[5])) + 1]
    assert stopped.finish_reason == "stop"


@pytest.mark.parametrize("asked", [[VOCABULARY], [-1], 3.5, ["a"], [True]])
def test_a_token_to_stop_at_that_is_none(asked):
    with pytest.raises(UsageError, match=f"stop_token_ids: received .*, expected token ids from 0 to {VOCABULARY - 1}"):
        toy_bundle().generate(PROMPT, stop_token_ids=asked)


def test_counts_and_times_of_a_generation():
    bundle = toy_bundle(tokens=4)
    generation = bundle.generate(PROMPT, max_new_tokens=30, adaptive=False)
    rounds = path_lengths(PROMPT, 30, 4)
    assert max(rounds) > 1
    assert generation.rounds == len(rounds) == bundle.engine.runs.count("verify") - 1
    assert bundle.engine.runs.count("draft") == generation.rounds  # none after the last verify
    assert generation.mean_accepted == 29 / len(rounds)
    assert (generation.mode, generation.engine) == ("speculative", "onnxruntime-cpu")
    assert generation.tokens_per_second == 30 / generation.seconds
    spent = generation.prefill_seconds + generation.verify_seconds + generation.draft_seconds
    assert 0 < spent <= generation.seconds
    assert list(generation.to_json()) == JSON_KEYS


def test_the_prefill_runs_in_chunks():
    bundle = toy_bundle(prefill_chunk=4, tokens=2, batch_size=2)
    bundle.generate_batch([PROMPT * 2, PROMPT], max_new_tokens=1)
    assert bundle.engine.runs == ["verify", "draft", "verify", "draft", "verify"]


def test_idle_rows_are_given_nothing_and_hold_no_length():
    bundle = toy_bundle(batch_size=2, max_length=32)
    first, second = bundle.generate_batch([[1, 2, 3], [7] * 29])
    assert first.rounds > second.rounds
    prefill = 2
    assert {rows[1] for rows in bundle.engine.verified[prefill + second.rounds :]} == {(0, 0)}
    bundle.generate_batch([[1, 2, 3]] * 2)
    bundle.engine.verified.clear()
    bundle.generate([1, 2, 3])
    assert {rows[1] for rows in bundle.engine.verified} == {(0, 0)}


def test_no_more_runs_stay_bound_than_few():
    """Bind a run for every width of a prompt's last part; the least recently used one is bound again."""
    bundle = toy_bundle(tokens=3, prefill_chunk=16)
    with patch("speccompile.runtime.rounds.bound_graphs.MAX_BINDINGS", 4):
        for length in (*range(1, 17), 3, 1):
            prompt = [*PROMPT, *PROMPT, *PROMPT, 9][:length]
            assert bundle.generate(prompt, max_new_tokens=9).token_ids == autoregressive(prompt, 9)
            assert 2 <= len(bundle._loop.rounds._forwards) <= 4


def test_a_fused_bundle_runs_one_graph_a_round():
    bundle = toy_bundle(fused=True)
    bundle.generate(PROMPT, max_new_tokens=12, adaptive=False)
    assert set(bundle.engine.runs) == {"step"}
    bundle.engine.runs.clear()
    bundle.generate(PROMPT, max_new_tokens=12, autoregressive=True)
    assert set(bundle.engine.runs) == {"verify"}


def test_a_bundle_without_drafter_is_autoregressive():
    bundle = toy_bundle(speculative=False)
    generation = bundle.generate(PROMPT, max_new_tokens=9)
    assert not bundle.speculative
    assert (generation.mode, generation.rounds, generation.mean_accepted) == ("autoregressive", 8, 1.0)
    assert generation.token_ids == autoregressive(PROMPT, 9)
    assert set(bundle.engine.runs) == {"verify"}


def test_a_prompt_that_fills_the_buffers_gets_no_token():
    bundle = toy_bundle(max_length=len(PROMPT))
    generation = bundle.generate(PROMPT)
    assert (generation.token_ids, generation.finish_reason) == ([], "capacity")
    assert (generation.rounds, generation.mean_accepted) == (0, None)


@given(prompts, sizes, st.integers(1, 30))
@settings(max_examples=60)
def test_pieces_are_the_text_however_many_tokens_a_round_brings(text, prompt, tokens, count):
    bundle = toy_bundle(text, tokens=tokens)
    stream = bundle.stream(prompt, max_new_tokens=count)
    assert stream.generation is None
    pieces = list(stream)
    once = IncrementalDetokenizer(text, prompt)
    whole = once.push(autoregressive(prompt, count)) + once.finish()
    assert "".join(pieces) == whole == stream.generation.text
    assert "" not in pieces
    assert stream.generation.token_ids == autoregressive(prompt, count)


@given(prompts, sizes, st.integers(0, 30), st.integers(1, 4))
@settings(max_examples=60)
def test_a_stop_string_ends_the_text_before_it(text, prompt, tokens, start, size):
    whole = toy_bundle(text).generate(prompt, max_new_tokens=40).text
    stop = whole[start : start + size]
    if not stop:
        return
    generation = toy_bundle(text, tokens=tokens).generate(prompt, max_new_tokens=40, stop=[stop, "never there"])
    assert generation.text == whole[: whole.find(stop)]
    assert generation.token_ids == autoregressive(prompt, 40)[: len(generation.token_ids)]
    assert generation.finish_reason == "stop"


def test_a_closed_stream_frees_the_bundle(text):
    bundle = toy_bundle(text)
    stream = bundle.stream(PROMPT)
    assert repr(stream) == "<TextStream that has not begun>"
    next(stream)
    assert repr(stream) == "<TextStream that has begun>"
    with pytest.raises(EngineError, match="this bundle is in the middle of another stream") as caught:
        bundle.generate(PROMPT)
    assert caught.value.hint == "finish or close that stream first, or open the bundle a second time"
    stream.close()
    assert bundle.generate(PROMPT, max_new_tokens=20).token_ids == autoregressive(PROMPT, 20)
    begun = stream.generation
    assert repr(stream) == f"<TextStream that is over: {begun!r}>"
    assert (begun.finish_reason, begun.token_ids) == ("cancelled", autoregressive(PROMPT, 20)[: len(begun.token_ids)])


def test_a_stream_may_move_between_threads_while_others_wait(text):
    bundle = toy_bundle(text)
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        stream = bundle.stream(PROMPT, max_new_tokens=20)
        begin = first.submit(next, stream).result()
        waiting = second.submit(bundle.generate, PROMPT, max_new_tokens=20)
        assert begin + "".join(stream) == waiting.result().text == stream.generation.text


def test_an_interrupted_generation_frees_the_bundle():
    bundle = toy_bundle()
    with patch("tests.light.toy_engine.drafts", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        bundle.generate(PROMPT)
    assert bundle.generate(PROMPT, max_new_tokens=20).token_ids == autoregressive(PROMPT, 20)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "the prompt is empty: expected at least one token"),
        ("", "the prompt is empty: expected at least one token"),
        ([5, 258], "token id 258 is out of range: expected 0 to 257"),
        ([-1], "token id -1 is out of range"),
        ([7] * 161, "the prompt has 161 tokens, more than this bundle's capacity of 160"),
        ("a\udc80", r"the prompt is not UTF-8 text: character 1 is '\\udc80'"),
    ],
)
def test_prompts_that_are_refused(prompt, message, text):
    with pytest.raises(PromptError, match=message):
        toy_bundle(text).generate(prompt)


def test_a_token_without_a_row_is_told_by_its_name(tmp_path):
    """Name the token of an id that the bundle's own tokenizer gave."""
    made = toy_tokenizer()
    made.add_special_tokens([f"<more {number}>" for number in range(300 - made.get_vocab_size())])
    made.save(str(tmp_path / "tokenizer.json"))
    name = made.id_to_token(299)
    with pytest.raises(PromptError, match="token id 299 is out of range: expected 0 to 257") as caught:
        toy_bundle(Tokenizer(tmp_path / "tokenizer.json")).generate(f"a{name}")
    assert caught.value.hint == (
        f"it is {name!r} of this bundle's tokenizer, which the model has no row for: leave it out of the prompt"
    )


def test_token_ids_that_are_no_whole_numbers_are_a_type_error():
    with pytest.raises(TypeError, match=r"token id 1\.5: 'float' object cannot be interpreted as an"):
        toy_bundle().generate([1.5])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_new_tokens": 0}, UsageError, "max_new_tokens is 0: expected at least 1"),
        ({"max_new_tokens": 1.5}, UsageError, r"max_new_tokens is 1\.5: expected at least 1"),
        ({"max_new_tokens": True}, UsageError, "max_new_tokens is True: expected at least 1"),
        ({"stop": ["."]}, PromptError, "this bundle has no tokenizer, so no text to stop at"),
    ],
)
def test_options_that_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        toy_bundle().generate(PROMPT, **options)


def test_what_needs_a_tokenizer_says_so():
    bundle = toy_bundle()
    with pytest.raises(PromptError, match="this bundle has no tokenizer, and the prompt is a text") as caught:
        bundle.generate("text")
    assert caught.value.hint == "give token ids: --token-ids 1,2,3 ([1, 2, 3])"
    with pytest.raises(PromptError, match="this bundle has no tokenizer: there is no text to stream"):
        bundle.stream(PROMPT)
    assert bundle.generate(PROMPT, max_new_tokens=2).text is None


def test_more_prompts_than_rows_are_refused():
    with pytest.raises(PromptError, match="3 prompts at once: expected 1 to 2") as caught:
        toy_bundle(batch_size=2).generate_batch([PROMPT] * 3)
    assert caught.value.hint == "build the bundle with a larger cache.batch_size"
    with pytest.raises(PromptError, match="received no prompts"):
        toy_bundle().generate_batch([])


def test_a_folder_is_opened_with_its_tokenizer_and_its_template(tmp_path):
    folder = write_toy_bundle(tmp_path / "toy")
    with patch(
        "speccompile.runtime.devices.onnxruntime.OnnxRuntimeEngine", lambda *arguments: ToyEngine(toy_manifest())
    ):
        bundle = Bundle.open(folder, engine="other")
    assert bundle.engine_name == "other"
    assert bundle.chat_template == (TEMPLATE, {"bos_token": "<s>", "eos_token": "</s>"})
    plain = [ord(letter) - 33 for letter in "ab!"]
    assert bundle.token_ids("ab!") == [256, *plain]
    assert bundle.token_ids("ab", chat=True) == [256, *plain]  # the template writes <s> and !
    whole = bundle.generate("ab", chat=True, max_new_tokens=12)
    assert whole.token_ids == autoregressive([256, *plain], 12)
    assert whole.text == bundle.text.decode([*plain, *whole.token_ids])[3:]


def test_chat_without_a_template_is_refused(tmp_path):
    folder = write_toy_bundle(tmp_path / "toy", chat=False)
    with patch(
        "speccompile.runtime.devices.onnxruntime.OnnxRuntimeEngine", lambda *arguments: ToyEngine(toy_manifest())
    ):
        bundle = Bundle.open(folder)
    assert bundle.chat_template is None
    with pytest.raises(PromptError, match="this bundle's tokenizer has no chat template") as caught:
        bundle.generate("ab", chat=True)
    assert caught.value.hint == "leave out --chat (chat=True)"


def test_a_graph_that_onnxruntime_does_not_take(tmp_path):
    with pytest.raises(
        EngineError, match=r"ONNX Runtime [\d.]+ does not take (draft|verify).onnx: .*[Pp]rotobuf"
    ) as caught:
        Bundle.open(write_toy_bundle(tmp_path / "toy"))
    assert "speccompile inspect" in caught.value.hint
