"""`speccompile compare` on bundles that are really built, measured in processes of their own, and gone on with."""

import json

import pytest

QUESTIONS = [
    {"question_id": 1, "category": "coding", "turns": ["def f(x): return f(x)", "def g(x):"]},
    {"question_id": 2, "category": "code_editing", "turns": ["a b a b a b"]},
]
METHODS = "lookup: {kind: prompt_lookup, tokens: 2}\nhalf: {kind: layer_skip, layers: [0], tokens: 2}\n"


@pytest.fixture
def compare(built, cli, tmp_path):
    """Run it on a tiny model with these methods; returns exit code, the JSON object and stderr."""
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)))

    def run(methods, *arguments):
        (tmp_path / "methods.yaml").write_text(methods)
        options = ["--prompts", tmp_path / "questions.jsonl", "--methods", tmp_path / "methods.yaml", "--threads", 1]
        options += ["--output", tmp_path / "out", "--max-new-tokens", 8, "--minutes", 0, "--json"]
        code, out, err = cli("compare", built("lookup_3").folder, *options, *arguments)
        return code, json.loads(out) if out else None, err

    return run


@pytest.mark.sweep("several bundles in processes of their own")
def test_two_methods_beside_autoregression_and_one_that_cannot_be(compare, tmp_path):
    wrong = "wrong: {kind: layer_skip, layers: [99]}\n"
    code, found, err = compare(METHODS + wrong, "--repeats", 1, "--html", tmp_path / "page.html")
    assert code == 0, err
    methods = {method["name"]: method for method in found["ways"]}
    assert set(methods) == {"autoregressive", "lookup", "half"}
    assert [each["name"] for each in found["refused"]] == ["wrong"]
    assert "layer 99" in found["refused"][0]["reason"]
    for name in ("lookup", "half"):
        method = methods[name]
        assert (method["equal_prompts"], method["differences"], method["exact"], method["beside"]) == (
            2,
            [],
            True,
            "none",
        )
        assert [task["task"] for task in method["tasks"]] == ["mt_bench", "code_editing", "overall"]
        assert 1 <= method["mean_accepted"] <= 3
        assert method["costs"]["allowed_tokens_per_second"] > 0
        assert method["memory"]["resident"] > 0
    assert methods["autoregressive"]["ratio"] == 1
    assert {row["method"] for table in found["published"]["tables"] for row in table["rows"]} == {"PLD"}
    assert "half" in (tmp_path / "page.html").read_text()

    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "out").rglob("pass-1.json")}
    code, again, _ = compare(METHODS, "--repeats", 2)  # goes on: the first pass is not run again
    assert code == 0
    assert {file: file.stat().st_mtime_ns for file in files} == files
    assert len(list((tmp_path / "out").rglob("pass-2.json"))) == 3
    assert {method["name"]: method["mean_accepted"] for method in again["ways"]} == {
        name: method["mean_accepted"] for name, method in methods.items()
    }
    assert compare(METHODS, "--max-new-tokens", 9)[0] == 2


@pytest.mark.sweep("two bundles in processes of their own")
def test_prompts_that_a_bundle_cannot_take_are_an_error(compare, tmp_path):
    (tmp_path / "questions.jsonl").write_text(json.dumps(QUESTIONS[0] | {"turns": ["a" * 200]}))
    code, found, err = compare(METHODS)
    assert (code, found) == (2, None)
    assert "more than this bundle's capacity of 96" in err
