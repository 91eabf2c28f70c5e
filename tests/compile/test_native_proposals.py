"""Drafts that the host gives, in C++: of a bundle's own index, and of a caller's function."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from speccompile.runtime import Bundle
from tests.compile.test_native_runtime import check_everything
from tests.light.test_bundle_reader import hash_again
from tests.native.native_api import NativeBundle
from tests.native.native_errors import KINDS, NativeError
from tests.native.native_log import Log
from tests.native.refusals import in_python
from tests.native.side_by_side import SideBySide
from tests.native.toy_onnx import write_arithmetic_bundle

NEW_TOKENS = 24


@pytest.fixture(scope="module")
def retrieval(built) -> Path:
    return built("retrieval").path


@pytest.fixture(scope="module")
def without_index(retrieval, tmp_path_factory) -> Path:
    folder = shutil.copytree(retrieval, tmp_path_factory.mktemp("open") / "bundle")
    shutil.rmtree(folder / "index")
    hash_again(folder)
    return folder


@pytest.fixture(scope="module")
def of_a_chain(tmp_path_factory) -> Path:
    """Return a bundle whose host's drafts are a chain."""
    folder = tmp_path_factory.mktemp("chain") / "bundle"
    return write_arithmetic_bundle(folder, drafts=False, tokens=3, depth=3)


