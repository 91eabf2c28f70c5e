"""The loop in C++ over graphs that are arithmetic: every token, count and logprob is Python's, and the formula's.

What is given, committed, drafted, accepted, drawn and penalized all goes into the sums, so that a step that is one off
is another text. Bundles are made here in milliseconds; that whole models give the same is in tests/compile.
"""

import json
from pathlib import Path

import pytest

from speccompile.errors import BundleError, UsageError
from speccompile.runtime import Bundle
from tests.native import native_api
from tests.native.native_api import NativeBundle
from tests.native.side_by_side import SideBySide
from tests.native.toy_onnx import CHUNK, DRAFTS, MAX_LENGTH, VOCABULARY, continuation, write_arithmetic_bundle

KINDS = {
    "alone": {"drafts": False},
    "drafted": {},
    "fused": {"fused": True},
    "sampled": {"samples": True},
    "sampled, fused": {"samples": True, "fused": True},
    "constrained": {"constrained": True},
}
LENGTHS = (1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 1, 3 * CHUNK - 1, 40)
"""Of prompts: around a chunk of the prefill, and around two of them."""
WAYS = ({"adaptive": False}, {}, {"autoregressive": True})
SAMPLED = (
    {"temperature": [0.7, 0.0, 1.5], "seed": [1, 2, 2**64 - 1], "top_k": [0, 5, 40]},
    {"temperature": 1.0, "seed": 7, "top_p": [0.5, 0.9, 1.0], "min_p": [0.0, 0.25, 1.0]},
    {"repetition_penalty": [1.5, 1.0, 0.5]},
    {"frequency_penalty": [0.5, 0.0, -1.25], "presence_penalty": [0.0, 0.0, 2.0]},
    {"logit_bias": [{5: 2.5, 9: -100, 250: 1}, None, {}], "presence_penalty": 1.5, "temperature": 1.0, "seed": 3},
    {"temperature": [1.0, 0.5, 0.0], "seed": 3, "repetition_penalty": [1.25, 1.0, 2.0]},
)


def prompt(length: int) -> list[int]:
    return [(11 + 37 * place + length) % VOCABULARY for place in range(length)]


@pytest.fixture(scope="module")
def opened(tmp_path_factory, native_library: Path, onnxruntime_library: Path):
    """Return a bundle of a kind in both runtimes, made when it is first asked for."""
    made: dict[tuple[object, ...], SideBySide] = {}

    def open_kind(kind: str, **changes: object) -> SideBySide:
        key = (kind, *sorted(changes.items()))
        if key not in made:
            folder = write_arithmetic_bundle(tmp_path_factory.mktemp("bundle") / "b", **KINDS[kind], **changes)
            made[key] = SideBySide(folder, native_library, onnxruntime_library)
        return made[key]

    return open_kind


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_rows_say_the_formula(opened, kind):
    both = opened(kind)
    for start in range(0, len(LENGTHS), 3):
        batch = [prompt(length) for length in LENGTHS[start : start + 3]]
        for way in WAYS:
            found = both.check(batch, max_new_tokens=21, logprobs=True, **way)
            assert [row.token_ids for row in found] == [continuation(each, 21) for each in batch]


@pytest.mark.parametrize("kind", ["alone", "drafted", "fused"])
def test_texts_are_read_in_the_same_windows(opened, kind):
    """Rows of one length side by side and others alone, and rounds no wider than they must be: logprobs tell."""
    both = opened(kind, tells_windows=True)
    for lengths in (LENGTHS[:3], LENGTHS[6:], (5, 5, 5), (5, 5, 6), (6, 5, 5), (9, 17, 17), (5, 6)):
        for way in ({"adaptive": False}, {"autoregressive": True}):
            both.check([prompt(length) for length in lengths], max_new_tokens=9, logprobs=True, **way)


@pytest.mark.parametrize("kind", ["sampled", "sampled, fused"])
@pytest.mark.parametrize("settings", SAMPLED, ids=range(len(SAMPLED)))
def test_sampled_rows_are_python_s(opened, kind, settings):
    """Compare sampled tokens with a fixed draft length: the bundle's arithmetic penalizes only the tokens before a
    window, so with a penalty its tokens depend on that length."""
    both, batch = opened(kind), [prompt(length) for length in (3, 17, 8)]
    is_penalized = "repetition_penalty" in settings
    for way in WAYS:
        if way or not is_penalized:
            both.check(batch, max_new_tokens=25, **settings, **way)
    for few in (1, 2):
        fewer = {name: value[:few] if isinstance(value, list) else value for name, value in settings.items()}
        both.check(batch[:few], max_new_tokens=12, adaptive=not is_penalized, **fewer)


