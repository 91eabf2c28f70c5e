"""Run a comparison: build and measure its methods, and resume an interrupted one."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from speccompile.errors import UsageError
from speccompile.machine.executor import Executor, LocalExecutor
from speccompile.measure.compare.board import Board
from speccompile.measure.compare.builds import Builder, build_method
from speccompile.measure.compare.job import Comparison
from speccompile.measure.compare.limit import TimeIsUpError
from speccompile.measure.compare.methods import Method
from speccompile.measure.compare.passes import measure_method
from speccompile.measure.compare.report import INTERRUPTED, TIME, ComparisonReport, make_comparison
from speccompile.measure.compare.work import Build, Measure, Work
from speccompile.recipe import Plan

HERE = LocalExecutor(brief=True)
"""Executor in this process, which reports to the board."""


class ComparisonInterrupted(KeyboardInterrupt):
    """Interrupt of a comparison. report: of the measurements so far, None before autoregression is measured;
    interrupt: has the number of the signal."""

    def __init__(self, report: ComparisonReport | None, interrupt: KeyboardInterrupt) -> None:
        super().__init__(*interrupt.args)
        self.report = report


def run_comparison(
    job: Comparison,
    measure: Measure | None = None,
    build: Build | None = None,
    pool: Executor = HERE,
    board: Board | None = None,
) -> ComparisonReport:
    """Build and measure every method that is not done yet, and return the report.

    Every pass covers all methods that can still win, and each alternates with autoregression, question by question:
    other load affects all alike. measure, build: by default in processes of their own. pool: executor whose machines
    see this comparison's folder and models. board: receives progress. A method that cannot be built or measured is
    reported with the reason. An error of autoregression propagates. The report is incomplete where the time of the
    options is up. Raise ComparisonInterrupted, with the report so far, on an interrupt, and UsageError where the time
    is too short for autoregression.
    """
    board = board or job.board()
    with ExitStack() as stack:
        if isinstance(pool, LocalExecutor):
            builder = stack.enter_context(
                Builder(job.source, use_build_cache=job.options.use_build_cache, watch=board.event, limit=board.limit)
            )
            own_measure: Measure = partial(measure_method, watch=board.event, limit=board.limit)
            own_build: Build = lambda method, _, output: builder.build(method, output)  # noqa: E731  # mypy knows its type
        else:
            own_measure, own_build = measure_method, partial(_build_there, job)
        return _run(Work(job, measure or own_measure, build or own_build, pool, board), job)


def _build_there(job: Comparison, method: Method, plan: Plan, output: Path) -> None:
    build_method(job.source, method, output, job.options.use_build_cache)


def _run(work: Work, job: Comparison) -> ComparisonReport:
    with job.store.opened(job.key()):
        try:
            work.plan()
            for number in range(1, job.options.repeats + 1):
                work.do(job.methods[:: 1 if number % 2 else -1], number)
        except KeyboardInterrupt as interrupt:
            has_plain = job.methods[0] in work.complete()
            report = _report(work, job, INTERRUPTED) if has_plain else None
            raise ComparisonInterrupted(report, interrupt) from None
        except TimeIsUpError:
            if job.methods[0] not in work.complete():
                raise _too_short(job.options.minutes) from None
            return _report(work, job, TIME)
        comparison = _report(work, job)
        job.store.finish(comparison.to_json())
    return comparison


def _too_short(minutes: float) -> UsageError:
    return UsageError(
        f"--minutes: received {minutes:g}, expected enough to build and measure the bundle without a drafter",
        hint="give more minutes, 0 for as long as it takes, or fewer prompts and new tokens; what was built is kept",
    )


def _report(work: Work, job: Comparison, ended: str | None = None) -> ComparisonReport:
    unmeasured = [method.name for method in job.methods if not work.found[method] and method.name not in work.refused]
    return make_comparison(
        job.source.plan.name, job.source.engine.name, work.complete(), work.refused, job.options_json(),
        dropped=work.dropped(), unmeasured=unmeasured, ended=ended,
    )  # fmt: skip
