"""Token Recycling against its reference, and whole bundles with tables that are right, empty and wrong."""

import json

import numpy as np
import pytest
import torch
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from speccompile.cli.generate import command
from speccompile.compiler.build import build
from speccompile.compiler.prove.plain_drafts import SlotRound
from speccompile.compiler.step.draft import Accepted
from speccompile.drafters.token_recycling.drafter import TokenRecycling
from speccompile.drafters.token_recycling.reference import grow, learn
from speccompile.errors import UsageError
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from speccompile.tree import chain, from_branching, from_paths
from tests import zoo
from tests.compile.tiny_bundles import Built, save
from tests.light.forced_lengths import force

pytestmark = pytest.mark.builds(2)

VOCABULARY, RANKS = 12, 3
TREES = [chain(1), chain(4), from_branching([2, 2]), from_paths([[0], [1], [2], [0, 0], [1, 0], [1, 1], [1, 0, 0]])]

Text = list[int]
Rows = list[tuple[int, list[int]]]
"""Tokens of rows with logits, and the target's best behind each."""


def as_dict(table: torch.Tensor) -> dict[int, list[int]]:
    return {token: [e - 1 for e in row if e] for token, row in enumerate(table[:-1].tolist()) if any(row)}


def accepted(texts: list[Text], bonus: list[int], rows: list[Rows]) -> Accepted:
    """Return rows of a round, padded to the widest with tokens that must not be read."""
    width, n_rows = max(map(len, texts)) + 1, max(map(len, rows))
    path = [[*text, b, *[7] * (width - len(text) - 1)] for text, b in zip(texts, bonus, strict=True)]
    padded = [[*row, *[(-1, [9] * RANKS)] * (n_rows - len(row))] for row in rows]
    return Accepted(
        torch.tensor(path), torch.tensor([len(text) for text in texts]), torch.zeros(len(texts), dtype=torch.int64),
        successors=torch.tensor([[best for _, best in row] for row in padded]),
        row_tokens=torch.tensor([[token for token, _ in row] for row in padded]),
    )  # fmt: skip


def empty() -> torch.Tensor:
    return torch.zeros(VOCABULARY + 1, RANKS, dtype=torch.int64)


token = st.integers(0, VOCABULARY - 1)
best = st.lists(token, min_size=RANKS, max_size=RANKS, unique=True)
row_of_batch = st.tuples(
    st.lists(token, max_size=9),
    token,
    st.lists(st.tuples(st.integers(-1, VOCABULARY - 1), best), min_size=1, max_size=5),
)
rounds = st.lists(st.lists(row_of_batch, min_size=2, max_size=2), min_size=1, max_size=3)


@given(rounds=rounds, tree=st.sampled_from(TREES))
def test_rounds_are_those_of_the_reference(rounds, tree):
    drafter, table, known = TokenRecycling(tree, RANKS, VOCABULARY), empty(), {}
    for batch in rounds:
        texts, bonus, rows = (list(each) for each in zip(*batch, strict=True))
        rows = [its if text else [(-1, best) for _, best in its] for text, its in zip(texts, rows, strict=True)]
        drafted = drafter(accepted(texts, bonus, rows), [table])
        table = drafted.states[0]
        read = [SlotRound([*text, end], 0, rows=its) for text, end, its in zip(texts, bonus, rows, strict=True)]
        known |= learn(known, read, RANKS)
        assert as_dict(table) == known
        assert not table[-1].any()  # nobody's row says nothing, whoever wrote there
        for index, text in enumerate(texts):
            expected = grow(known, bonus[index], tree).tokens
            assert drafted.n_total[index] == (1 + len(expected) if text else 1)
            got = drafted.window[index, 1 : 1 + len(expected)].tolist()
            assert [
                each if wanted is not None else None for each, wanted in zip(got, expected, strict=True)
            ] == expected


