"""Generations and bundles that say what they are, to people and to notebooks."""

import copy
import dataclasses
import pickle
import re
from html.parser import HTMLParser

from tests.light.serve_example import chat_bundle
from tests.light.toy_models import autoregressive, drafts

PROMPT = [3, 1, 4, 1, 5]


def test_accepted_draft_tokens_are_those_that_the_drafter_said():
    bundle, count = chat_bundle(tokens=4), 40
    text, expected = [*PROMPT, autoregressive(PROMPT, 1)[0]], [False]
    while len(expected) < count:
        right = autoregressive(text, 5)
        said = drafts(text, 4)
        kept = next((place for place, token in enumerate(said) if token != right[place]), len(said))
        expected += [True] * kept + [False]
        text += right[: kept + 1]
    found = bundle.generate(PROMPT, max_new_tokens=count, adaptive=False)
    assert found.draft_mask == expected[:count]
    assert 0 < sum(found.draft_mask) < count
    assert sum(bundle.generate(PROMPT, max_new_tokens=count, autoregressive=True).draft_mask) == 0
    (served,) = bundle.serve().submit(PROMPT, max_new_tokens=count, adaptive=False).generations()
    assert served.draft_mask == expected[:count]


def test_a_generation_says_what_it_is_and_keeps_its_names():
    found = chat_bundle(tokens=4).generate(PROMPT, max_new_tokens=30, adaptive=False)
    assert found.acceptance_length == found.mean_accepted == found.to_json()["mean_accepted"] == 29 / found.rounds
    assert "acceptance_length" not in found.to_json()
    assert 0 < found.first_token_seconds < found.seconds
    times = found.timings
    assert (times.seconds, times.prefill, times.rounds) == (found.seconds, found.prefill_seconds, found.round_seconds)
    assert (times.verify, times.draft, times.encode) == (found.verify_seconds, found.draft_seconds, None)
    assert (times.queue, times.first_token) == (0, found.first_token_seconds)
    assert re.fullmatch(
        r"<Generation: 30 tokens, [\d.]+ tokens/s, acceptance length [\d.]+, .*speculative, finish reason length: '.*>",
        repr(found),
    )
    assert len(repr(found)) < 250
    again = pickle.loads(pickle.dumps(found))
    assert again == found == copy.deepcopy(found)
    assert dataclasses.asdict(found)["acceptance_length"] == found.acceptance_length
    assert type(found)(**dataclasses.asdict(found)) == found
    assert "accepted draft tokens" not in again._repr_html_()  # it lacks the tokenizer


class Read(HTMLParser):
    """Reads HTML as a browser: the text of the answer, the marked text in it, and every tag."""

    def __init__(self, html):
        super().__init__()
        self.text, self.marked, self.tags, self.attributes = "", "", [], set()
        self.open = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "pre" in self.open:
            self.text += data
            self.marked += data if self.open[-1] == "span" else ""


def test_a_notebook_shows_the_text_with_accepted_drafts_marked():
    bundle = chat_bundle(tokens=4)
    found = bundle.generate(PROMPT, max_new_tokens=60, adaptive=False)
    read = Read(found._repr_html_())
    assert read.text == found.text
    assert {*read.tags} == {"div", "span", "pre"}
    assert read.attributes == {"style"}
    letters = {  # a token of the toy tokenizer is a byte: those of ASCII are a character each
        chr(token + 33) for token, is_draft in zip(found.token_ids, found.draft_mask, strict=True)
        if is_draft and token < 94
    }  # fmt: skip
    assert letters
    assert letters <= set(read.marked)
    assert 0 < len(read.marked) < len(found.text)
    stopped = bundle.generate(PROMPT, max_new_tokens=60, adaptive=False, stop=found.text[20:24])
    assert Read(stopped._repr_html_()).text == stopped.text


def test_a_notebook_runs_nothing_that_a_model_says():
    evil = "<script>alert(1)</script>&lt;<img src=x onerror=alert(1)>\"'</pre>"
    bundle = chat_bundle()
    found = bundle.generate(PROMPT, max_new_tokens=5)
    for kept in (found, pickle.loads(pickle.dumps(found))):
        shown = dataclasses.replace(kept, text=evil, finish_reason=evil)
        read = Read(shown._repr_html_())
        assert (read.text, {*read.tags}) == (evil, {"div", "pre"})
    ids = chat_bundle(text=False, tokens=4).generate(PROMPT, max_new_tokens=30, adaptive=False)
    assert Read(ids._repr_html_()).text == ", ".join(map(str, autoregressive(PROMPT, 30)))
    assert Read(ids._repr_html_()).marked


def test_a_bundle_says_what_it_is():
    bundle = chat_bundle(batch_size=2)
    assert repr(bundle) == (
        "<Bundle demo: a target with a drafter (4 draft tokens), onnxruntime-cpu in float32, greedy decoding, "
        "160 tokens, batch 2>"
    )
    assert "with no drafter, " in repr(chat_bundle(speculative=False))
