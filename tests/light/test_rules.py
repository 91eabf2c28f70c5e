"""The approximate rules in eager torch, against their papers' formulas in numpy, and at the ends of their ranges."""

import numpy as np
import pytest
import torch

from speccompile.compiler.step.sampling import Settings
from speccompile.compiler.step.verify.methods import make_acceptance
from speccompile.compiler.step.verify.rules import Drafts, Exact
from speccompile.compiler.step.verify.target import greedy_target, sampling_target
from speccompile.recipe.acceptance_methods import ACCEPTANCE_METHODS
from speccompile.tree import chain

BATCH, ROWS, VOCABULARY, NODES = 4, 5, 13, 300
DEFAULTS = {"typical": {"epsilon": 0.09, "delta": 0.3}, "lenience": {"lenience": 0.5}, "top_k": {"k": 3, "gap": 1.0},
            "bild": {"fallback": 0.5, "rollback": 2.0}}  # fmt: skip


def accepts(method, parameters, logits, token):
    """Return whether a token may follow, given float64 [V] logits."""
    probs = np.exp(logits) / np.exp(logits).sum()
    match method:
        case "typical":
            entropy = -(probs * np.log(probs)).sum()
            return probs[token] > min(parameters["epsilon"], parameters["delta"] * np.exp(-entropy))
        case "lenience":
            return probs[token] >= parameters["lenience"] * probs.max()
        case "top_k":
            rank = (logits > logits[token]).sum()
            return rank < parameters["k"] and logits.max() - logits[token] <= parameters["gap"]
        case "bild":
            return -np.log(probs[token]) <= parameters["rollback"]


def test_every_approximate_method_is_compared():
    assert {*DEFAULTS} == {name for name, method in ACCEPTANCE_METHODS.items() if not method.is_exact}
    assert {name: {*each} for name, each in DEFAULTS.items()} == {
        name: {*ACCEPTANCE_METHODS[name].parameters} for name in DEFAULTS
    }


def rule_of(method, parameters):
    return make_acceptance(method, parameters, tree=chain(3), is_sampling=False, draws=False).rule


@pytest.fixture
def drafts():
    random = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, VOCABULARY, (BATCH, NODES), generator=random)
    return Drafts(tokens, torch.randint(0, ROWS, (BATCH, NODES), generator=random))


@pytest.fixture
def logits():
    return 2 * torch.randn(BATCH, ROWS, VOCABULARY, generator=torch.Generator().manual_seed(0))


def found_by(method, parameters, logits, drafts):
    """Return bool [B, P]: drafts that the rule accepts in a greedy graph."""
    target = greedy_target(logits)
    return rule_of(method, parameters)(target, target.best, drafts)


def expected_by(method, parameters, logits, drafts):
    rows = []
    for of_row, tokens, parents in zip(logits.double().numpy(), *drafts, strict=True):
        pairs = zip(tokens.tolist(), parents.tolist(), strict=True)
        rows.append([accepts(method, parameters, of_row[parent], token) for token, parent in pairs])
    return torch.tensor(rows)


@pytest.mark.parametrize("method", DEFAULTS)
def test_a_rule_accepts_what_its_paper_says(logits, drafts, method):
    found = found_by(method, DEFAULTS[method], logits, drafts)
    assert torch.equal(found, expected_by(method, DEFAULTS[method], logits, drafts))
    assert 0.01 < found.float().mean() < 0.9


@pytest.mark.parametrize("method", DEFAULTS)
def test_temperature_and_penalty_come_before_the_rule(logits, drafts, method):
    seen = torch.randint(0, VOCABULARY, (BATCH, ROWS, 4), generator=torch.Generator().manual_seed(2))
    temperature, penalty = torch.tensor([0.0, 0.5, 1.0, 2.0]), torch.tensor([1.0, 1.0, 1.5, 1.5])
    unlimited = (torch.zeros(BATCH, dtype=torch.int64), torch.ones(BATCH), torch.zeros(BATCH))
    settings = Settings(temperature, *unlimited, penalty, seen[:, 0])
    target = sampling_target(logits, settings, seen, torch.rand(BATCH, ROWS))
    found = rule_of(method, DEFAULTS[method])(target, target.best, drafts)

    scores = logits.clone()
    for b, r in np.ndindex(BATCH, ROWS):
        for token in set(seen[b, r].tolist()):
            scores[b, r, token] *= penalty[b] if scores[b, r, token] < 0 else 1 / penalty[b]
        scores[b, r] /= temperature[b] or 1
    assert torch.equal(found, expected_by(method, DEFAULTS[method], scores, drafts))


@pytest.mark.parametrize(("method", "parameters"), [("lenience", {"lenience": 1.0}), ("top_k", {"k": 1, "gap": 2.0}),
                                                    ("top_k", {"k": 9, "gap": 0.0})])  # fmt: skip
def test_at_its_strict_end_a_rule_is_the_exact_one(logits, drafts, method, parameters):
    target = greedy_target(logits)
    found = found_by(method, parameters, logits, drafts)
    assert torch.equal(found, Exact()(target, target.best, drafts))
    assert found.any()


@pytest.mark.parametrize(
    ("method", "parameters", "accepted"),
    [
        ("typical", {"epsilon": 0.0, "delta": 0.3}, True),
        ("bild", {"rollback": 30.0}, True),
        ("bild", {"rollback": 0.0}, False),
        ("top_k", {"k": VOCABULARY + 1, "gap": 100.0}, True),
    ],
)
def test_at_its_other_end_a_rule_accepts_all_or_nothing(logits, drafts, method, parameters, accepted):
    assert set(found_by(method, parameters, logits, drafts).flatten().tolist()) == {accepted}


@pytest.mark.parametrize("draws", [False, True])
@pytest.mark.parametrize("lenience", [0.5, 1.0])
def test_lenience_in_sampling_is_a_matter_of_chance(lenience, draws):
    """Refuse a certain draft, the target's best token, now and then, also at lenience 1, where sampling is exact."""
    parameters = {"lenience": lenience}
    acceptance = make_acceptance("lenience", parameters, tree=chain(3), is_sampling=True, draws=draws)
    assert acceptance.speculative is not None
    assert acceptance.speculative.lenience == lenience


def test_a_token_that_cannot_be_said_has_no_part_in_the_entropy(logits, drafts):
    """Leave out logits of -inf, which some models give for tokens that they do not have."""
    found = found_by("typical", DEFAULTS["typical"], torch.where(torch.arange(VOCABULARY) == 5, -1e9, logits), drafts)
    logits[:, :, 5] = -torch.inf
    assert torch.equal(found_by("typical", DEFAULTS["typical"], logits, drafts), found)
    assert found.any()
