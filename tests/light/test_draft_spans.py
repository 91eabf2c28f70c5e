"""Accepted draft tokens in streams that are asked for them, and capabilities of a model at /bundle."""

import jsonschema
import pytest

from speccompile.serving.http.app import Settings
from speccompile.serving.http.openapi import SCHEMAS
from speccompile.serving.scheduler import OutputDelta
from speccompile.serving.scheduler.draft_spans import DraftSpans
from tests.light.fake_bundle import TEMPLATE as FIRST_MESSAGE_ALONE
from tests.light.forced_lengths import force
from tests.light.serve_example import chat_bundle, toy_server, toy_text
from tests.light.test_serve_lives import generation


@pytest.fixture(scope="module")
def server():
    """Yield a server that drafts 4 tokens, none and 1 in turn, whatever the clock says."""
    with toy_server(batch_size=2) as running:
        force(running.model.bundle, [5, 1, 2])
        yield running


def drafts_of(events):
    return [choice["drafts"] for event in events for choice in event["choices"] if "drafts" in choice]


def text_of(events):
    choices = [choice for event in events for choice in event["choices"]]
    return "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices)


@pytest.mark.parametrize("stop", [[], ["zz"], ["a"]])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_spans_are_the_text_and_counts_those_of_the_usage(server, path, stop):
    prompt = {"prompt": "def"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "def"}]}
    asked = prompt | {"max_tokens": 80, "stream": True, "stop": stop, "stream_options": {"include_usage": True}}
    plain = server.post(path, **asked).events
    events = server.post(path, **asked, return_drafts=True).events
    drafts = drafts_of(events)
    for each in drafts:
        jsonschema.validate(each, SCHEMAS["Drafts"])
    assert drafts_of(plain) == []
    assert text_of(events) == text_of(plain)
    assert "".join(span["text"] for each in drafts for span in each["spans"]) == text_of(events)
    counted = events[-1]["usage"]["completion_tokens_details"]
    accepted = sum(each["accepted_tokens"] for each in drafts)
    assert {0, 4} <= {each["draft_tokens"] for each in drafts}
    assert any(span["draft"] for each in drafts for span in each["spans"])
    assert accepted == counted["accepted_prediction_tokens"]
    assert sum(each["draft_tokens"] for each in drafts) - accepted == counted["rejected_prediction_tokens"]


def test_without_drafts_no_text_is_theirs(server):
    asked = {"prompt": "def", "max_tokens": 40, "stream": True, "return_drafts": True, "speculative": False}
    drafts = drafts_of(server.post("/v1/completions", **asked).events)
    assert len(drafts) == 40
    assert {(each["draft_tokens"], each["accepted_tokens"]) for each in drafts} == {(0, 0)}
    assert not [span for each in drafts for span in each["spans"] if span["draft"]]


def test_without_a_stream_they_are_refused(server):
    error = server.complete(return_drafts=True).error
    assert error["message"] == "return_drafts: received it without stream (hint: set stream to true)"
    assert error["param"] == "return_drafts"


def tokens(text):
    return toy_text().encode(text, special_tokens=False)


def spans(found):
    return [(span["text"], span["draft"]) for span in found["spans"]]


def test_the_first_tokens_of_a_round_are_the_accepted_ones():
    reader = DraftSpans(toy_text(), tokens("x"))
    assert spans(reader.read(OutputDelta(0, "abc", tokens("abc"), draft_tokens=4, accepted=2), "abc")) == [
        ("ab", True), ("c", False),
    ]  # fmt: skip
    assert spans(reader.read(OutputDelta(0, "d", tokens("d")), "d")) == [("d", False)]


def test_text_that_is_held_back_is_said_of_when_it_is_sent():
    reader = DraftSpans(toy_text(), tokens("x"))
    assert spans(reader.read(OutputDelta(0, "a", tokens("abc"), draft_tokens=4, accepted=2), "a")) == [("a", True)]
    end = OutputDelta(0, "bcd", tokens("d"), generation=generation("abcd"))
    assert spans(reader.read(end, "bcd")) == [("b", True), ("cd", False)]


def test_a_character_is_of_its_last_token():
    first, second = tokens("é")
    reader = DraftSpans(toy_text(), tokens("x"))
    assert spans(reader.read(OutputDelta(0, "", [first], draft_tokens=3, accepted=1), "")) == []
    assert spans(reader.read(OutputDelta(0, "é", [second]), "é")) == [("é", False)]
    broken = OutputDelta(0, "\N{REPLACEMENT CHARACTER}", [first], generation=generation())
    assert spans(reader.read(broken, "\N{REPLACEMENT CHARACTER}")) == [("\N{REPLACEMENT CHARACTER}", False)]


def test_without_a_tokenizer_there_is_no_text():
    found = DraftSpans(None, [1]).read(OutputDelta(0, "", [1, 2], draft_tokens=4, accepted=1), "")
    assert found == {"draft_tokens": 4, "accepted_tokens": 1, "spans": []}


@pytest.mark.parametrize(("changes", "expected"), [
    ({}, {"chat": True, "system_prompt": True, "text": True, "images": False, "decoding": "greedy",
          "draft_tokens": 4}),
    ({"chat": False}, {"chat": False, "system_prompt": False, "text": True}),
    ({"text": False}, {"chat": False, "text": False}),
    ({"speculative": False}, {"speculative": False, "drafting_method": None, "draft_tokens": 0, "draft_depth": 0}),
    ({"plan": {"verify": {"method": "exact"}, "drafter": {"kind": "eagle3"}}}, {"drafting_method": "eagle3"}),
    ({"sampling": True, "sample": True, "tree": "static", "batch_size": 2}, {"decoding": "sampling", "draft_depth": 3}),
])  # fmt: skip
def test_the_bundle_says_what_it_can_do(changes, expected):
    with toy_server(**changes) as running:
        found = running.ask("GET", "/bundle").json
    jsonschema.validate(found, SCHEMAS["Bundle"])
    assert expected.items() <= found.items()
    assert (found["model"], found["max_model_len"]) == ("toy", 160)


@pytest.mark.parametrize("template", [
    FIRST_MESSAGE_ALONE.replace("messages[0]", "messages[-1]"),
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}",
])  # fmt: skip
def test_a_template_without_system_prompts_is_found(template):
    from speccompile.serving.http.capabilities import capabilities

    bundle = chat_bundle()
    bundle.chat_template = (template, {"bos_token": "<s>"})
    found = capabilities(bundle, model="toy", speculative=False)
    assert (found["chat"], found["system_prompt"], found["speculative"]) == (True, False, False)


def test_the_servers_default_is_told():
    with toy_server(Settings(speculative=False)) as running:
        assert running.ask("GET", "/bundle").json["speculative"] is False