def test_sequences_of_one_prompt_draw_apart(opened):
    found = opened("sampled").check([prompt(5)], num_return_sequences=3, temperature=1.1, seed=9, max_new_tokens=20)
    assert len({tuple(row.token_ids) for row in found}) == 3


def test_what_rounds_cost_is_recorded_alike(tmp_path, monkeypatch, native_library, onnxruntime_library):
    """Compare the form of both records; each runtime has its own, as its kernels are another file."""
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path))
    both = SideBySide(write_arithmetic_bundle(tmp_path / "b"), native_library, onnxruntime_library)
    both.python.generate(prompt(6), max_new_tokens=40)
    both.session.generate([prompt(6)], max_new_tokens=40)
    record, found = (json.loads(file.read_text()) for file in (tmp_path / "times").iterdir())
    assert found["key"].keys() == record["key"].keys()
    differing = [name for name, value in record["key"].items() if found["key"][name] != value]
    assert differing == ["kernels"]
    assert found["found"].keys() == record["found"].keys()
    assert found["found"]["windows"].keys() == record["found"]["windows"].keys()
    assert {found["found"]["processes"], record["found"]["processes"]} <= {1, 2}  # at the opening, and at the end


@pytest.mark.parametrize("kind", KINDS)
def test_rows_end_where_they_must(opened, kind):
    """End at a length, at the end of the caches, and at an end token, which is kept."""
    both = opened(kind)
    for new_tokens in (1, 2, 3, 4, 5):
        (row,) = both.check([prompt(6)], max_new_tokens=new_tokens)
        assert (row.token_ids, row.finish_reason) == (continuation(prompt(6), new_tokens), "length")
    for length in (MAX_LENGTH - 1, MAX_LENGTH - 3, MAX_LENGTH - CHUNK):
        (row,) = both.check([prompt(length)], max_new_tokens=50)
        assert (len(row.token_ids), row.finish_reason) == (MAX_LENGTH - length, "capacity")
        (row,) = both.check([prompt(length)], max_new_tokens=MAX_LENGTH - length)
        assert (len(row.token_ids), row.finish_reason) == (MAX_LENGTH - length, "length")


@pytest.mark.parametrize("kind", ["drafted", "fused"])
def test_ends_lie_anywhere_in_a_round(opened, kind):
    said = continuation(prompt(4), 24)
    for place in range(8):
        both = opened(kind, eos_token_ids=(said[place], VOCABULARY - 1))
        (row, beside) = both.check([prompt(4), prompt(9)], max_new_tokens=24, adaptive=False)
        assert (row.token_ids, row.finish_reason) == (said[: place + 1], "stop")
        assert beside.token_ids == continuation(prompt(9), len(beside.token_ids))


def test_texts_end_before_what_stops_them(opened):
    both = opened("drafted")
    (whole,) = both.check(["def f("], max_new_tokens=24)
    for at in range(0, len(whole.text) - 2, 3):
        stop = whole.text[at : at + 2]
        (row,) = both.check(["def f("], max_new_tokens=24, stop=[stop, "never"], adaptive=False)
        assert (row.text, row.finish_reason) == (whole.text[: whole.text.index(stop)], "stop")


class Told:
    """Proposes what the target will say, wrong at one place, as a chain of so many tokens."""

    def __init__(self, count: int, wrong: int) -> None:
        self.count, self.wrong = count, wrong

    def propose(self, tokens):
        drafts = continuation(tokens, self.count)
        if self.wrong < self.count:
            drafts[self.wrong] = (drafts[self.wrong] + 1) % VOCABULARY
        return drafts, list(range(-1, self.count - 1))