def test_a_round_by_hand():
    """Compare with a table by hand: text 1 2 1 3 with bonus 4, then a round that refuses draft 5 behind 4 and learns
    from it."""
    drafter = TokenRecycling(from_branching([2, 1]), RANKS, VOCABULARY)
    text = accepted([[1, 2, 1, 3]], [4], [[(3, [4, 5, 6])]])
    drafted = drafter(text, [empty()])
    table = drafted.states[0]
    assert as_dict(table) == {1: [3, 2], 2: [1], 3: [4, 5, 6]}
    assert (drafted.window[0, 0], drafted.n_total[0]) == (4, 1)  # nothing is known behind 4

    drafted = drafter(accepted([[4]], [1], [[(4, [1, 5, 2]), (5, [8, 9, 0])]]), [table])
    assert as_dict(drafted.states[0]) == {1: [3, 2], 2: [1], 3: [4, 5, 6], 4: [1, 5, 2], 5: [8, 9, 0]}
    assert drafted.window[0].tolist() == [1, 3, 2, 4, 1]
    assert drafted.n_total[0] == 5


def test_of_equal_tokens_the_last_row_wins():
    """Write rows across the batch, and over those of the text alone."""
    drafter = TokenRecycling(chain(1), RANKS, VOCABULARY)
    rows = [[(5, [1, 2, 3]), (5, [2, 3, 4]), (6, [1, 2, 3])], [(5, [7, 8, 9]), (-1, [0, 1, 2])]]
    for _ in range(20):  # a scatter of duplicates may come out either way
        drafted = drafter(accepted([[5, 6], [5, 5]], [1, 2], rows), [empty()])
        assert as_dict(drafted.states[0]) == {5: [7, 8, 9], 6: [1, 2, 3]}


def test_idle_rows_neither_write_nor_draft():
    drafter = TokenRecycling(chain(2), RANKS, VOCABULARY)
    table = empty()
    table[3] = torch.tensor([5, 0, 0])
    drafted = drafter(accepted([[], [1]], [3, 3], [[(-1, [1, 2, 3])], [(1, [4, 5, 6])]]), [table])
    assert as_dict(drafted.states[0]) == {1: [4, 5, 6], 3: [4]}
    assert drafted.n_total.tolist() == [1, 2]  # its second draft is no guess: nothing is known behind 4
    assert drafted.window[1, :2].tolist() == [3, 4]


def test_drafts_are_tokens_whatever_the_table_holds():
    drafter = TokenRecycling(from_branching([3, 3, 3]), RANKS, VOCABULARY)
    poison = torch.randint(-(10**12), 10**12, (VOCABULARY + 1, RANKS), generator=torch.Generator().manual_seed(0))
    window = drafter(accepted([[1, 2]], [3], [[(2, [4, 5, 6])]]), [poison]).window
    assert window.min() >= 0
    assert window.max() < VOCABULARY


RECIPE = {
    "name": "tiny",
    "target": {"model": "target"},
    "drafter": {"kind": "token_recycling", "nodes": 12, "top_k": 4},
    "decoding": "sampling",
    "cache": {"max_length": 128, "batch_size": 3, "prefill_chunk": 16},
    "prove": {"max_new_tokens": 16},
}


@pytest.fixture(
    scope="module",
    params=["separate", pytest.param("fused", marks=pytest.mark.sweep("a bundle that samples, with its proof"))],
)
def built(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    save(zoo.model("llama"), folder / "target")
    (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE | {"graphs": request.param}))
    build(make_plan(load_recipe(folder / "recipe.yaml")), folder / "bundle", prove=request.param == "fused")
    return Built(folder)


def tables(bundle: Bundle):
    """Yield what the table may hold: nothing, what earlier texts taught, and nonsense."""
    size, ranks = next(t.shape for g in bundle.manifest.graphs for t in g.inputs if t.buffer == "kept.table")
    random = np.random.default_rng(3)
    yield np.zeros((size, ranks), np.int64)
    yield random.integers(0, size, (size, ranks))
    yield random.integers(-(2**62), 2**62, (size, ranks))
    yield np.full((size, ranks), 5)


