"""Spec-Bench's question files: read, asked turn by turn, and put together by group."""

import json
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from speccompile.bundle.prompts import MT_BENCH, Question, read_prompts, read_questions
from speccompile.errors import PromptError
from speccompile.measure.bench import PromptRuns, measure
from speccompile.measure.bench.conversation import ConversationPrompts
from speccompile.measure.bench.groups import Group, GroupStatistics, make_groups
from speccompile.measure.bench.timed import Timed
from speccompile.measure.compare.passes import PassRequest
from tests.light.bench_example import AUTOREGRESSIVE, SPECULATIVE
from tests.light.fake_bundle import toy_bundle

CHAT = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}",
    {"bos_token": "<s>", "eos_token": "</s>"},
)


@pytest.fixture
def read(tmp_path):
    """Return what `reader` makes of a file with these lines."""

    def read_lines(*lines, reader=read_questions):
        path = tmp_path / "question.jsonl"
        path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
        return reader(path)

    return read_lines


def question(category, *turns, **more):
    return {"question_id": 81, "category": category, "turns": list(turns)} | more


def test_a_prompt_may_have_pictures(read, tmp_path):
    one, two = read({"prompt": "c", "images": ["a.png", "/b.png"]}, {"prompt": "d", "images": []})
    assert one == Question(("c",), images=(str(tmp_path / "a.png"), "/b.png"))
    assert two == Question(("d",))
    kept = PassRequest("b", None, "e", None, (one, two), 1, {})
    assert PassRequest.from_json(json.loads(json.dumps(kept.to_json()))) == kept


@pytest.mark.parametrize(("line", "said"), [
    ({"prompt": "c", "images": "a.png"}, r'line 1: received images: "a.png", expected a list of paths'),
    ({"prompt": "c", "images": [""]}, r"expected a list of paths"),
    ({"token_ids": [5], "images": ["a.png"]}, "line 1: received token ids and images, expected a prompt beside them"),
    ({"prompt": "c", "images": ["a.png"], "video": "b.mp4"}, "received 'video', expected text or token ids alone"),
    (question("writing", "a", images=["a.png"]), "received 'images', expected text or token ids alone"),
])  # fmt: skip
def test_pictures_that_are_not_read_are_refused(read, line, said):
    with pytest.raises(PromptError, match=said):
        read(line)


def test_a_target_that_sees_nothing_refuses_pictures(read):
    (asked,) = read({"prompt": "c", "images": ["a.png"]})
    with pytest.raises(PromptError, match="prompt 1: "):
        measure(toy_bundle(), [asked], repeats=1)


def test_questions_and_prompts_in_order(read):
    lines = [
        question("writing", "a", "b"),
        {"prompt": "c"},
        question("rag", "d", reference=["x"], model="y"),
        {"token_ids": [5]},
    ]
    found = read(*lines)
    assert found == [Question(("a", "b"), "writing"), Question(("c",)), Question(("d",), "rag"), Question(([5],))]
    assert [each.group for each in found] == ["mt_bench", "prompts", "rag", "prompts"]


def test_the_six_tasks_of_spec_bench():
    single = ["translation", "summarization", "qa", "math_reasoning", "rag"]
    groups = {category: Question(("a",), category).group for category in [*MT_BENCH, *single]}
    assert len(MT_BENCH) == 8
    assert {groups[category] for category in MT_BENCH} == {"mt_bench"}
    assert [groups[category] for category in single] == single


def test_the_categories_of_speed_bench_are_its_own(read):
    """Read its columns as they are published; some of its categories have MT-Bench's names."""
    more = {"sub_category": "poetry", "source": "x", "src_id": "y", "difficulty": "hard", "multiturn": False}
    lines = [
        question("writing", "a") | more | {"question_id": "3f2a"},
        question("coding", "a", "b") | {"question_id": "77b1"},
        question("math", "a"),
        question("low_entropy", "a") | more | {"question_id": "99c0"},
    ]
    assert [each.group for each in read(*lines)] == ["writing", "coding", "mt_bench", "low_entropy"]


