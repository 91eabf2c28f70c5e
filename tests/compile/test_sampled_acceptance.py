"""Acceptance in eager torch, thousands of rounds in one batch, against the distribution that transformers' processors
leave of the target's logits: after right rules nothing of the drafts is left in it."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from speccompile.bundle.sampling import SamplingParams
from speccompile.compiler.prove.chi_square import chi_square
from speccompile.compiler.prove.processors import probabilities
from speccompile.compiler.step import ops
from speccompile.compiler.step.sampling import Settings, apply_temperature_and_penalty, candidates
from speccompile.compiler.step.verify import Acceptance, RoundInputs
from speccompile.compiler.step.verify.rules import Exact
from speccompile.compiler.step.verify.sampled import AcceptanceTest, DraftDistribution, Speculative
from speccompile.compiler.step.verify.target import Target
from speccompile.compiler.step.window import ChainLayout, TreeLayout
from speccompile.tree import Tree, chain, from_branching, from_paths

VOCABULARY, CANDIDATES, ROUNDS, ROOT, BEFORE = 12, 5, 20_000, 3, [7, 1]
TREES = {
    "chain of one": chain(1),
    "chain": chain(3),
    "siblings": from_branching([3]),
    "tree": from_branching([2, 2]),
    "uneven tree": from_paths([[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 1, 0], [0, 1, 1]]),
}
SETTINGS = (
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.6, top_k=4),
    SamplingParams(temperature=1.4, top_p=0.7),
    SamplingParams(temperature=1.0, top_k=9, top_p=0.9, min_p=0.05, repetition_penalty=1.5),
)

MORE = "20,000 rounds for each tree and setting; two trees, one with every setting, are in the first tier"


def tables(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return logits float32 [V, V] after every token: the target's, and those of a drafter that resembles it."""
    random = torch.Generator().manual_seed(seed)
    target = torch.randn(VOCABULARY, VOCABULARY, generator=random) * 1.5
    return target, target + torch.randn(VOCABULARY, VOCABULARY, generator=random)


def settings(sampling: SamplingParams) -> Settings:
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
    rows = [torch.tensor(getattr(sampling, name)).expand(ROUNDS) for name in names]
    return Settings(*rows, history=torch.tensor(BEFORE).expand(ROUNDS, -1))


@dataclass
class Drafts:
    """tokens int64 [B, N + 1]; ids, probs [B, N, C], where they were drawn."""

    tokens: Tensor
    ids: Tensor | None
    probs: Tensor | None


def drawn(tree: Tree, sampling: SamplingParams) -> Drafts:
    """Draw children by torch's own sampling without replacement, from the candidates of the drafter's table."""
    torch.manual_seed(1)
    shaped = candidates(
        (tables()[1] / sampling.temperature)[None].expand(ROUNDS, -1, -1), CANDIDATES, settings(sampling)
    )
    tokens = torch.full((ROUNDS, tree.drafts + 1), ROOT)
    ids, probs, rows = [], [], torch.arange(ROUNDS)
    for node in range(tree.drafts):
        ids.append(shaped.ids[rows, tokens[:, node]])
        children = tree.children[node]
        probs.append(shaped.probs[rows, tokens[:, node]] if children else torch.zeros(ROUNDS, CANDIDATES))
        if children:
            # A filter may leave fewer than there are children; those behind them have no probability.
            chosen = torch.multinomial(probs[-1] + 1e-30, len(children))
            tokens[:, children[0] : children[-1] + 1] = ids[-1].gather(1, chosen)
    return Drafts(tokens, torch.stack(ids, 1), torch.stack(probs, 1))


def best(tree: Tree) -> Tensor:
    """Return int64 [B, N + 1]: the children of every node are the drafter's best tokens."""
    tokens = torch.full((ROUNDS, tree.drafts + 1), ROOT)
    for node, children in enumerate(tree.children):
        if children:
            tokens[:, children[0] : children[-1] + 1] = tables()[1][tokens[:, node]].topk(len(children)).indices
    return tokens


