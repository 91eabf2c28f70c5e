"""The mistakes that scripts/mutants makes: each can be made in the sources as they are, and has tests that exist."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from scripts.mutation import __main__ as command
from scripts.mutation.entries import ROOT, EntryError, Mutant, read_mutants

LEAST = 60
MUTANTS = read_mutants()


def test_there_are_enough_and_each_has_a_name():
    assert len(MUTANTS) >= LEAST
    assert max(Counter(each.id for each in MUTANTS).values()) == 1
    assert len({(each.file, each.before, each.after) for each in MUTANTS}) == len(MUTANTS)
    for each in MUTANTS:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", each.id), each.id
        assert each.breaks, each.id


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.id)
def test_it_can_be_made_and_its_tests_are_there(mutant):
    changed = mutant.mutated()
    if mutant.file.endswith(".py"):
        compile(changed, mutant.file, "exec")
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        text = (ROOT / file).read_text()
        assert not name or f"def {name}(" in text, test
        head = re.split(r"^(?:def |@)", text, maxsplit=1, flags=re.M)[0]
        assert "pytest.mark.sweep" not in head, f"{file} is no test of the first tier"


def made(**changes: object) -> Mutant:
    values = {"id": "a", "file": "f.py", "before": "1", "after": "2", "breaks": "b", "tests": ("t.py",)}
    return Mutant(**(values | changes))  # type: ignore[arg-type]


def test_what_does_not_apply_is_said(tmp_path: Path):
    (tmp_path / "f.py").write_text("x = 1 + 1\n")
    for mutant, message in (
        (made(), "received f.py with 2 places for '1', expected one"),
        (made(before="3"), "received f.py with 0 places for '3', expected one"),
        (made(before="x", after="x"), "changes nothing"),
        (made(file="g.py"), "received g.py, which is not there"),
    ):
        with pytest.raises(EntryError, match=f"a: {message}"):
            mutant.mutated(tmp_path)
    assert made(before="x").mutated(tmp_path) == "2 = 1 + 1\n"


def test_a_result_is_of_the_mistake_and_its_tests(tmp_path: Path):
    (tmp_path / "f.py").write_text("x = 1\n")
    (tmp_path / "t.py").write_text("")
    first = made().digest(tmp_path)
    assert made().digest(tmp_path) == first
    assert made(after="3").digest(tmp_path) != first
    (tmp_path / "t.py").write_text("#")
    second = made().digest(tmp_path)
    assert second != first
    (tmp_path / "f.py").write_text("y = 1\n")
    assert made().digest(tmp_path) not in (first, second)


def test_a_list_that_is_none_is_refused(tmp_path: Path):
    for text in ("[[mutant]]\nid = 3", "mutant = 3", "x", '[[mutant]]\nid = "a"\nmore = 1'):
        (tmp_path / "a.toml").write_text(text)
        with pytest.raises(EntryError, match="received something that is no list of mutants"):
            read_mutants(tmp_path)
    one = '[[mutant]]\nid = "a"\nfile = "f"\nbefore = "1"\nafter = "2"\nbreaks = "b"\ntests = ["t"]\n'
    (tmp_path / "a.toml").write_text(one + one)
    with pytest.raises(EntryError, match="several mutants of the names a"):
        read_mutants(tmp_path)


def test_they_are_listed(capsys: pytest.CaptureFixture[str]):
    assert command.main(["--list", "--only", "keys-*"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == sum(each.id.startswith("keys-") for each in MUTANTS)
    assert command.main(["--only", "nothing-of-the-kind"]) == 2
    assert "matches none" in capsys.readouterr().err


def test_results_are_told(capsys: pytest.CaptureFixture[str]):
    outcomes = {"a": command.Outcome("killed", "t.py::t", 1.0), "b": command.Outcome("survived", "nobody noticed", 2.0)}
    pair = [made(), made(id="b")]
    command._tell(pair, outcomes, 3.0, as_json=False)
    said = capsys.readouterr().out
    assert "survived: b (f.py): nobody noticed" in said
    assert "2 mutants in 3 s: 1 killed, 1 survived" in said
    assert "killed: a" not in said
    command._tell(pair, outcomes, 3.0, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["counts"] == {"killed": 1, "survived": 1}
    assert [row["state"] for row in told["mutants"]] == ["killed", "survived"]
