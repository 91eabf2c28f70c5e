"""Where the time of a run goes: `--times` and `--sweep` print it, `--write-costs` keeps it in tests/costs.json."""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from time import perf_counter  # the function itself: tests put others in its place
from typing import Any

import pytest

from tests.suite import plan
from tests.suite.tiers import WHOLE, is_worker

SLOWEST = 30


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("suite")
    group.addoption(
        "--times", action="store_true", help=f"print the {SLOWEST} slowest tests, and time by folder and file"
    )
    group.addoption("--write-costs", action="store_true", help="keep each file's processor time in tests/costs.json")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Times(config), "suite-times")


def _now() -> tuple[float, float]:
    """Return seconds on the wall, and of processor time of this process and the children that it waited for."""
    return perf_counter(), sum(os.times()[:4])


class Spent(list[float]):
    """Seconds on the wall, and of processor time."""

    def __init__(self) -> None:
        super().__init__([0.0, 0.0])

    def add(self, other: list[float]) -> None:
        self[:] = [mine + more for mine, more in zip(self, other, strict=True)]


class _Times:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._last = _now()
        self._tests: dict[str, Spent] = defaultdict(Spent)
        self._whole: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[Any]:
        self._last = _now()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[Any]:
        """Add what a phase took to its report, which travels from a worker to the controller."""
        report = yield
        now = _now()
        report.spent = [after - before for after, before in zip(now, self._last, strict=True)]
        self._last = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests[report.nodeid].add(getattr(report, "spent", [0.0, 0.0]))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._whole |= session.config.stash.get(WHOLE, Counter())
        if is_worker(self._config):
            self._config.workeroutput["whole"] = dict(self._whole)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._whole |= Counter(getattr(node, "workeroutput", {}).get("whole", {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        option = self._config.option
        if (option.times or option.sweep) and self._tests:
            for line in table(self._tests):
                terminalreporter.write_line(line)
        if option.write_costs:
            write_costs(self._config.rootpath, "sweep" if option.sweep else "first", self._tests, self._whole)


def table(tests: dict[str, Spent]) -> list[str]:
    """Return the slowest tests, and the time of folders and of files, by processor time."""
    files: dict[str, Spent] = defaultdict(Spent)
    folders: dict[str, Spent] = defaultdict(Spent)
    for nodeid, spent in tests.items():
        files[plan.file_of(nodeid)].add(spent)
        folders[PurePosixPath(plan.file_of(nodeid)).parent.as_posix()].add(spent)
    lines = []
    for title, rows in (
        (f"the {min(SLOWEST, len(tests))} slowest tests", _slowest(tests)[:SLOWEST]),
        ("folders", _slowest(folders)),
        ("files", [row for row in _slowest(files) if max(row[1]) >= 1] or _slowest(files)[:SLOWEST]),
    ):
        lines += ["", f"{'wall s':>9} {'cpu s':>9}  {title}"]
        lines += [f"{wall:9.1f} {cpu:9.1f}  {name}" for name, (wall, cpu) in rows]
    return lines


def _slowest(spent: dict[str, Spent]) -> list[tuple[str, Spent]]:
    return sorted(spent.items(), key=lambda pair: -max(pair[1]))


def write_costs(root: Path, tier: str, tests: dict[str, Spent], whole: Counter[str]) -> None:
    """Renew the costs of files of which at least half was run. What was left out counts like the rest."""
    path = root / "tests" / "costs.json"
    costs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    seconds, ran = Counter[str](), Counter(map(plan.file_of, tests))
    for nodeid, (_, cpu) in tests.items():
        seconds[plan.file_of(nodeid)] += cpu  # type: ignore[assignment]
    known = costs.setdefault(tier, {})
    for name, count in ran.items():
        everything = max(whole[name], count)
        if 2 * count >= everything:
            known[name] = round(seconds[name] * everything / count, 1)
    costs[tier] = {name: known[name] for name in sorted(known) if (root / name).exists()}
    path.write_text(json.dumps(costs, indent=1, sort_keys=True) + "\n", encoding="utf-8")
