"""The table of architectures: whole, and of one mind with the zoo."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import transformers

from scripts.architectures import attempt
from scripts.architectures.configurations import CORRECTIONS, IMPOSSIBLE, KINDS, configuration, model_types
from scripts.architectures.row import EXACT, STATUSES, THREADS, Row
from scripts.architectures.table import (
    looked_on,
    markdown,
    processors,
    read_rows,
    summary,
    tried_with,
    write_rows,
)
from speccompile.compiler.checkpoints.layer_types import KNOWN
from speccompile.compiler.checkpoints.refused_types import REFUSED
from speccompile.runtime.window_invariance import WindowInvariance
from tests import zoo

ROWS = read_rows()


@pytest.mark.skipif(transformers.__version__ != tried_with(), reason="other classes than those of the table")
def test_every_class_was_tried():
    assert [*ROWS] == model_types()
    assert {*CORRECTIONS, *IMPOSSIBLE} <= {*ROWS, "gemma4_text", "qwen4_exp_text"}


def test_nothing_is_wrong_and_whatever_is_not_proven_says_why():
    assert {row.status for row in ROWS.values()} <= {"proven", "refused", "impossible"}
    assert [row.model_type for row in ROWS.values() if (row.status == "proven") == bool(row.reason)] == []
    assert sum(row.status == "proven" for row in ROWS.values()) >= 90


def test_drafts_were_accepted_in_most_of_them():
    proven = [row for row in ROWS.values() if row.status == "proven"]
    assert sum(row.per_round > 1 for row in proven) > 0.8 * len(proven)


def test_windows_of_every_width_give_equal_bits():
    assert [row.model_type for row in ROWS.values() if row.exact is False or row.loose] == []


def test_windows_are_compared_again_on_two_threads(monkeypatch):
    manifest, differing = SimpleNamespace(exact=True), {1: (), 2: (7,)}

    def opened(bundle, *, engine, threads):
        # What a bundle knows when it is opened may come from the cache, which does not tell threads apart.
        return nullcontext(SimpleNamespace(manifest=manifest, engine=threads, exact=True))

    monkeypatch.setattr(attempt.Bundle, "open", opened)
    monkeypatch.setattr(attempt, "compare_windows", lambda engine, _: WindowInvariance((2,), differing[engine]))
    assert not attempt._is_exact(Path("bundle"), "float32")
    differing[2] = ()
    assert attempt._is_exact(Path("bundle"), "float32")


BY_LAYERS = {"minimax_m3_vl_text", "qwen4_exp", "qwen4_exp_text"}
"""Types of which a config decides whether layers choose their rows."""


def test_what_the_probe_refuses_is_refused_by_name_before_it():
    named = [model_type for types in REFUSED.values() for model_type in types]
    probed = {row.model_type for row in ROWS.values() if row.status == "refused" and "be compiled:" in row.reason}
    assert sorted(named) == sorted(probed - BY_LAYERS)


@pytest.mark.parametrize("name", zoo.names())
def test_the_zoo_agrees(name):
    row = ROWS[zoo.ROWS[name].model_type]
    assert (row.status == "proven") == (zoo.ROWS[name].expect == "works")


@pytest.mark.parametrize("model_type", sorted(set(ROWS) - set(IMPOSSIBLE)))
def test_kinds_of_layers_are_those_that_checkpoints_are_asked_for(model_type):
    if ROWS[model_type].status == "impossible":
        pytest.skip("no configuration")
    text = configuration(model_type).get_text_config()
    assert set(getattr(text, KINDS[0], None) or []) <= set(KNOWN)


def test_rows_are_read_as_they_were_written(tmp_path):
    rows = {
        row.model_type: row
        for row in (Row("b", "B", "refused", "no", processors=("EPYC",)),
                    Row("a", "A", "proven", "", 1.5, False, ("MatMul w",), processors=("EPYC", "Xeon")))
    }  # fmt: skip
    write_rows(rows, "5.0", tmp_path / "table.json")
    assert list(read_rows(tmp_path / "table.json").values()) == [rows["a"], rows["b"]]
    assert (tried_with(tmp_path / "table.json"), looked_on(tmp_path / "table.json")) == ("5.0", "EPYC")
    assert read_rows(tmp_path / "none.json") == {}


def test_a_row_names_the_processors_that_gave_its_result():
    zen5 = Row("a", "A", "proven", "", 1.5, True, ("float32",), processors=("Zen 5",))
    zen1 = replace(zen5, per_round=1.25, processors=("Zen 1",))
    assert zen1.behind(zen5) == replace(zen1, processors=("Zen 1", "Zen 5"))
    assert zen1.behind(None) == zen1.behind(replace(zen5, exact_in=())) == zen1
    two_threads = replace(zen1, threads=THREADS)
    assert two_threads.behind(zen5) == zen1.behind(zen5)
    assert two_threads.behind(zen1) == two_threads


def test_a_page_says_which_types_were_looked_at_on_other_processors():
    rows = [Row(name, "", "proven", exact=True, processors=where)
            for name, where in (("a", ("X",)), ("b", ("Y",)), ("c", ("X", "Y")), ("d", ("Y",)))]  # fmt: skip
    told = "Windows were compared on X; those of `c` on X and on Y; those of `b`, `d` on Y."
    assert processors([*rows, Row("e", "", "refused", processors=("Y",))], "X") == told


def test_rows_are_grouped_by_what_became_of_them_and_why():
    elsewhere = (
        "{0}ForCausalLM cannot be compiled: 2 of its 2 layers do not go through transformers' attention interface"
    )
    exact = Row("three", "T", "proven", exact=False, threads=THREADS)
    rows = [Row("one", "OneForCausalLM", "refused", elsewhere.format("One")), exact,
            Row("two", "TwoForCausalLM", "refused", elsewhere.format("Two"))]  # fmt: skip
    proven, refused = markdown(rows).splitlines()[2:]
    assert proven == f"| proven | {EXACT[False]} | 1 | `three` |"
    assert refused.endswith("| 2 | `one`, `two` |")
    assert summary(rows) == "1 proven, 2 refused"
    assert [*STATUSES][:2] == ["proven", "refused"]


@pytest.mark.parametrize(
    ("precisions", "threads", "words"),
    [
        ((), (), "float32: windows of 2 to 5 tokens give equal bits, on one thread, at sizes of full registers"),
        (("int4",), (), "int4: windows of 2 to 10 tokens give equal bits, on one thread"),
        (("float32",), (1, 2), "float32: windows of 2 to 10 tokens give equal bits, on one thread and two"),
        (("int8", "int4"), (1, 2), "int8, int4: windows of 2 to 10 tokens give equal bits, on one thread and two"),
    ],
)
def test_precisions_widths_and_threads_of_the_look_are_said(precisions, threads, words):
    row = Row("one", "O", "proven", "", 1.5, True, precisions, threads=threads)
    assert row.why == f"exact on CPUs in {words}"
