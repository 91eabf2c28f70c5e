"""Two tiers of tests: one that everybody runs before a commit, and sweeps, of which CI runs a part for each commit.

`@pytest.mark.sweep("reason")` puts a test, a parameter or a module (`pytestmark`) into the second tier, and
`sweep("reason", but=["gpt2"])` all cases of a test but those with one of these in their name. `--sweep` runs that tier,
and every other run leaves it out, but for tests whose name is on the command line (`file.py::test`).
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.suite import plan
from tests.suite.passed import Passed

WHOLE = pytest.StashKey[Counter[str]]()
"""File -> tests of the tier that is run, whatever a shard or an earlier run takes away."""
_PASSED = pytest.StashKey[Passed]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("suite", "the two tiers of tests")
    group.addoption("--sweep", action="store_true", help="run the second tier, marked sweep, instead of the first")
    group.addoption(
        "--shard", metavar="I/N", help=f"with --sweep: its I-th part of N; auto: of {plan.SHARDS}, as HEAD chooses"
    )
    group.addoption("--resume", action="store_true", help="leave out what has passed on the present state of files")
    group.addoption(
        "--shuffle", metavar="SEED", help="files, and the tests of each, in random order; auto: as HEAD says"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "sweep(reason, but=()): second tier, which --sweep runs; says why it is no first"
    )
    option = config.option
    if option.shard and not option.sweep:
        raise pytest.UsageError("--shard is a part of the sweep: give --sweep as well")
    if is_worker(config):
        vars(option).update(config.workerinput["suite"])
        return
    if option.shard:
        option.shard = "{}/{}".format(*plan.read_shard(option.shard, config.rootpath))
    if option.shuffle:
        option.shuffle = str(_seed(option.shuffle, config.rootpath))
    if getattr(option, "numprocesses", None):
        option.loadscopereorder = False  # of xdist, which would start with the files that have most tests
    if (option.sweep or option.resume) and not option.collectonly:
        _keep_what_passes(config)


def _keep_what_passes(config: pytest.Config) -> None:
    """Keep the names of tests that pass. Where pytest has a cache and files have a state: a sweep runs without them,
    but cannot be resumed."""
    option = config.option
    if not hasattr(config, "cache"):
        if option.resume:
            raise pytest.UsageError("--resume finds what has passed in pytest's cache: leave out -p no:cacheprovider")
        return
    try:
        passed = Passed(config.cache.mkdir("suite"), config.rootpath)
    except pytest.UsageError:
        if option.resume:
            raise
        return
    config.stash[_PASSED] = passed
    config.pluginmanager.register(passed, "suite-passed")
    option.passed = str(passed.snapshot()) if option.resume else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send the selection to a worker, even if a commit comes before it starts."""
    option = node.config.option
    node.workerinput["suite"] = {name: getattr(option, name, None) for name in ("shard", "shuffle", "passed")}


def is_worker(config: pytest.Config) -> bool:
    """Return whether this is a process of xdist's, which a controller tells what to run."""
    return hasattr(config, "workerinput")


def _seed(text: str, root: Path) -> int:
    if text == "auto":
        return int(plan.head(root)[:8], 16)
    if not text.isdecimal():
        raise pytest.UsageError(f"--shuffle: received '{text}', expected auto or a number")
    return int(text)


def _said(config: pytest.Config) -> str:
    words = [f"shard {config.option.shard}"] if config.option.shard else []
    words += [f"order of --shuffle {config.option.shuffle}"] if config.option.shuffle else []
    return ", ".join(["second tier" if config.option.sweep else "first tier", *words])


def pytest_sessionstart(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and (session.config.option.sweep or session.config.option.shuffle):
        reporter.write_line(_said(session.config))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.option.sweep or config.option.shuffle:
        terminalreporter.write_line(_said(config))


def reason(mark: pytest.Mark) -> object:
    return mark.args[0] if mark.args else mark.kwargs.get("reason")


def is_second(item: pytest.Item) -> bool:
    return any(kept_by(item, mark) is None for mark in item.iter_markers("sweep"))


def kept_by(item: pytest.Item, mark: pytest.Mark) -> str | None:
    """Return the word with which a mark leaves a test in the first tier, None where there is none."""
    spec = getattr(item, "callspec", None)
    return next((word for word in mark.kwargs.get("but", ()) if spec is not None and word in spec.id), None)


def _check_words(items: list[pytest.Item]) -> None:
    """Refuse a `but` that names no case of its test: a name that has changed would move the test silently."""
    words: dict[tuple[str, str], bool] = {}
    for item in items:
        for mark in item.iter_markers("sweep"):
            for word in mark.kwargs.get("but", ()):
                key = (item.nodeid.partition("[")[0], word)
                words[key] = words.get(key, False) or word in getattr(getattr(item, "callspec", None), "id", "")
    for (test, word), is_met in words.items():
        if not is_met:
            raise pytest.UsageError(f"{test}: received sweep(but='{word}'), expected a part of one of its cases' names")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Refuse a sweep without a reason."""
    report = yield
    for item in report.result if report.passed else ():
        marks = item.iter_markers("sweep") if isinstance(item, pytest.Item) else ()
        if not all(isinstance(reason(mark), str) and str(reason(mark)).strip() for mark in marks):
            report.outcome = "failed"
            report.result = []
            report.longrepr = f"{item.nodeid}: received a mark sweep without a reason, expected sweep('why')"
            break
    return report


def _named(config: pytest.Config) -> list[str]:
    """Return tests that the command line names, as they are called from the root of the checkout."""
    found = []
    for argument in config.args:
        path, colons, test = argument.partition("::")
        whole = (config.invocation_params.dir / path).resolve()
        if colons and whole.is_relative_to(config.rootpath.resolve()):
            found.append(f"{whole.relative_to(config.rootpath.resolve()).as_posix()}::{test}")
    return found


def _together(item: pytest.Item) -> object:
    """Return the parameters that more than one test shares: those of fixtures of modules and of the session."""
    spec = getattr(item, "callspec", None)
    scopes = getattr(spec, "_arg2scope", {})
    return tuple((name, spec.indices.get(name)) for name in sorted(scopes) if scopes[name].value != "function")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    option, names = config.option, _named(config)
    if not names:
        _check_words(items)
    costs = plan.read_costs(config.rootpath, "sweep" if option.sweep else "first")
    named = {
        item.nodeid for item in items for name in names if f"{item.nodeid}::".startswith((f"{name}::", f"{name}["))
    }
    taken = {item.nodeid for item in items if is_second(item) == option.sweep}
    config.stash[WHOLE] = Counter(plan.file_of(nodeid) for nodeid in taken)
    if option.shard:
        index, count = plan.read_shard(option.shard, config.rootpath)
        taken = plan.shards([item.nodeid for item in items if item.nodeid in taken], costs, count)[index - 1]
    if getattr(option, "passed", None):
        taken -= Passed.read(Path(option.passed))
    taken |= named
    left_out = [item for item in items if item.nodeid not in taken]
    items[:] = [item for item in items if item.nodeid in taken]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    if option.shuffle:
        items[:] = plan.shuffled(items, _file, _together, int(option.shuffle))
    elif is_worker(config):
        items[:] = plan.dearest_first(items, _file, costs)


def _file(item: pytest.Item) -> str:
    return plan.file_of(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    option = session.config.option
    if (option.shard or option.resume) and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK  # a shard may be empty, and all may have passed before
    if _PASSED in session.config.stash:
        session.config.stash[_PASSED].close()
    return (yield)