class Answers:
    """A proposer that always says the same."""

    def __init__(self, tokens: Sequence[int], parents: Sequence[int]) -> None:
        self.answer = tokens, parents
        self.asked: list[list[int]] = []

    def propose(self, tokens: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        self.asked.append(list(tokens))
        return self.answer


class Oracle:
    """Knows how a text goes on; beside it, in a tree, stands what is wrong."""

    def __init__(self, known: list[list[int]]) -> None:
        self.known = known

    def propose(self, tokens: Sequence[int]) -> tuple[list[int], list[int]]:
        text = next((text for text in self.known if text[: len(tokens)] == list(tokens)), [])
        right = text[len(tokens) : len(tokens) + 3]
        return [token for each in right for token in (each ^ 1, each)], [
            parent for depth in range(len(right)) for parent in [2 * depth - 1] * 2
        ]


def test_what_an_index_proposes(built, retrieval, native_library, onnxruntime_library):
    both = SideBySide(retrieval, native_library, onnxruntime_library)
    check_everything(both)
    assert both.native.description["speculative"]
    prompts = built("retrieval").prompts()
    found = [both.check([prompt], max_new_tokens=NEW_TOKENS, adaptive=False)[0] for prompt in prompts]
    assert [each.token_ids for each in found] == [built("retrieval").reference(each, NEW_TOKENS) for each in prompts]
    rounds = [each.rounds for each in found]
    assert min(rounds) * 2 < max(rounds)  # of what the index holds, and of what it does not
    drafts = {drafts for each in found for drafts in each.draft_lengths}
    assert min(drafts) == 0
    assert max(drafts) > 3  # where one text goes on in two ways


@pytest.mark.parametrize("name", ["retrieval", "without_index"])
def test_a_proposer_s_drafts_take_the_place_of_the_index(request, built, name, native_library, onnxruntime_library):
    """Count a round for every four tokens, as the tree is three deep; the second text is not known."""
    prompts = [[5, 6, 7], [9, 8]]
    expected = [built("retrieval").reference(prompt, NEW_TOKENS) for prompt in prompts]
    oracle = Oracle([prompts[0] + expected[0]])
    folder = request.getfixturevalue(name)
    both = SideBySide(folder, native_library, onnxruntime_library, proposer=oracle)
    found = both.check(prompts, max_new_tokens=NEW_TOKENS, adaptive=False)
    assert [each.token_ids for each in found] == expected
    assert found[0].rounds == -(-(len(expected[0]) - 1) // 4)
    assert found[1].rounds == len(expected[1]) - 1
    both.check(prompts, max_new_tokens=NEW_TOKENS)
    both.check(prompts, max_new_tokens=NEW_TOKENS, autoregressive=True)


def test_drafts_beyond_the_tree_are_left_out(without_index, native_library, onnxruntime_library):
    deep, wide = Answers([1, 2, 3, 4, 5, 6], [-1, 0, 1, 2, 3, -1]), Answers([1] * 9, [-1] * 9)
    for answers, drafts in ((deep, 4), (wide, 6), (Answers([], []), 0)):
        both = SideBySide(without_index, native_library, onnxruntime_library, proposer=answers)
        (found,) = both.check([[5, 6]], max_new_tokens=4, adaptive=False)
        assert found.draft_lengths[0] == drafts
        asked = answers.asked
        assert asked[: len(asked) // 2] == asked[len(asked) // 2 :]
        assert asked[0][:2] == [5, 6]


@pytest.mark.parametrize(
    ("tokens", "parents"),
    [([-1], [-1]), ([272], [-1]), ([1, 2**40], [-1, 0]), ([1], [-2]), ([1], [0]), ([1, 2], [-1, 1]), ([1], [2**62])],
)
def test_answers_that_are_refused(without_index, native_library, onnxruntime_library, in_native, tokens, parents):
    check_refused(without_index, native_library, onnxruntime_library, in_native, tokens, parents)


def test_a_tree_where_a_chain_is_judged(of_a_chain, native_library, onnxruntime_library, in_native):
    message = check_refused(of_a_chain, native_library, onnxruntime_library, in_native, [1, 2], [-1, -1])
    assert "this bundle judges a chain" in message


def check_refused(folder, library, onnxruntime, in_native, tokens, parents) -> str:
    answers, good = Answers(tokens, parents), Answers([], [])
    session = NativeBundle(folder, library=library, onnxruntime=onnxruntime, threads=1).session()
    session.propose_with(answers)
    kind, message, hint = in_native(lambda: session.generate([[5, 6]]))
    bundle = Bundle.open(folder, threads=1, proposer=answers)
    theirs = in_python(lambda: bundle.generate([5, 6]))
    assert (kind, message) == theirs[:2]
    assert hint
    session.propose_with(good)
    assert len(session.generate([[5, 6]], max_new_tokens=4)[0]["token_ids"]) == 4
    return message


@pytest.fixture
def asking(retrieval, native_library, onnxruntime_library):
    return NativeBundle(retrieval, library=native_library, onnxruntime=onnxruntime_library, threads=1).session()


@pytest.mark.parametrize("count", [-1, 7, 2**62, -(2**63)])
def test_a_count_that_is_none(asking, in_native, count):
    asking.call_back(lambda *_: count)
    kind, message, hint = in_native(lambda: asking.generate([[5, 6]]))
    assert (kind, message) == ("FAILED", f"proposer: received {count} drafts, expected 0 to 6")
    assert hint
    asking.call_back(None)
    assert len(asking.generate([[5, 6]], max_new_tokens=4)[0]["token_ids"]) == 4


def test_room_and_texts_are_as_they_are_said_to_be(asking, built):
    seen: list[tuple[list[int], int]] = []

    def propose(_user: Any, text: Any, count: int, _drafts: Any, _parents: Any, room: int) -> int:
        seen.append((text[:count], room))
        return 0

    asking.call_back(propose)
    (found,) = asking.generate([[5, 6]], max_new_tokens=5, adaptive=False)
    whole = [5, 6, *found["token_ids"]]
    assert seen == [(whole[:end], 6) for end in range(3, 7)]
    assert found["draft_lengths"] == [0] * 4


def test_a_proposer_drops_the_generation_under_way(asking):
    asking.start([[5, 6]], max_new_tokens=5)
    asking.step()
    asking.propose_with(Answers([], []))
    with pytest.raises(NativeError, match="received a step before a request") as caught:
        asking.step()
    assert caught.value.kind == KINDS["USAGE"]


def test_a_bundle_that_drafts_itself_takes_none(two, lookup):
    session = two.native(lookup, threads=1).session()
    kind, message, _ = two.in_native(lambda: session.propose_with(Answers([], [])))
    assert (kind, message) == in_python(lambda: Bundle.open(lookup, proposer=Answers([], [])))[:2]


def test_without_anybody_who_proposes_it_is_said(without_index, native_library, onnxruntime_library):
    log = Log(native_library)
    try:
        bundle = NativeBundle(without_index, library=native_library, onnxruntime=onnxruntime_library, threads=1)
        (found,) = bundle.session().generate([[5, 6]], max_new_tokens=4)
    finally:
        log.close()
    assert found["mode"] == "autoregressive"
    (line,) = (line for level, line in log.lines if level == 30)
    assert line.startswith("note: this bundle drafts by a proposer, and none is given: one token a round")


def test_the_command_asks_the_index(both, retrieval):
    words = ["generate", retrieval, "--token-ids", "5,6,7", "--json", "--fixed-draft-length", "--threads", 1]
    assert both.same("-q", *words).code == 0


@pytest.mark.parametrize(
    ("name", "content", "again"),
    [
        ("index/index.json", b"{}", True),
        ("index/policy.json", b"{}", True),
        ("index/0.tokens", b"", True),
        ("index/0.tokens", b"", False),
    ],
)
def test_an_index_that_was_changed(two, retrieval, tmp_path, name, content, again):
    folder = shutil.copytree(retrieval, tmp_path / "bundle")
    (folder / name).unlink()  # linked to others
    (folder / name).write_bytes(content)
    if again:
        hash_again(folder)
    ours = two.in_native(lambda: two.native(folder))
    theirs = in_python(lambda: Bundle.open(folder))
    assert (ours[0], ours[2]) == (theirs[0], theirs[2])
    assert str(folder / name) in ours[1]


def test_proposers_in_cpp(native_build, retrieval, lookup, onnxruntime_library):
    """Propose, throw and keep over speccompile.hpp."""
    for folder in (retrieval, lookup):
        command = [native_build / "test_proposers", folder, onnxruntime_library]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
