"""A comparison with builds and measurements that are made up: what is done, kept, resumed, and told."""

import json
import os
import re
from dataclasses import replace

import pytest

from speccompile.bundle.folders import lock_folder
from speccompile.bundle.prompts import Question
from speccompile.errors import EngineError, PromptError, UsageError
from speccompile.measure.bench.measure import PromptRuns
from speccompile.measure.compare.job import Comparison, Options
from speccompile.measure.compare.methods import Method
from speccompile.measure.compare.page import make_page, write_page
from speccompile.measure.compare.passes import MeasuredPass, PassRequest
from speccompile.measure.compare.report import make_comparison, make_method_report, published
from speccompile.measure.compare.table import write_table
from speccompile.recipe.capabilities import DRAFTER_KEYS
from tests.light.bench_example import AUTOREGRESSIVE, SPECULATIVE, timed
from tests.light.compare_example import METHODS, QUESTIONS, Workshop, run, toy_pass
from tests.light.test_bench_page import Page


@pytest.fixture
def job(make_recipe, tmp_path):
    """Return a comparison of two methods on two questions; keywords are options."""
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)))
    (tmp_path / "methods.yaml").write_text(METHODS)

    def make(*overrides, **options):
        given = {"repeats": 2, "output": tmp_path / "out"} | options
        return Comparison.read(
            make_recipe(), overrides, Options(tmp_path / "questions.jsonl", methods=tmp_path / "methods.yaml", **given)
        )

    return make


def test_methods_take_turns_beside_a_bundle_without_a_drafter(job, tmp_path):
    workshop = Workshop()
    found = run(job(), workshop)
    assert workshop.built == ["autoregressive", "lookup", "drafter"]
    assert workshop.measured == [
        ("autoregressive", 1), ("lookup", 1), ("drafter", 1), ("drafter", 2), ("lookup", 2), ("autoregressive", 2),
    ]  # fmt: skip
    plain = str(tmp_path / "out" / "bundles" / "autoregressive")
    assert [each.baseline for each in workshop.jobs[:3]] == [None, plain, plain]
    assert workshop.jobs[0].options == {"max_new_tokens": 128, "adaptive": False}
    assert [method.name for method in found.ways] == ["drafter", "lookup", "autoregressive"]
    assert not (tmp_path / "out" / "bundles").exists()
    assert json.loads((tmp_path / "out" / "report.json").read_bytes())["best"]["overall"] == "drafter"


def test_figures_are_those_of_spec_bench(job):
    drafter, lookup, plain = run(job(), Workshop()).ways
    assert (drafter.ratio, lookup.ratio, plain.ratio) == (pytest.approx(4), pytest.approx(2), 1.0)
    assert drafter.tokens_per_second == pytest.approx(7 / 0.35)
    assert (drafter.mean_accepted, plain.mean_accepted) == (2.0, 1.0)
    assert [(task.task, task.prompts) for task in drafter.tasks] == [("mt_bench", 1), ("rag", 1), ("overall", 2)]
    assert [depth.accepted for depth in drafter.acceptance_by_depth] == [
        1,
        pytest.approx(2 / 3),
        *[pytest.approx(1 / 3)] * 2,
    ]
    assert drafter.costs.break_even.mean_accepted == pytest.approx(0.051 / 0.021)
    assert (drafter.equal_prompts, plain.equal_prompts, plain.costs.break_even) == (2, None, None)
    assert drafter.decode_ratio == pytest.approx((6 / 0.25) / (6 / 1.2))


def test_a_run_that_was_stopped_goes_on(job, tmp_path):
    class Stopped(Workshop):
        def measure(self, job):
            if len(self.measured) == 4:
                raise KeyboardInterrupt
            return super().measure(job)

    before = Stopped()
    with pytest.raises(KeyboardInterrupt):
        run(job(), before)
    after = Workshop()
    found = run(job(), after)
    assert (after.built, after.measured) == ([], [("lookup", 2), ("autoregressive", 2)])
    whole = run(job(output=tmp_path / "other"), Workshop())
    assert found == whole
    nothing = Workshop()
    assert run(job(), nothing) == whole
    assert (nothing.built, nothing.measured) == ([], [])


def test_more_passes_and_other_methods_are_added(job, tmp_path):
    run(job(), Workshop())
    (tmp_path / "methods.yaml").write_text(METHODS + "longer: {kind: prompt_lookup, tokens: 8}\n")
    more = Workshop()
    found = run(job(repeats=3), more)
    assert sorted(more.measured) == [
        ("autoregressive", 3), ("drafter", 3), ("longer", 1), ("longer", 2), ("longer", 3), ("lookup", 3),
    ]  # fmt: skip
    assert len(found.ways) == 4