def test_greedy_tokens_are_those_of_transformers_whatever_the_table_holds(built):
    bundle, prompts = built.bundle, built.prompts()
    for table in tables(bundle):
        for first in range(0, len(prompts), 3):
            group = prompts[first : first + 3]
            bundle.engine.write_state("kept.table", table)
            found = bundle.generate_batch(group, max_new_tokens=30, adaptive=False)
            assert [each.token_ids for each in found] == [built.reference(prompt) for prompt in group]


def test_one_seed_gives_the_same_tokens_whatever_the_table_holds(built):
    bundle, prompts, options = built.bundle, built.prompts()[2:5], {"max_new_tokens": 30, "temperature": 0.8, "seed": 4}
    expected = [each.token_ids for each in bundle.generate_batch(prompts, autoregressive=True, **options)]
    for table in tables(bundle):
        bundle.engine.write_state("kept.table", table)
        found = bundle.generate_batch(prompts, adaptive=False, **options)
        assert [each.token_ids for each in found] == expected


def test_what_one_generation_taught_serves_the_next_until_it_is_reset(built, tmp_path):
    bundle, prompt, file = built.bundle, built.prompts()[3], tmp_path / "learned.safetensors"

    def rounds() -> int:
        return bundle.generate(prompt, max_new_tokens=30, adaptive=False).rounds

    bundle.reset()
    first, second = rounds(), rounds()
    assert second < first
    bundle.save_kept(file)
    third = rounds()
    bundle.reset()
    assert rounds() == first
    bundle.load_kept(file)
    assert rounds() == third
    other = Bundle.open(built.path, threads=1)  # as another process would
    other.load_kept(file)
    assert other.generate(prompt, max_new_tokens=30, adaptive=False).rounds == third


@pytest.mark.parametrize("built", ["separate"], indirect=True)
@pytest.mark.parametrize("autoregressive", [False, True])
def test_it_learns_while_nothing_is_drafted(built, autoregressive):
    """Update the table in paused rounds, as time of drafting, and not at all where no drafts are asked for."""
    bundle, prompt = (
        Bundle.open(built.path, threads=1),
        built.prompts()[3],
    )  # with a policy of its own
    force(bundle, [1])
    found = bundle.generate(prompt, max_new_tokens=12, autoregressive=autoregressive)
    assert found.token_ids == built.reference(prompt)[:12]
    assert set(found.draft_lengths) == {0}
    table = next(t for g in bundle.manifest.graphs for t in g.inputs if t.buffer == "kept.table")
    learned = as_dict(torch.from_numpy(bundle.engine.host_view("kept.table", table.shape).copy()))
    text = [*prompt, *found.token_ids]
    if autoregressive:
        assert learned == {}
        assert found.draft_seconds == 0
    else:  # every token but the last round's, which nobody read
        assert set(learned) >= set(text[:-2])
        assert found.draft_seconds > 0


def test_the_command_line_goes_on_from_a_file(built, tmp_path):
    file, prompt = tmp_path / "learned", ",".join(map(str, built.prompts()[3]))

    def rounds(*options: str) -> int:
        arguments = [str(built.path), "--token-ids", prompt, "--max-new-tokens", "30", "--fixed-draft-length", "--json"]
        result = CliRunner().invoke(command, [*arguments, "--state", str(file), *options], catch_exceptions=False)
        return json.loads(result.stdout)["rounds"]

    first = rounds()
    assert file.is_file()
    assert rounds() < first
    assert rounds("--reset") == first
    assert rounds() < first
    with pytest.raises(UsageError, match=r"--state .*: there is no folder .*nowhere"):
        rounds("--state", str(tmp_path / "nowhere" / "file"))
