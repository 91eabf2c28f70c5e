"""Drafts that the host gives, over a toy engine: the target's own tokens, whatever is proposed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.errors import UsageError
from speccompile.runtime import Bundle
from speccompile.runtime.rounds.host_drafts import HostDrafts, find_proposer
from tests.light.fake_bundle import toy_bundle, toy_manifest, write_toy_bundle
from tests.light.forced_lengths import force
from tests.light.toy_engine import ToyEngine
from tests.light.toy_models import VOCABULARY, autoregressive

PROMPT = [3, 1, 4, 1, 5]
NODES, DEPTH = 6, 3

prompts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=20)
nodes = st.lists(st.tuples(st.integers(-1, 10), st.booleans()), max_size=10)


class Oracle:
    """Proposes trees of any form: a node is the token that the target adds after its parent, or that token plus one."""

    def __init__(self, forms: Sequence[Sequence[tuple[int, bool]]]) -> None:
        self.forms, self.texts, self.answers = forms, list[list[int]](), list[tuple[list[int], list[int]]]()

    def propose(self, tokens: Sequence[int]) -> tuple[list[int], list[int]]:
        drafts, parents, behind = list[int](), list[int](), {-1: list(tokens)}
        for parent, right in self.forms[len(self.texts) % len(self.forms)]:
            parent = min(parent, len(drafts) - 1)
            token = autoregressive(behind[parent], 1)[0] + (not right)
            if (token, parent) in zip(
                drafts, parents, strict=True
            ):  # of equal siblings the toy follows the first alone
                continue
            drafts.append(token)
            parents.append(parent)
            behind[len(drafts) - 1] = [*behind[parent], drafts[-1]]
        self.texts.append(list(tokens))
        self.answers.append((drafts, parents))
        return drafts, parents


def host_bundle(proposer, tree: str = "dynamic", **changes) -> Bundle:
    """Return a bundle without a graph that drafts."""
    shape = {"tokens": NODES, "depth": DEPTH if tree == "dynamic" else NODES, "catch_up": 0}
    made = toy_manifest(tree=tree, **(shape | changes))
    graphs, files = made.graphs[:1], {"verify": "graphs/verify.onnx"}
    engines = tuple(replace(each, graphs=graphs, files=files) for each in made.engines)
    made = replace(made, graphs=graphs, engines=engines)
    return Bundle(made, ToyEngine(made), made.engines[0], None, None, proposer)


def chains(length: int):
    """Return what `Oracle` makes a chain of."""
    return [(node - 1, True) for node in range(length)]


def accepted(text: Sequence[int], answer: tuple[list[int], list[int]], most: int = NODES, depth: int = DEPTH) -> int:
    """Return the number of drafts on the longest accepted path, of those that fit into a window."""
    good, kept = {-1: 0}, 0
    right = autoregressive(text, depth)
    depths = {-1: 0}
    for node, (token, parent) in enumerate(zip(*answer, strict=True)):
        depths[node] = depths[parent] + 1
        if depths[node] <= depth and kept < most:
            kept += 1
            if parent in good and good[parent] < depth and right[good[parent]] == token:
                good[node] = good[parent] + 1
    return max(good.values())


@given(st.lists(prompts, min_size=1, max_size=3), st.lists(nodes, min_size=1, max_size=4), st.integers(1, 30))
@settings(max_examples=100)
def test_every_row_gets_the_targets_own_tokens_from_any_trees(rows, forms, count):
    oracle = Oracle(forms)
    bundle = host_bundle(oracle, batch_size=len(rows), max_length=64)
    for speculative in (True, False, True):
        oracle.texts.clear(), oracle.answers.clear()
        generations = bundle.generate_batch(rows, max_new_tokens=count, autoregressive=not speculative, adaptive=False)
        for prompt, generation in zip(rows, generations, strict=True):
            assert generation.token_ids == autoregressive(prompt, count)
            assert generation.mode == ("speculative" if speculative else "autoregressive")
        assert bool(oracle.texts) <= speculative
        if len(rows) == 1 and speculative:
            lengths = [1 + accepted(text, its) for text, its in zip(oracle.texts, oracle.answers, strict=True)]
            assert generations[0].path_lengths == lengths


def test_a_proposer_reads_the_whole_text_and_a_round_is_as_wide_as_its_answer():
    oracle = Oracle([[], chains(2), chains(NODES)])
    bundle = host_bundle(oracle, tree="chain")
    widths, forward = [], bundle._loop.rounds.forward
    bundle._loop.rounds.forward = lambda window, *rest, **more: (widths.append(window), forward(window, *rest, **more))[
        1
    ]
    generation = bundle.generate(PROMPT, max_new_tokens=30, adaptive=False)
    whole = PROMPT + generation.token_ids
    assert [text == whole[: len(text)] for text in oracle.texts] == [True] * generation.rounds
    assert widths == [len(PROMPT), *([1, 3, NODES + 1] * generation.rounds)[: generation.rounds]]
    assert generation.draft_lengths == [width - 1 for width in widths[1:]]
    assert generation.path_lengths == widths[1:]  # all of them came true


@pytest.mark.parametrize("tree", ["chain", "dynamic"])
@pytest.mark.parametrize("sampling", [False, True], ids=["greedy", "sampling"])
def test_the_draft_length_changes_no_token(tree, sampling):
    forms = [chains(NODES), [], chains(1)]
    bundle = host_bundle(Oracle(forms), tree=tree, batch_size=2, sampling=sampling)
    options = {"temperature": 1.0, "seed": 5} if sampling else {}
    rows, many = [PROMPT, PROMPT[::-1] * 3], {"max_new_tokens": 40, **options}
    alone = [each.token_ids for each in bundle.generate_batch(rows, autoregressive=True, **many)]
    policy = force(bundle, [NODES + 1, 1, 3, 1, 1, NODES + 1, 2])
    assert [each.token_ids for each in bundle.generate_batch(rows, **many)] == alone
    assert {1, NODES + 1} <= set(policy.chosen)
    assert not policy.caught_up_with


def test_nothing_is_proposed_where_the_policy_asks_for_nothing():
    oracle = Oracle([chains(NODES)])
    bundle = host_bundle(oracle)
    force(bundle, [1])
    assert bundle.generate(PROMPT, max_new_tokens=20).path_lengths == [1] * 19
    assert not oracle.texts


def written(answer, most: int = NODES, **changes):
    """Return the window and the parents that an answer becomes."""

    class Fixed:
        def propose(self, tokens):
            return answer

    bundle = host_bundle(Fixed(), **changes)
    window, parents = np.full(NODES + 1, 99), np.full(NODES + 1, -1)
    count = HostDrafts(Fixed(), bundle.manifest).write([7, 8], window, parents, most)
    return window[: count + 1].tolist(), parents[: count + 1].tolist()


def test_nodes_are_numbered_behind_the_text():
    assert written(([5, 6, 7], [-1, -1, 1])) == ([8, 5, 6, 7], [-1, 0, 0, 2])
    assert written((np.array([5, 6]), np.array([-1, 0], np.int32))) == ([8, 5, 6], [-1, 0, 1])
    assert written(([], [])) == ([8], [-1])


def test_what_the_window_has_no_room_for_is_left_out():
    assert written(([1, 2, 3, 4], [-1, -1, -1, -1]), most=2) == ([8, 1, 2], [-1, 0, 0])
    deep = ([1, 2, 3, 4, 5, 6], [-1, 0, 1, 2, 3, -1])  # two are deeper than DEPTH, the last is not
    assert written(deep) == ([8, 1, 2, 3, 6], [-1, 0, 1, 2, 0])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (([1, 2], [-1]), "received 2 tokens and 1 parents, expected one parent for each token"),
        (([VOCABULARY], [-1]), f"received token {VOCABULARY} as draft 0, expected tokens from 0 to {VOCABULARY - 1}"),
        (([-1], [-1]), "received token -1 as draft 0"),
        (([1, 2], [1, -1]), "received parent 1 of draft 0, expected a draft before it, or -1 for the text"),
        (([1], [0]), "received parent 0 of draft 0"),
        (([1], [-2]), "received parent -2 of draft 0"),
        (([1.5], [-1]), r"received \(\[1.5\], \[-1\]\), expected two lists of whole numbers"),
        ((["a"], [-1]), "expected two lists of whole numbers"),
        ([1, 2, 3], "received \\[1, 2, 3\\], expected two lists of whole numbers"),
        (None, "received None, expected two lists"),
    ],
)
def test_an_answer_that_is_no_draft_is_refused(answer, message):
    with pytest.raises(UsageError, match=f"^proposer: .*{message}") as caught:
        written(answer)
    assert caught.value.hint


def test_a_bundle_that_judges_chains_refuses_a_tree():
    with pytest.raises(
        UsageError, match="received parent -1 of draft 1, expected parent 0: this bundle judges a chain"
    ):
        written(([1, 2], [-1, -1]), tree="chain")


def test_a_bundle_that_drafts_itself_takes_no_proposer(tmp_path):
    bundle = toy_bundle()
    with pytest.raises(UsageError, match=r"proposer: received one for a bundle of drafter.kind \w+, expected none"):
        find_proposer(tmp_path, bundle.manifest, Oracle([[]]))
    with pytest.raises(UsageError, match=r"proposer: received int, expected an object with a method propose\(tokens\)"):
        find_proposer(tmp_path, host_bundle(None).manifest, 5)


def test_without_a_proposer_decoding_is_autoregressive_and_says_so(tmp_path, caplog):
    made = host_bundle(None)
    assert find_proposer(tmp_path, made.manifest, None) is None
    assert "this bundle drafts by a proposer, and none is given" in caplog.text
    generation = made.generate(PROMPT, max_new_tokens=9)
    assert (generation.mode, generation.token_ids) == ("autoregressive", autoregressive(PROMPT, 9))


def test_an_error_of_a_proposer_comes_through_and_leaves_the_bundle_usable():
    class Broken:
        def propose(self, tokens):
            raise KeyError("its own")

    bundle = host_bundle(Broken())
    with pytest.raises(KeyError, match="its own"):
        bundle.generate(PROMPT, max_new_tokens=9)
    assert bundle.generate(PROMPT, max_new_tokens=9, autoregressive=True).token_ids == autoregressive(PROMPT, 9)


def test_a_bundle_is_opened_with_a_proposer(tmp_path, monkeypatch):
    made = host_bundle(None).manifest
    folder = write_toy_bundle(
        tmp_path / "bundle", tree="dynamic", graphs=made.graphs, engines=made.engines, tokens=NODES
    )
    monkeypatch.setattr("speccompile.runtime.bundle.open_engine", lambda folder, entry, *rest, **more: ToyEngine(made))
    monkeypatch.setattr("speccompile.runtime.bundle.cached_invariance", lambda *rest: host_bundle(None).exactness)
    oracle = Oracle([chains(2)])
    bundle = Bundle.open(folder, proposer=oracle)
    assert bundle.proposer is oracle
    assert bundle.speculative
    assert bundle.generate(PROMPT, max_new_tokens=9).token_ids == autoregressive(PROMPT, 9)
    assert oracle.texts
