"""Three small tasks with an encoder, trained here: what `speccompile compare` says of the drafters for each."""

import json

import pytest

from scripts.examples.small_tasks import make_task

pytestmark = [pytest.mark.builds(30), pytest.mark.sweep("three trainings, and bundles in processes of their own")]

METHODS = {
    "source": {"kind": "prompt_lookup", "over": "source", "tokens": 12},
    "lookup": {"kind": "prompt_lookup", "tokens": 4},
    "suffix": {"kind": "suffix", "tokens": 8},
    "early": {"kind": "layer_skip", "layers": [0], "tokens": 3},
}


OTHERS = ("lookup", "suffix", "early")


@pytest.mark.parametrize(
    ("task", "methods", "least"),
    [("correction", ("source", "lookup"), {"source": 5}), ("translation", OTHERS, {}), ("speech", OTHERS, {})],
)
def test_compare_shows_the_drafters_of_a_small_task(task, methods, least, cli, tmp_path):
    assert make_task(task, tmp_path, 1000) > 0.95
    (tmp_path / "methods.json").write_text(json.dumps({each: METHODS[each] for each in methods}))
    options = ["--prompts", tmp_path / "prompts.jsonl", "--methods", tmp_path / "methods.json", "--keep-all", "--json"]
    options += ["--output", tmp_path / "out", "--max-new-tokens", 40, "--repeats", 1, "--threads", 1, "--minutes", 0]
    code, out, err = cli("compare", tmp_path / "recipe.yaml", *options)
    assert code == 0, err
    shown = {each["name"]: each for each in json.loads(out)["ways"]}
    assert set(shown) == {"autoregressive", *methods}
    for name in methods:
        assert shown[name]["differences"] == []
        assert shown[name]["mean_accepted"] >= least.get(name, 1)