@pytest.mark.parametrize(
    ("overrides", "options", "changed"),
    [
        ((), {"max_new_tokens": 5}, "options.max_new_tokens"),
        ((), {"adaptive": True}, "options.draft_length"),
        ((), {"threads": 1}, "options.threads"),
        (("cache.max_length=32",), {}, "recipe.max_length"),
    ],
)
def test_other_options_are_another_comparison(job, overrides, options, changed):
    run(job(), Workshop())
    with pytest.raises(UsageError, match=f"holds a comparison with other {changed}[a-z_., ]*, expected") as caught:
        run(job(*overrides, **options), Workshop())
    assert caught.value.hint


def test_other_prompts_models_and_methods_are_another_comparison(job, tmp_path):
    run(job(), Workshop())
    questions = (tmp_path / "questions.jsonl").read_text()
    made = job()
    (tmp_path / "questions.jsonl").write_text(questions + "\n")
    with pytest.raises(UsageError, match="holds a comparison with other prompts, expected"):
        run(made, Workshop())
    (tmp_path / "questions.jsonl").write_text(questions)
    weights = tmp_path / "drafter" / "model.safetensors"
    os.utime(weights, ns=(1, 1))
    with pytest.raises(UsageError, match=r"holds the method drafter with other models\.drafter, expected"):
        run(job(), Workshop())
    (tmp_path / "methods.yaml").write_text("lookup: {kind: prompt_lookup, tokens: 3}")
    with pytest.raises(UsageError, match=r"holds the method lookup with other drafter\.tokens, .*, settings, expected"):
        run(job(), Workshop())


def test_folders_that_hold_something_else(job, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(UsageError, match="which holds other things, expected a new folder"):
        run(job(), Workshop())
    (tmp_path / "out" / "compare.json").write_text("[")
    with pytest.raises(UsageError, match=r"compare.json: received a file that is no JSON object"):
        run(job(), Workshop())
    with pytest.raises(UsageError, match="expected a folder that can be written: File exists"):
        run(job(output=tmp_path / "methods.yaml"), Workshop())
    (tmp_path / "locked").mkdir()
    handle = lock_folder(tmp_path / "locked")
    try:
        with pytest.raises(UsageError, match="expected a folder that no other process fills"):
            run(job(output=tmp_path / "locked"), Workshop())
    finally:
        os.close(handle)


def test_a_method_that_cannot_be_says_why_and_the_others_go_on(job, tmp_path, caplog):
    (tmp_path / "methods.yaml").write_text(METHODS + "head: {kind: medusa}\nother: [target.model=drafter]\n")
    found = run(job(), Workshop(model=EngineError("it broke", hint="mend it")))
    assert [method.name for method in found.ways] == ["lookup", "autoregressive"]
    reasons = {each.name: (each.reason, each.hint) for each in found.refused}
    assert list(reasons) == ["head", "other", "drafter"]
    assert reasons["drafter"] == ("it broke", "mend it")
    assert "drafter.model: received nothing" in reasons["head"][0]
    assert "changes the recipe's target" in reasons["other"][0]
    assert "drafter is left out: it broke" in caplog.text
    assert "drafter: left out: it broke" in write_table(found)
    assert "<td>drafter</td><td>it broke</td>" in re.sub(' class="[a-z]+"', "", make_page(found))


def test_without_autoregression_there_is_nothing(job):
    with pytest.raises(PromptError, match="too long"):
        run(job(), Workshop(none=PromptError("too long")))


def test_options_that_a_recipe_cannot_have(job):
    with pytest.raises(UsageError, match=r"--temperature: received 0\.7, expected 0: the recipe decodes greedily"):
        job(sampling={"temperature": 0.7})
    sampling = {"temperature": 0.7, "top_k": None}
    made = job("decoding=sampling", sampling=sampling)
    assert made.pass_options() == {"max_new_tokens": 128, "adaptive": False, "seed": 0, "temperature": 0.7}


def test_bundles_that_do_not_fit_together_decode_by_themselves(job, monkeypatch, caplog):
    monkeypatch.setattr(
        "speccompile.measure.compare.work.tightest_memory_limit", lambda: type("Limit", (), {"size": 3})
    )
    workshop = Workshop()
    run(job(), workshop)
    assert [each.baseline for each in workshop.jobs] == [None] * 6
    assert "lookup and the bundle without a drafter are larger than the memory together" in caplog.text


def test_the_table_shows_methods_tasks_depths_and_what_others_published(job):
    text = write_table(run(job(), Workshop()))
    lines = text.splitlines()
    assert "passes through all methods; greedy decoding, fixed draft length" in lines[1]
    start = next(index for index, line in enumerate(lines) if line.startswith("method "))
    rows = [line.split() for line in lines[start : start + 4]]
    assert rows[1][:6] == ["drafter", "4", "2.00", "20.0", "4.00", "4.80"]
    assert rows[1][6:] == ["2.43", rows[1][7], "90", "all"]
    assert rows[3][0::8] == ["autoregressive", "90"]
    assert any(line.split() == ["drafter", "4.00", "(2.00)*", "4.00", "(2.00)*", "4.00", "(2.00)*"] for line in lines)
    assert any(line.split() == ["drafter", "1.00", "0.67", "0.33", "0.33"] for line in lines)
    assert any(line.split() == ["lookup", "here", "2.00", "2.00", *["-"] * 4, "2.00", "2.00"] for line in lines)
    assert "PLD" in text
    assert "SpS" in text
    assert "REST" not in text  # no method here is of its kind


def test_an_exact_method_with_other_tokens_is_told(job):
    workshop = Workshop()
    workshop.wrong = True
    found = run(job(), workshop)
    assert [method.differs for method in found.ways] == [True, True, False]
    assert set(found.best.values()) == {"autoregressive"}  # no method wins that changes what comes out
    assert "drafter: prompt 1, turn 1: new token 6 is 99, autoregressively 7" in write_table(found)


def test_drawn_drafts_are_not_compared_and_certain_ones_are():
    method, questions = Method("x", ()), [Question(("a",))]
    drawn = replace(SPECULATIVE, seed=0, token_ids=[1, 2])

    def reported(manifest):
        made = toy_pass("model", questions, sampling=True, sample=manifest)
        case = PromptRuns(1, (timed(drawn),), (timed(replace(AUTOREGRESSIVE, seed=0)),), "prompts")
        return make_method_report(method, [replace(made, cases=(case,))])

    assert (reported(True).equal_prompts, reported(True).differs) == (None, False)
    assert (reported(False).equal_prompts, reported(False).differs) == (0, True)
    assert [task.task for task in reported(True).tasks] == ["overall"]  # prompts are no questions


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"cascade": {"then": {"kind": "prompt_lookup"}, "gate": None}}, "model then prompt_lookup"),
        ({"cascade": {"then": None, "gate": {"kind": "suffix"}}}, "model or suffix"),
        ({"cascade": None, "inner": {"kind": "prompt_lookup"}}, "model by prompt_lookup"),
    ],
)
def test_a_cascade_is_no_method_of_spec_bench(more, kind):
    made = toy_pass("model", [Question(("a",), "qa")])
    manifest = replace(made.manifest, plan={"drafter": {"kind": "model"} | more})
    found = make_method_report(Method("x", ()), [replace(made, manifest=manifest)])
    assert found.kind == kind
    assert published({found.kind})["tables"] == []


