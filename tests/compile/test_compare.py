"""`speccompile compare` on bundles that are really built, measured in processes of their own, and gone on with."""

import json

import pytest

QUESTIONS = [
    {"question_id": 1, "category": "coding", "turns": ["def f(x): return f(x)", "def g(x):"]},
    {"question_id": 2, "category": "code_editing", "turns": ["a b a b a b"]},
]
WAYS = "lookup: {kind: prompt_lookup, tokens: 2}\nhalf: {kind: layer_skip, layers: [0], tokens: 2}\n"


@pytest.fixture
def compare(built, cli, tmp_path):
    """Run it on a tiny model with these ways; returns exit code, the JSON object and stderr."""
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)))

    def run(ways, *arguments):
        (tmp_path / "ways.yaml").write_text(ways)
        options = ["--prompts", tmp_path / "questions.jsonl", "--ways", tmp_path / "ways.yaml", "--threads", 1]
        options += ["--output", tmp_path / "out", "--max-new-tokens", 8, "--json"]
        code, out, err = cli("compare", built("lookup_3").folder, *options, *arguments)
        return code, json.loads(out) if out else None, err

    return run


@pytest.mark.sweep("several bundles in processes of their own")
def test_two_ways_beside_autoregression_and_one_that_cannot_be(compare, tmp_path):
    wrong = "wrong: {kind: layer_skip, layers: [99]}\n"
    code, found, err = compare(WAYS + wrong, "--repeats", 1, "--html", tmp_path / "page.html")
    assert code == 0, err
    ways = {way["name"]: way for way in found["ways"]}
    assert set(ways) == {"autoregressive", "lookup", "half"}
    assert [each["name"] for each in found["refused"]] == ["wrong"]
    assert "layer 99" in found["refused"][0]["reason"]
    for name in ("lookup", "half"):
        way = ways[name]
        assert (way["equal_prompts"], way["differences"], way["exact"], way["beside"]) == (2, [], True, "none")
        assert [task["task"] for task in way["tasks"]] == ["mt_bench", "code_editing", "overall"]
        assert 1 <= way["mean_accepted"] <= 3
        assert way["costs"]["allowed_tokens_per_second"] > 0
        assert way["memory"]["resident"] > 0
    assert ways["autoregressive"]["ratio"] == 1
    assert {row["method"] for table in found["published"]["tables"] for row in table["rows"]} == {"PLD"}
    assert "half" in (tmp_path / "page.html").read_text()

    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "out").rglob("pass-1.json")}
    code, again, _ = compare(WAYS, "--repeats", 2)  # goes on: the first pass is not run again
    assert code == 0
    assert {file: file.stat().st_mtime_ns for file in files} == files
    assert len(list((tmp_path / "out").rglob("pass-2.json"))) == 3
    assert {way["name"]: way["mean_accepted"] for way in again["ways"]} == {
        name: way["mean_accepted"] for name, way in ways.items()
    }
    assert compare(WAYS, "--max-new-tokens", 9)[0] == 2


@pytest.mark.sweep("two bundles in processes of their own")
def test_prompts_that_a_bundle_cannot_take_are_an_error(compare, tmp_path):
    (tmp_path / "questions.jsonl").write_text(json.dumps(QUESTIONS[0] | {"turns": ["a" * 200]}))
    code, found, err = compare(WAYS)
    assert (code, found) == (2, None)
    assert "more than this bundle's capacity of 96" in err