@pytest.mark.parametrize("depth", [DRAFTS, 2])
@pytest.mark.parametrize("count", [0, 1, DRAFTS, DRAFTS + 1, 2 * DRAFTS])
def test_what_the_host_proposes(tmp_path, native_library, onnxruntime_library, count, depth):
    """Take as many proposals as a round has room for, and none deeper than it may accept."""
    folder = write_arithmetic_bundle(tmp_path / "b", drafts=False, tokens=DRAFTS, depth=depth)
    for wrong in (0, 2, count):
        both = SideBySide(folder, native_library, onnxruntime_library, proposer=Told(count, wrong))
        found = both.check([prompt(3), prompt(11)], max_new_tokens=20, adaptive=False)
        assert [row.token_ids for row in found] == [continuation(prompt(length), 20) for length in (3, 11)]
        kept = min(count, depth)
        assert found[0].path_lengths[0] == 1 + min(kept, wrong)
        assert found[0].draft_lengths[0] == kept


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (([VOCABULARY], [-1]), f"token {VOCABULARY} as draft 0"),
        (([-1], [-1]), "token -1 as draft 0"),
        (([1, 2], [-1, 1]), "parent 1 of draft 1"),
        (([1, 2], [-1, -1]), "parent -1 of draft 1"),
        (([1], [-2]), "parent -2 of draft 0"),
        (([1], [0]), "parent 0 of draft 0"),
    ],
)
def test_what_is_no_proposal(tmp_path, native_library, onnxruntime_library, answer, message):
    class Wrong:
        def propose(self, tokens):
            return answer

    folder = write_arithmetic_bundle(tmp_path / "b", drafts=False, tokens=DRAFTS, depth=DRAFTS)
    both = SideBySide(folder, native_library, onnxruntime_library, proposer=Wrong())
    for asked in (both.python.generate_batch, both.session.generate):
        with pytest.raises(UsageError, match=message):
            asked([prompt(3)], max_new_tokens=8, adaptive=False)


@pytest.mark.parametrize("rows", [1, 2])
def test_any_number_of_rows(opened, rows):
    both = opened("drafted", rows=rows)
    batch = [prompt(length) for length in (7, 19)[:rows]]
    found = both.check(batch, max_new_tokens=30, adaptive=False)
    assert [row.token_ids for row in found] == [continuation(each, 30) for each in batch]


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("kind", ["drafted", "fused", "sampled"])
def test_what_is_cancelled_keeps_what_was_whole(opened, kind, steps):
    """Tokens and texts of the steps that ended; a row that had ended stays as it ended. Then the session goes on."""
    session = opened(kind).session
    prompts, said = [prompt(5), prompt(12)], continuation(prompt(5), 30)
    session.start(prompts, max_new_tokens=30, adaptive=False, logprobs=True)
    for _ in range(steps):
        session.step()
    before = [row["token_ids"] for row in session.results()]
    session.cancel()
    with pytest.raises(native_api.NativeError) as raised:
        session.step()
    assert raised.value.kind == native_api.KINDS["CANCELLED"]
    for row, tokens in zip(session.results(), before, strict=True):
        assert (row["token_ids"], row["finish_reason"]) == (tokens, "cancelled")
        assert len(row["logprobs"]) == len(tokens)
    cut = session.results()
    assert cut[0]["token_ids"] == said[: len(before[0])]
    for row, whole in zip(cut, session.generate(prompts, max_new_tokens=30), strict=True):
        assert whole["text"].startswith(row["text"])
        assert row["text"] or len(row["token_ids"]) < 4  # a character has four bytes at most


def test_rows_that_have_ended_stay_so_when_the_others_are_cancelled(opened):
    session = opened("drafted", eos_token_ids=(continuation(prompt(4), 2)[1],)).session
    session.start([prompt(4), prompt(9)], max_new_tokens=40, adaptive=False)
    session.step()
    session.step()
    session.cancel()
    with pytest.raises(native_api.NativeError):
        session.step()
    assert [row["finish_reason"] for row in session.results()] == ["stop", "cancelled"]
    assert session.result(0)["token_ids"] == continuation(prompt(4), 2)


def proof_of(**acceptance: object) -> dict[str, object]:
    return {"engines": [{"engines": ["onnxruntime-cpu"], "acceptance": acceptance}]}


def test_what_a_proof_says_of_drafts_changes_no_token(tmp_path, native_library, onnxruntime_library):
    seen = proof_of(rounds=50, drafted=50, tried=[50, 40, 30], accepted=[40, 30, 20])
    folder = write_arithmetic_bundle(tmp_path / "b", proof=seen)
    both = SideBySide(folder, native_library, onnxruntime_library)
    (row,) = both.check([prompt(9)], max_new_tokens=30)
    assert row.token_ids == continuation(prompt(9), 30)


def test_a_proof_of_other_depths_is_refused_by_both(tmp_path, native_library, onnxruntime_library):
    seen = proof_of(rounds=50, drafted=50, tried=[50, 40], accepted=[40])
    folder = write_arithmetic_bundle(tmp_path / "b", proof=seen)
    said = "proof.json: acceptance of the engine 'onnxruntime-cpu' has counts of 2 and 1 depths, expected 3"
    with pytest.raises(BundleError, match=said):
        Bundle.open(folder)
    with pytest.raises(BundleError, match=said):
        NativeBundle(folder, library=native_library, onnxruntime=onnxruntime_library).session()
