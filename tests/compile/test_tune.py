"""`speccompile tune` on built bundles, and the acceptance of cut chains against that of shorter ones."""

import json
from statistics import median

import pytest

from speccompile.measure.bench.costs import GraphCosts
from speccompile.measure.tune import trial
from speccompile.measure.tune.rounds import Rounds, rounds_of, shortened
from speccompile.recipe import load_recipe
from tests.light.forced_lengths import forced_lengths

pytestmark = pytest.mark.builds(3)


@pytest.mark.parametrize("name", ["model_4", "lookup_3"])
@pytest.mark.parametrize("drafts", [1, 2, 3])
def test_shorter_chains_of_real_drafters(built, monkeypatch, name, drafts):
    """Compare drafts of cut windows with those of a bundle with a shorter chain."""
    bundle, longest = built(name).bundle, 4
    compared = 0
    for prompt in built(name).prompts():
        known = _until_all_were_accepted(rounds_of(bundle.generate(prompt, max_new_tokens=60, adaptive=False)), longest)
        with monkeypatch.context() as patch:
            patch.setattr(bundle._loop.drafting, "policy", forced_lengths(bundle, [drafts + 1]))
            real = rounds_of(bundle.generate(prompt, max_new_tokens=60, adaptive=True)).accepted
        found = shortened(known, longest, drafts).accepted
        assert found == real[: len(found)]
        compared += len(found)
    assert compared > 20


def _until_all_were_accepted(rounds: Rounds, longest: int) -> Rounds:
    """Return the first rounds, up to one behind which nobody knows what would have been drafted."""
    count = next((index for index, each in enumerate(rounds.accepted) if each == longest), len(rounds.accepted))
    drafts, accepted = rounds.drafts[:count], rounds.accepted[:count]
    return Rounds(sum(accepted) + count, drafts, accepted)


def test_a_whole_tuning(built, cli, tmp_path):
    folder, file = built("lookup_3").folder, tmp_path / "tuned.yaml"
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "def f(x): return f(x)"}\n{"token_ids": [7, 8, 7, 8]}\n')
    options = ["--drafts", 4, "--threads", 1, "--max-new-tokens", 12, "--repeats", 2, "--json", "--write", file]
    code, out, err = cli("tune", folder, "--prompts", tmp_path / "prompts.jsonl", *options)
    assert code == 0, err
    found = json.loads(out)
    assert {each["drafts"] for each in found["candidates"]} == {0, 4}
    for each in found["candidates"]:
        assert 1 <= each["mean_accepted"] <= 1 + each["drafts"]
        assert each["verify_seconds"] > 0
        assert each["tokens_per_second"] > 0
    written = load_recipe(file)
    assert (written.drafter.tokens or 0) == found["choice"]["drafts"]


def test_trees_of_an_index_take_as_long_as_what_it_finds(built, cli, monkeypatch, tmp_path):
    """Let a window cost its number of tokens: a generation takes as long as all of its windows together."""
    monkeypatch.setattr(
        trial, "measure_costs", lambda _, widths, **__: GraphCosts({each: each for each in widths}, None, 0)
    )
    asked, file = built("retrieval"), tmp_path / "prompts.jsonl"
    generated = {
        tuple(prompt): asked.bundle.generate(prompt, max_new_tokens=12, adaptive=False) for prompt in asked.prompts()
    }
    known = {prompt: one for prompt, one in generated.items() if any(one.draft_lengths)}
    assert max(max(one.draft_lengths) for one in known.values()) < asked.bundle.manifest.tokens
    file.write_text("".join(json.dumps({"token_ids": prompt}) + "\n" for prompt in known))
    options = ["--prompts", file, "--max-new-tokens", 12, "--threads", 1, "--json"]
    code, out, err = cli("tune", asked.folder, "--tree", '{"depth": 3, "nodes": 6}', *options)
    assert code == 0, err
    tree = next(each for each in json.loads(out)["candidates"] if each["drafts"])
    rates = [(len(one.token_ids) - 1) / sum(drafts + 1 for drafts in one.draft_lengths) for one in known.values()]
    assert tree["tokens_per_second"] * tree["verify_seconds"] / tree["width"] == pytest.approx(median(rates))