def test_a_turn_of_speed_bench_without_its_text_is_refused(read):
    masked = question(
        "coding", "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH\n\n{question}"
    )
    with pytest.raises(PromptError, match="line 2: received a turn of SPEED-Bench that stands for another") as caught:
        read(question("coding", "a"), masked)
    assert "prepare_data.py" in caught.value.hint


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (question("writing"), r'line 2: received \{.*\}, expected \{"question_id": 81, "category": "writing", "turns"'),
        (question("writing", 3), "line 2: received .*, expected"),
        (question("", "a"), "line 2: received .*, expected"),
        (question(None, "a"), "line 2: received .*, expected"),
        ({"category": "writing", "turns": ["a"]}, "line 2: received .*, expected"),
        ({"question_id": 1, "turns": ["a"]}, "line 2: received .*, expected"),
        (question("writing", "a", ""), "line 2: received an empty prompt, expected text"),
        (question("writing", "\ud800"), "line 2: received text that is not Unicode, expected text that UTF-8 can hold"),
        ({"text": "a"}, r'line 2: received \{"text": "a"\}, expected \{"prompt": "text"\}'),
        ("[", r"line 2: received \[, expected"),
    ],
)
def test_a_line_that_is_no_question_is_refused(read, line, message):
    with pytest.raises(PromptError, match=message) as caught:
        read(question("writing", "a"), line)
    assert caught.value.hint


def test_prompts_of_a_proof_are_no_questions(read):
    with pytest.raises(PromptError, match=r'line 1: received .*, expected \{"prompt": "text"\}') as caught:
        read(question("writing", "a"), reader=read_prompts)
    assert (
        caught.value.hint
        == "questions with turns are for `speccompile bench` and `compare`: write their first turns as prompts"
    )


def test_plain_turns_continue_what_was_generated(text):
    bundle = toy_bundle(text)
    (case,) = measure(bundle, [Question(("ab", "cd", "ef"), "math")], max_new_tokens=6, repeats=1)
    for answers in (case.speculative[0], case.autoregressive[0]):
        said = [timed.generation.text for timed in answers]
        prompts = ["ab", f"ab\n{said[0]}\ncd", f"ab\n{said[0]}\ncd\n{said[1]}\nef"]
        for prompt, timed in zip(prompts, answers, strict=True):
            alone = toy_bundle(text).generate(prompt, max_new_tokens=6)
            assert timed.generation.token_ids == alone.token_ids
            assert timed.generation.prompt_tokens == len(text.encode(prompt))
    assert (case.group, case.difference()) == ("mt_bench", None)


def test_a_chat_template_writes_the_conversation(text):
    bundle, asked = toy_bundle(text), Question(("ab", "cd"), "qa")
    (case,) = measure(bundle, [asked], max_new_tokens=6, repeats=1, chat=CHAT)
    first, second = case.autoregressive[0]
    written = ["<s>[user]ab", f"<s>[user]ab[assistant]{first.generation.text}[user]cd"]
    for prompt, timed in zip(written, (first, second), strict=True):
        assert (
            timed.generation.token_ids
            == toy_bundle(text).generate(text.encode(prompt, special_tokens=False), max_new_tokens=6).token_ids
        )
    assert ConversationPrompts(bundle, CHAT, 6).form == "chat_template"
    assert ConversationPrompts(bundle, None, 6).form == "plain"
    prompt = Question(("ab",))
    assert ConversationPrompts(bundle, CHAT, 6).token_ids(prompt) == bundle.token_ids(
        "ab"
    )  # prompts are taken as they are


def test_a_turn_that_may_not_fit_is_refused_before_any_work(text):
    bundle = toy_bundle(text)  # capacity 160
    fits, long = Question(("a" * 70, "b" * 60), "qa"), Question(("a" * 70, "b" * 61), "qa")
    refused = "the prompt and the answers before turn 2 may have 160 tokens, which leaves no room in this bundle's"
    with pytest.raises(PromptError, match=f"prompt 2: {refused} capacity of 160"):
        measure(bundle, [fits, long], max_new_tokens=26)
    assert bundle.engine.runs == []
    ConversationPrompts(bundle, None, 26).check(fits)


def test_all_that_are_refused_are_named():
    with pytest.raises(PromptError, match=r"prompt 2: the prompt has 160 tokens, which leaves .*; also refused: 4, 5"):
        measure(toy_bundle(), [[1], [2] * 160, [3], [999], [4] * 200])


def test_an_answer_with_more_tokens_than_were_generated(text):
    asked, longer = Question(("ab", "cd"), "qa"), SimpleNamespace(generation=SimpleNamespace(text="x" * 200))
    refused = "prompt 1, turn 2: the prompt has 207 tokens, more than this bundle's capacity of 160"
    with (
        patch("speccompile.measure.bench.measure.generate_timed", return_value=longer),
        pytest.raises(PromptError, match=refused),
    ):
        measure(toy_bundle(text), [asked], max_new_tokens=6)