def test_a_page_is_whole_and_loads_nothing(job, tmp_path):
    found = run(job(), Workshop())
    page = make_page(found)
    parsed = Page(page)
    titles = re.findall("<h2>(.*?)</h2>", page)
    assert titles[:7] == [
        "Speed", "Mean accepted", "Speed by task", "Mean accepted by task", "Acceptance by depth", "What costs allow",
        "Memory",
    ]  # fmt: skip
    assert parsed.tags.count("svg") == 7
    assert not {"script", "link", "img", "iframe"} & set(parsed.tags)
    assert not {"src", "href"} & {name for name, _ in parsed.attributes}
    assert "overall: drafter is fastest, 4.00 times autoregression" in page
    write_page(found, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page


def test_a_pass_survives_its_file():
    made = toy_pass("prompt_lookup", [Question(("a",), "rag")])
    assert MeasuredPass.from_json(json.loads(json.dumps(made.to_json())), "x") == made
    plain = toy_pass("none", [Question(("a",), "rag")], number=2)
    assert MeasuredPass.from_json(json.loads(json.dumps(plain.to_json())), "x") == plain
    asked = PassRequest("a", None, "e", 2, (Question(("a", "b"), "math", speed_bench=True),), 1, {"seed": 3})
    assert PassRequest.from_json(json.loads(json.dumps(asked.to_json()))) == asked


def test_published_tables_are_those_of_the_methods_here():
    assert published({"none", "kangaroo"})["tables"] == []
    tables = published({"prompt_lookup", "eagle3"})["tables"]
    assert [{row["method"] for row in table["rows"]} for table in tables] == [
        {"PLD"}, {"PLD"}, {"PLD", "EAGLE3"}, {"PLD"},
    ]  # fmt: skip
    every = published({None, *DRAFTER_KEYS, "token_recycling", "retrieval", "lookahead"})
    assert [len(table["rows"]) for table in every["tables"]] == [10, 10, 11, 10]
    for table in every["tables"]:
        for row in table["rows"]:
            ratios = list(row["speedup"].values())
            # which overall is: 480 questions in six tasks of 80; their ratios differ by the rates' means
            assert min(ratios[:-1]) <= ratios[-1] <= max(ratios[:-1])
            assert row["mean_accepted"] > 1


def test_make_comparison_needs_nothing_but_passes():
    questions = [Question(("a",), "qa")]
    passes = {
        Method("autoregressive", ()): [toy_pass("none", questions)],
        Method("x", ()): [toy_pass("layer_skip", questions)],
    }
    found = make_comparison("r", "e", passes, {}, {"prompts": 1})
    assert (found.best, found.ways[0].name, found.published["tables"]) == (
        {"qa": "autoregressive", "overall": "autoregressive"}, "autoregressive", [],
    )  # fmt: skip
