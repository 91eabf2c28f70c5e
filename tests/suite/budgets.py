"""Holds the tests of the first tier against what they may build: tests/budgets.toml.

A module that traces graphs says how many at most, `pytestmark = pytest.mark.builds(N)`, or a test does, for itself and
each of its parameters. `--check-budgets` sums that by folder, without running anything; a run counts what was done.
"""

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.suite import counting, plan
from tests.suite.declared import write_marks
from tests.suite.tiers import is_second, is_worker

FILE = Path("tests") / "budgets.toml"


@dataclass
class Budgets:
    """enforce: whether a run fails where more is done than was said. folders: what their modules may say together.
    shared: what is made once a session, by whoever needs it first."""

    enforce: bool = False
    folders: dict[str, int] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, root: Path) -> "Budgets":
        path = root / FILE
        return cls(**tomllib.loads(path.read_text(encoding="utf-8"))) if path.exists() else cls()

    def write(self, root: Path) -> None:
        """Write it with the comment at its head as it was."""
        text = (root / FILE).read_text(encoding="utf-8") if (root / FILE).exists() else ""
        lines = [line for line in text.splitlines() if line.startswith("#")]
        lines += [f"enforce = {str(self.enforce).lower()}"]
        for name, table in (("folders", self.folders), ("shared", self.shared)):
            lines += ["", f"[{name}]", *(f'"{key}" = {table[key]}' for key in sorted(table))]
        (root / FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def excesses(self, declared: Mapping[str, int]) -> list[str]:
        """Return what is wrong with what modules declare. declared: by module."""
        folders: Counter[str] = Counter()
        for module, count in declared.items():
            folders[folder(module)] += count
        return [
            f"{name}: its tests of the first tier declare {count} builds, and {FILE.as_posix()} allows "
            f"{self.folders.get(name, 0)}: share a bundle, or move a sweep to the second tier"
            for name, count in sorted(folders.items())
            if count > self.folders.get(name, 0)
        ]


def folder(module: str) -> str:
    """Return tests/compile for tests/compile/families/test_x.py."""
    return "/".join(PurePosixPath(module).parent.parts[:2])


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("suite")
    group.addoption(
        "--check-budgets", action="store_true", help="run nothing; hold declared builds against the budgets"
    )
    group.addoption("--count-builds", action="store_true", help="print what each module has traced and built")
    group.addoption("--write-budgets", action="store_true", help="write what was counted into the modules' marks")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "builds(n): at most n graphs are traced; a build in another process counts 2")
    config.pluginmanager.register(_Budgets(config), "suite-budgets")


def declared(items: list[pytest.Item]) -> Counter[str]:
    """Return module -> builds that it declares, and that its tests among `items` declare."""
    found: Counter[str] = Counter()
    nodes = {node for item in items for node in item.listchain() if not isinstance(node, pytest.Session)}
    for node in nodes:
        for mark in node.own_markers:
            if mark.name == "builds":
                found[plan.file_of(node.nodeid)] += mark.args[0]
    return found


class _Budgets:
    def __init__(self, config: pytest.Config) -> None:
        self._config, self._budgets = config, Budgets.read(config.rootpath)
        self._declared: Counter[str] = Counter()
        self._modules: Counter[str] = Counter()
        self._shared: Counter[str] = Counter()
        self._excesses: list[str] = []
        self._second: set[str] = set()
        if not config.option.check_budgets and (is_worker(config) or not getattr(config.option, "numprocesses", None)):
            counting.watch()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        first = [item for item in items if not is_second(item)]
        self._declared = declared(first)
        self._second = {plan.file_of(item.nodeid) for item in items if is_second(item)}
        if self._config.option.check_budgets:
            self._excesses = self._budgets.excesses(self._declared)
            items.clear()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        counting.COUNTS.module = plan.file_of(item.nodeid)
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[Any]:
        result = yield
        module = plan.file_of(item.nodeid)
        is_last = nextitem is None or plan.file_of(nextitem.nodeid) != module
        done, said = counting.COUNTS.modules[module], self._declared[module]
        if self._budgets.enforce and is_last and module not in self._second and done > said:
            pytest.fail(
                f"{module} traced {done} graphs (a build in a process of its own counts {counting.CHILD}) and declares "
                f"{said}: use what is shared, or say pytest.mark.builds({done}) and see {FILE.as_posix()}",
                pytrace=False,
            )
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if is_worker(self._config):
            output = self._config.workeroutput
            output["builds"] = [dict(counting.COUNTS.modules), dict(counting.COUNTS.shared), dict(self._declared)]
            return
        self._add(counting.COUNTS.modules, counting.COUNTS.shared, {})
        if self._config.option.check_budgets:
            if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
                session.exitstatus = pytest.ExitCode.OK
        elif self._budgets.enforce and not self._config.option.sweep:
            self._excesses += [
                f"{name}, which tests share, traced {count} graphs, and {FILE.as_posix()} allows {allowed}"
                for name, count in self._shared.items()
                if count > (allowed := self._budgets.shared.get(name, 0))
            ]
        if self._excesses and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._add(*getattr(node, "workeroutput", {}).get("builds", ({}, {}, {})))

    def _add(self, modules: Mapping[str, int], shared: Mapping[str, int], said: Mapping[str, int]) -> None:
        self._modules.update(modules)
        self._shared.update(shared)
        self._declared |= Counter(said)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        option, write = self._config.option, terminalreporter.write_line
        modules = {name: count for name, count in sorted(self._modules.items()) if count}
        if option.count_builds:
            write("")
            write(f"{'counted':>9} {'declared':>9}  builds of")
            for name, count in modules.items():
                write(f"{count:9} {self._declared[name]:9}  {name}")
            for name, count in sorted(self._shared.items()):
                write(f"{count:9} {self._budgets.shared.get(name, 0):9}  {name} (shared)")
        if option.write_budgets and not option.sweep:
            for line in self._written(modules):
                write(line)
        for sentence in self._excesses:
            write(sentence, red=True)

    def _written(self, modules: Mapping[str, int]) -> Iterator[str]:
        """Raise marks and budgets to what was counted. Nothing is lowered."""
        folders: Counter[str] = Counter()
        for name, count in (self._declared | Counter(modules)).items():
            folders[folder(name)] += count
            if count > self._declared[name]:
                yield write_marks(self._config.rootpath / name, count)
        for table, counted in ((self._budgets.folders, folders), (self._budgets.shared, self._shared)):
            table.update({name: max(count, table.get(name, 0)) for name, count in counted.items()})
        self._budgets.write(self._config.rootpath)