def answers(generation, *seconds):
    """Return one answer a turn, each of so many seconds."""
    return tuple(Timed(replace(generation, seconds=each), 0.1, ()) for each in seconds)


def case(number, group, ours, theirs):
    """Return each way: of each repeat the seconds of the turns."""
    spread = [
        tuple(answers(one, *turns) for turns in way) for one, way in ((SPECULATIVE, ours), (AUTOREGRESSIVE, theirs))
    ]
    return PromptRuns(number, *spread, group)


def test_groups_are_means_over_questions_and_ratios_of_means():
    cases = [
        case(1, "mt_bench", [(0.5, 0.9), (0.7, 0.7), (9, 9)], [(1, 1.8), (1.4, 1.4), (2, 0.8)]),  # 7 tokens a turn
        case(2, "rag", [(0.7,)] * 3, [(0.7,)] * 3),
        case(3, "mt_bench", [(0.35, 0.35)] * 3, [(1.4, 1.4)] * 3),
    ]
    mt_bench, rag, overall = make_groups(cases)
    assert mt_bench == Group(
        "mt_bench", 2, GroupStatistics(pytest.approx(15), 2.0), GroupStatistics(pytest.approx(5), 1.0), pytest.approx(3)
    )
    assert rag == Group(
        "rag", 1, GroupStatistics(pytest.approx(10), 2.0), GroupStatistics(pytest.approx(10), 1.0), pytest.approx(1)
    )
    assert (overall.group, overall.prompts) == ("overall", 3)
    assert overall.speculative.tokens_per_second == pytest.approx(40 / 3)
    assert overall.speedup == pytest.approx(2)


def test_prompts_have_no_groups_and_no_drafter_no_speedup():
    assert make_groups([case(1, "prompts", [(1,)], [(1,)])]) == ()
    (alone, _) = make_groups([PromptRuns(1, (), (answers(AUTOREGRESSIVE, 1.4),), "qa")])
    assert (alone.speculative, alone.speedup, alone.autoregressive.tokens_per_second) == (None, None, pytest.approx(5))


def test_sources_and_sounds_are_questions(read, tmp_path):
    found = read(
        {"source": "a", "source_language": "en", "target_language": "de"},
        {"audio": "sounds/a.wav", "language": "en", "text": "what is said"},
        {"audio": "/b.wav"},
        {"prompt": "c", "source": "some dataset"},
    )
    both = (("source_language", "en"), ("target_language", "de"))
    heard = Question((str(tmp_path / "sounds/a.wav"),), given="audio", languages=(("source_language", "en"),))
    assert found[:2] == [Question(("a",), given="source", languages=both), heard]
    assert found[2:] == [Question(("/b.wav",), given="audio"), Question(("c",))]
    request = PassRequest("a", None, "e", None, tuple(found), 1, {})
    assert PassRequest.from_json(json.loads(json.dumps(request.to_json()))) == request


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"source": "a", "audio": "b"}, "line 1: received audio and source, expected one of them"),
        ({"audio": {"data": "AA=="}}, r'line 1: received audio: {"data": "AA=="}, expected the path of a file'),
        ({"source": ["a"]}, r'received source: \["a"\], expected text'),
        ({"source": ""}, "received an empty prompt, expected text"),
        ({"audio": "a.wav", "language": 5}, "received language: 5, expected the name of a language"),
    ],
)
def test_wrong_sources_and_sounds_are_named(read, line, message):
    with pytest.raises(PromptError, match=message) as caught:
        read(line)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("source", "asked", "message"),
    [
        (None, Question(("a",), given="audio"), "received a sound, expected a prompt, as this bundle's target reads"),
        (None, Question(("a",), given="source"), "received a source, expected a prompt"),
        ({}, Question(("a",), given="audio"), "received a sound, expected a source"),
        ({"audio": {}}, Question(("a",)), "received a prompt, expected a sound"),
        ({"audio": {}}, Question(("a",), "qa"), "received a question of category 'qa', expected a source"),
    ],
)
def test_what_a_target_does_not_read_is_refused(source, asked, message):
    bundle = SimpleNamespace(manifest=SimpleNamespace(source=source))
    with pytest.raises(PromptError, match=message) as caught:
        ConversationPrompts(bundle, None, 6).check(asked)
    assert caught.value.hint