def run(
    acceptance: Acceptance, tree: Tree, sampling: SamplingParams, drafts: Drafts, follow: Tensor | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return new tokens int64 [B, D + 1] of one round, and how many of them count [B].

    follow: bool [V, V], which tokens are allowed behind each, by default all."""
    torch.manual_seed(2)
    batch, size = drafts.tokens.shape
    shape = ChainLayout() if tree.is_chain else TreeLayout(tree, size, tree.depth)
    nodes = shape.nodes(None, batch)
    given = RoundInputs(
        window=drafts.tokens,
        n_given=torch.ones(batch, dtype=torch.int64),
        n_total=torch.full((batch,), size),
        length=torch.zeros(batch, dtype=torch.int64),
        logit_rows=torch.arange(size),
        settings=settings(sampling),
        uniforms=torch.rand(batch, size),
        accept_uniforms=torch.rand(batch, size - 1),
        ids=drafts.ids,
        probs=drafts.probs,
        allowed=None if follow is None else follow[drafts.tokens],
    )
    lineages = torch.tensor([[*line, *[0] * (tree.depth + 1 - len(line))] for line in tree.root_paths])
    seen = torch.cat([given.settings.history[:, None].expand(-1, size, -1), drafts.tokens[:, lineages]], 2)
    walk, bonus = acceptance(given, tables()[0][drafts.tokens], seen, shape, nodes)
    path = torch.arange(tree.depth + 1).expand(batch, -1) if walk.nodes is None else walk.nodes
    tokens = torch.cat([drafts.tokens.gather(1, path[:, 1:]), bonus], 1)
    tokens = tokens.scatter(1, walk.n_accepted[:, None], bonus)
    return tokens.numpy(), (walk.n_accepted + 1).numpy()


def p_values(
    tree: Tree, sampling: SamplingParams, tokens: np.ndarray, counts: np.ndarray, follow: Tensor | None = None
) -> list[float]:
    """Return those of the first new token, and of each later one after every text that was met often. follow: as for
    `run`."""
    found, contexts = [], {(): np.arange(len(tokens))}
    for depth in range(tree.depth + 1):
        later = {}
        for text, rows in contexts.items():
            rows = rows[counts[rows] > depth]
            if len(rows) < 200:
                continue
            context = [*BEFORE, ROOT, *text]
            scores = tables()[0][context[-1]]
            if follow is not None:  # as transformers' own processors of constraints do it
                scores = scores.masked_fill(~follow[context[-1]], -torch.inf)
            expected = probabilities(scores.numpy(), context, sampling)
            observed = np.bincount(tokens[rows, depth], minlength=VOCABULARY)
            assert not observed[expected == 0].any(), "a token that the settings exclude"
            found.append(chi_square(observed.astype(float), len(rows) * expected).p_value)
            later |= {(*text, token): rows[tokens[rows, depth] == token] for token in range(VOCABULARY)}
        contexts = later
    return found


@pytest.mark.parametrize("sampling", SETTINGS, ids=range(len(SETTINGS)))
@pytest.mark.parametrize("name", TREES)
def test_drawn_drafts_leave_the_target_s_distribution(name, sampling):
    tree = TREES[name]
    tokens, counts = run(Acceptance(Exact(), Speculative(tree)), tree, sampling, drawn(tree, sampling))
    found = p_values(tree, sampling, tokens, counts)
    assert len(found) >= 2
    assert min(found) > 1e-3 / len(found)
    assert set(counts) == set(range(1, tree.depth + 2)) or sampling.top_p < 1


@pytest.mark.parametrize("sampling", SETTINGS, ids=range(len(SETTINGS)))
@pytest.mark.parametrize("name", TREES)
def test_certain_drafts_leave_the_target_s_distribution(name, sampling):
    tree = TREES[name]
    certain = Drafts(best(tree), None, None)
    tokens, counts = run(Acceptance(Exact()), tree, sampling, certain)
    found = p_values(tree, sampling, tokens, counts)
    assert len(found) >= 2
    assert min(found) > 1e-3 / len(found)


@pytest.mark.parametrize("sampling", SETTINGS, ids=range(len(SETTINGS)))
def test_certain_drafts_may_be_verified_as_if_they_were_drawn(sampling):
    """Verify drafts from distributions with all their mass on one token."""
    tree = TREES["chain"]
    acceptance = Acceptance(Exact(), Speculative(tree))
    tokens, counts = run(acceptance, tree, sampling, Drafts(best(tree), None, None))
    found = p_values(tree, sampling, tokens, counts)
    assert min(found) > 1e-3 / len(found)
    assert max(counts) > 1


@pytest.mark.sweep(MORE, but=["siblings-", "uneven tree-3"])
@pytest.mark.parametrize("sampling", SETTINGS, ids=range(len(SETTINGS)))
@pytest.mark.parametrize("name", TREES)
def test_certain_drafts_leave_the_very_tokens_of_one_draw_after_another(name, sampling):
    """Draw the new token at every depth by the number of that depth, whatever the tree is."""
    tree, common = TREES[name], settings(sampling)
    tokens, counts = run(Acceptance(Exact()), tree, sampling, Drafts(best(tree), None, None))
    torch.manual_seed(2)
    uniforms, text = torch.rand(ROUNDS, tree.drafts + 1), torch.full((ROUNDS, 1), ROOT)
    for depth in range(tree.depth + 1):
        seen = torch.cat([common.history, text], 1)[:, None]
        probs = torch.softmax(apply_temperature_and_penalty(tables()[0][text[:, -1:]], common, seen), -1)
        threshold, _ = ops.nucleus(probs, common.top_k, common.top_p, common.min_p)
        token = ops.draw(probs, threshold, uniforms[:, depth : depth + 1])
        assert (tokens[:, depth] == token[:, 0].numpy())[counts > depth].all()
        text = torch.cat([text, token], 1)
    assert max(counts) == tree.depth + 1


@pytest.mark.parametrize("is_drawn", [False, True], ids=["certain", "drawn"])
@pytest.mark.parametrize("name", TREES)
def test_rows_without_temperature_are_greedy(name, is_drawn):
    """Compare the path and the token behind it with the argmax of logits that transformers penalizes."""
    tree, sampling = TREES[name], SamplingParams(0.0, top_k=9, repetition_penalty=0.3)
    acceptance = Acceptance(Exact(), Speculative(tree) if is_drawn else None)
    drafts = drawn(tree, replace(sampling, temperature=1.0)) if is_drawn else Drafts(best(tree), None, None)
    tokens, counts = run(acceptance, tree, sampling, drafts)
    text, is_changed = [*BEFORE, ROOT], False
    for depth in range(tree.depth + 1):
        scores = tables()[0][text[-1]].numpy()
        expected = int(probabilities(scores, text, replace(sampling, temperature=1.0)).argmax())
        is_changed |= expected != int(scores.argmax())
        assert (tokens[counts > depth, depth] == expected).all()
        text.append(expected)
    assert is_changed
    assert not is_drawn or len(set(counts)) > 1


def constraint() -> Tensor:
    """Return bool [V, V]: after each token about half of the tokens are allowed, at least one."""
    follow = torch.rand(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(3)) < 0.5
    return follow | torch.eye(VOCABULARY, dtype=torch.bool).roll(1, 1)


@pytest.mark.sweep(MORE, but=["siblings-", "uneven tree-3-"])
@pytest.mark.parametrize("is_drawn", [False, True], ids=["certain", "drawn"])
@pytest.mark.parametrize("sampling", SETTINGS, ids=range(len(SETTINGS)))
@pytest.mark.parametrize("name", TREES)
def test_constrained_rows_have_the_distribution_of_the_masked_target(name, sampling, is_drawn):
    """Draft some tokens that are not allowed, as a drafter ignores constraints."""
    tree, follow = TREES[name], constraint()
    acceptance = Acceptance(Exact(), Speculative(tree) if is_drawn else None)
    drafts = drawn(tree, sampling) if is_drawn else Drafts(best(tree), None, None)
    tokens, counts = run(acceptance, tree, sampling, drafts, follow)
    before = np.concatenate([np.full((ROUNDS, 1), ROOT), tokens[:, :-1]], 1)
    assert all(
        follow[before[counts > depth, depth], tokens[counts > depth, depth]].all() for depth in range(tree.depth)
    )
    found = p_values(tree, sampling, tokens, counts, follow)
    assert min(found) > 1e-3 / len(found)
    assert not is_drawn or max(counts) > 1


@pytest.mark.parametrize("name", TREES)
def test_constrained_rows_without_temperature_take_the_best_that_is_allowed(name):
    tree, follow, sampling = TREES[name], constraint(), SamplingParams(0.0)
    tokens, counts = run(Acceptance(Exact()), tree, sampling, Drafts(best(tree), None, None), follow)
    last = ROOT
    for depth in range(tree.depth + 1):
        last = int(tables()[0][last].masked_fill(~follow[last], -torch.inf).argmax())
        assert (tokens[counts > depth, depth] == last).all()


def test_a_width_of_one_allows_everything_and_a_row_of_nothing_gives_some_token():
    tree, sampling = TREES["chain"], SETTINGS[0]
    drafts = Drafts(best(tree), None, None)
    free = run(Acceptance(Exact()), tree, sampling, drafts)
    one = run(Acceptance(Exact()), tree, sampling, drafts, torch.ones(VOCABULARY, 1, dtype=torch.bool))
    assert all(np.array_equal(a, b) for a, b in zip(free, one, strict=True))
    nothing, _ = run(Acceptance(Exact()), tree, sampling, drafts, torch.zeros(VOCABULARY, VOCABULARY, dtype=torch.bool))
    assert ((nothing >= 0) & (nothing < VOCABULARY)).all()


@pytest.mark.parametrize("lenience", [0.3, 0.8])
def test_lenience_multiplies_the_drafter_s_probabilities(lenience):
    """Compare the first token with its closed form: x is accepted with min(1, p / (l q)); else max(0, p - l q) is drawn
    from."""
    tree, sampling = TREES["chain of one"], SETTINGS[0]
    drafts = drawn(tree, sampling)
    tokens, _ = run(Acceptance(Exact(), Speculative(tree, lenience)), tree, sampling, drafts)
    p = torch.softmax(tables()[0][ROOT], 0).double()
    q = torch.zeros(VOCABULARY).scatter(0, drafts.ids[0, 0], drafts.probs[0, 0]).double()
    accepted, rest = torch.minimum(q, p / lenience), (p - lenience * q).clamp(min=0)
    expected = accepted + (1 - accepted.sum()) * rest / rest.sum()
    observed = np.bincount(tokens[:, 0], minlength=VOCABULARY).astype(float)
    assert chi_square(observed, ROUNDS * expected.numpy()).p_value > 1e-3


@pytest.mark.parametrize("name", TREES)
def test_lenience_is_seen(name):
    tree, sampling = TREES[name], SETTINGS[0]
    acceptance = Acceptance(Exact(), Speculative(tree, lenience=0.6))
    found = p_values(tree, sampling, *run(acceptance, tree, sampling, drawn(tree, sampling)))
    assert min(found) < 1e-6


def test_a_draft_that_was_drawn_twice_is_tried_once():
    tree, sampling = TREES["siblings"], SETTINGS[0]
    drafts = drawn(tree, sampling)
    again = torch.multinomial(drafts.probs[:, 0], 3, replacement=True)
    drafts.tokens[:, 1:] = drafts.ids[:, 0].gather(1, again)
    found = p_values(tree, sampling, *run(Acceptance(Exact(), Speculative(tree)), tree, sampling, drafts))
    assert min(found) > 1e-3 / len(found)


def target_of(probs: Tensor, uniforms: Tensor) -> Target:
    """Return what a target without filters says in rows that are sampled: probs float32 [R, V], uniforms [R]."""
    rows = torch.zeros(1, len(probs))
    best, is_sampled = torch.zeros(rows.shape, dtype=torch.int64), torch.tensor([[True]])
    return Target(probs.log()[None], best, is_sampled, probs[None], rows, rows + 1, uniforms[None])


ALMOST_ONE = 1 - 2**-24


def tried(p: Tensor, q: Tensor, tokens: list[int], uniforms: list[float], uniform: float) -> tuple[list[bool], int]:
    """Return which of several siblings, drawn from q [C], are accepted where the target says p [V]; and the token that
    is drawn where none is."""
    rule, count = Speculative(from_branching([len(tokens)])), len(tokens)
    target = target_of(p[None], torch.tensor([uniform]))
    ids = torch.zeros(1, count, len(q), dtype=torch.int64)
    ids[0, 0], probs = torch.arange(len(q)), torch.zeros(1, count, len(q))
    probs[0, 0] = q
    is_draft = torch.arange(count + 1)[None] > 0
    proposals = DraftDistribution(ids, probs, torch.tensor([uniforms]))
    trial = rule(target, torch.tensor([[ROOT, *tokens]]), is_draft, proposals)
    root = torch.tensor([0])
    return trial.accepted[0, 1:].tolist(), int(rule.bonus(target, trial, ids, root, root))


def test_what_the_target_never_says_is_never_accepted():
    """Accept nothing at a uniform number of 0 either."""
    p = torch.tensor([0.0, 0.0, 0.75, 0.25])
    assert tried(p, torch.tensor([0.5, 0.5]), [0, 1], [0.0, 0.0], 0.0) == ([False, False], 2)
    assert tried(p, torch.tensor([1.0, 0.0]), [0, 0], [0.0, 0.0], ALMOST_ONE) == ([False, False], 3)


def test_where_drafter_and_target_agree_every_draft_is_accepted():
    p = torch.tensor([0.5, 0.25, 0.125, 0.125])
    for token in range(4):
        assert tried(p, p, [token], [ALMOST_ONE], 0.0)[0] == [True]
    assert tried(p * (1 + 2**-23), p, [3], [ALMOST_ONE], 0.0)[0] == [True]


def test_where_nothing_is_left_the_target_s_own_distribution_is_drawn_from():
    """Give all drafts a little less than the drafter does, as a rounding error would: nothing is left to draw from."""
    p = torch.tensor([0.0, 1 - 2**-20])
    target, root = target_of(p[None], torch.tensor([0.5])), torch.tensor([0])
    ids = torch.tensor([[[1, 0]]])
    none_left = AcceptanceTest(torch.tensor([[False, False]]), torch.zeros(1, 1, 2))
    assert int(Speculative(chain(1)).bonus(target, none_left, ids, root, root)) == 1


def test_the_token_behind_the_path_is_drawn_by_the_number_of_its_depth():
    """Leave the number of the path's last node, the third in a tree of depth one, unused."""
    p, uniforms = torch.full((3, 2), 0.5), torch.tensor([0.25, 0.75, 0.25])
    ids, untouched = torch.tensor([[[0], [0]]]), AcceptanceTest(torch.zeros(1, 3).bool(), torch.full((1, 2, 1), 0.5))
    last, depth = torch.tensor([2]), torch.tensor([1])
    rule = Speculative(from_branching([2]))
    assert int(rule.bonus(target_of(p, uniforms), untouched, ids, last, depth)) == 1
