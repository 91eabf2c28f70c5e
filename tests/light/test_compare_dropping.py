"""Ways that cannot win: the rule, the figures that are told, and what is not measured any more."""

from dataclasses import replace

import pytest

from speccompile.measure.bench.groups import OVERALL
from speccompile.measure.bench.measure import PromptRuns
from speccompile.measure.compare.dropping import Leader, find_verdict, leaders_of, undisturbed_ratio
from speccompile.measure.compare.page import make_page
from speccompile.measure.compare.table import write_table
from tests.light.bench_example import AUTOREGRESSIVE, SPECULATIVE, timed
from tests.light.compare_example import METHODS, Workshop, read_job, run

QUESTIONS = [{"question_id": index, "category": "qa", "turns": ["a"]} for index in range(8)]
DRAFTER_FIRST = "\n".join(reversed(METHODS.splitlines()))


def cases(ratios, gap=0.2, tasks=("qa",)):
    """Return runs of prompts with these ratios to autoregression, whose rounds take 0.1 s; gap: seconds of a round."""
    return [
        PromptRuns(
            number,
            (timed(replace(SPECULATIVE, seconds=AUTOREGRESSIVE.seconds / ratio), [gap] * 3),),
            (timed(AUTOREGRESSIVE),),
            tasks[number % len(tasks)],
        )
        for number, ratio in enumerate(ratios)
    ]


def leading(ratios, **options):
    return leaders_of({"best": cases(ratios, **options)})


def test_what_cannot_win_is_dropped_with_its_figures():
    verdict = find_verdict(cases([0.6, 0.5, 0.4, 0.5, 0.6, 0.4]), leading([2.0] * 8))
    assert (verdict.prompts, verdict.best, verdict.best_ratio) == (6, "best", pytest.approx(2.0))
    assert verdict.ratio == pytest.approx(0.5)
    assert verdict.ratio < verdict.ratio_at_most < 2.0


@pytest.mark.parametrize(
    ("ours", "leader"),
    [
        ([0.5] * 5, [2.0] * 8),  # too few prompts
        ([0.95] * 8, [1.0] * 8),  # so near that another run may differ
        ([0.2, 3.0] * 4, [2.0] * 8),  # so scattered that its mean may be higher
        ([1.1] * 8, [1.0] * 8),  # the best itself
    ],
)
def test_what_may_still_win_stays(ours, leader):
    assert find_verdict(cases(ours, gap=0.4), leading(leader)) is None


def test_the_best_of_one_task_stays():
    tasks = ("qa", "rag")
    ours, others = [0.5, 3.0] * 6, [2.0, 1.0] * 6
    best = leaders_of({"a": cases(others, tasks=tasks), "b": cases(ours, tasks=tasks)})
    assert {each.task: each.name for each in best} == {"qa": "a", "rag": "b", OVERALL: "b"}
    rival = leaders_of({"a": cases([4.0, 2.5] * 6, tasks=tasks)})
    assert find_verdict(cases(ours, gap=0.4, tasks=tasks), rival) is None


def test_a_task_that_was_not_measured_yet_may_be_won():
    tasks = ("qa",)
    every = [*leading([2.0] * 8, tasks=tasks), Leader("rag", "best", {20: (2.0, 1.0)})]
    assert find_verdict(cases([0.5] * 8, tasks=tasks), every) is None


def test_other_load_of_the_machine_is_no_reason():
    disturbed = cases([0.5] * 8, gap=0.05)  # its rounds are fast: 2 tokens in half the time of one
    assert undisturbed_ratio(disturbed) == pytest.approx(4.0)
    assert find_verdict(disturbed, leading([2.0] * 8)) is None
    assert undisturbed_ratio([]) == 0.0


def test_a_method_that_lost_a_pass_has_no_other(make_recipe, caplog):
    workshop = Workshop()
    found = run(read_job(make_recipe(), questions=QUESTIONS), workshop)
    assert workshop.measured == [
        ("autoregressive", 1), ("lookup", 1), ("drafter", 1), ("drafter", 2), ("autoregressive", 2),
    ]  # fmt: skip
    assert {method.name: method.passes for method in found.ways} == {"drafter": 2, "lookup": 1, "autoregressive": 2}
    (lost,) = found.dropped
    assert (lost.name, lost.passes, lost.prompts, lost.best) == ("lookup", 1, 8, "drafter")
    assert (lost.ratio, lost.best_ratio) == (pytest.approx(2.0), pytest.approx(4.0))
    again = Workshop()
    assert run(read_job(make_recipe(), questions=QUESTIONS), again).dropped == found.dropped
    assert again.measured == []


def test_all_are_kept_on_request(make_recipe):
    workshop = Workshop()
    found = run(read_job(make_recipe(), questions=QUESTIONS, drop=False), workshop)
    assert (len(workshop.measured), found.dropped) == (6, ())
    assert [job.leaders for job in workshop.jobs] == [()] * 6


class Judging(Workshop):
    """A workshop that ends a pass after six prompts where the method cannot win."""

    def measure(self, job):
        found = super().measure(job)
        verdict = find_verdict(found.cases[:6], job.leaders) if job.leaders else None
        return found if verdict is None else replace(found, cases=found.cases[:6], costs=None, dropped=verdict)


def test_a_pass_that_ends_early_is_told_and_kept(make_recipe, caplog):
    caplog.set_level("INFO", "speccompile")
    before = Judging()
    found = run(read_job(make_recipe(), questions=QUESTIONS, methods=DRAFTER_FIRST), before)
    assert before.measured == [
        ("autoregressive", 1), ("drafter", 1), ("lookup", 1), ("drafter", 2), ("autoregressive", 2),
    ]  # fmt: skip
    assert [method.name for method in found.ways] == ["drafter", "autoregressive"]
    (lost,) = found.dropped
    assert (lost.name, lost.passes, lost.prompts, lost.differs) == ("lookup", 0, 6, False)
    assert (
        "lookup: dropped after 6 of 8 prompts: 2.00 times autoregression, at most 2.40, drafter has 4.00" in caplog.text
    )
    line = next(line for line in write_table(found).splitlines() if line.startswith("lookup"))
    assert line.split() == ["lookup", "6", "2.00", "10.0", "2.00", "2.40", "4.00", "(drafter)"]
    assert ">4.00 (drafter)</td>" in make_page(found)
    again = Judging()
    assert run(read_job(make_recipe(), questions=QUESTIONS, methods=DRAFTER_FIRST), again) == found
    assert again.measured == []


@pytest.mark.parametrize("changed", [{"methods": METHODS.splitlines()[0]}, {"methods": DRAFTER_FIRST, "drop": False}])
def test_it_is_measured_again_where_what_it_lost_to_is_gone(make_recipe, changed):
    run(read_job(make_recipe(), questions=QUESTIONS, methods=DRAFTER_FIRST), Judging())
    again = Judging()
    found = run(read_job(make_recipe(), questions=QUESTIONS, **changed), again)
    assert again.measured == [("lookup", 1), ("lookup", 2)]
    assert "lookup" in [method.name for method in found.ways]
    assert found.dropped == ()


def test_what_changes_tokens_drops_no_other_method(make_recipe):
    workshop = Judging()
    workshop.wrong = True
    found = run(read_job(make_recipe(), questions=QUESTIONS), workshop)
    assert found.dropped == ()  # only what keeps the tokens may lead, and autoregression is slower than both
    assert found.wrong == ["drafter", "lookup"]
