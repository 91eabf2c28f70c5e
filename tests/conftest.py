"""What all tests share."""

import gc
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from speccompile.progress import LOGGER

# Workers share the cores: two threads each would wait for one another by spinning.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# As the command line does: torch and transformers make many objects, few of which are garbage.
gc.set_threshold(100_000, 20, 20)

pytest_plugins = [f"tests.suite.{name}" for name in ("tiers", "times", "budgets", "ends")] + ["pytester"]

# The time of an example depends on the machine.
settings.register_profile("speccompile", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("speccompile")


def pytest_collection_finish() -> None:
    """Freeze what has been imported: a build collects garbage between its steps, and would look through all of it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _settled() -> None:
    """Freeze what earlier modules have imported and cached."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    """Restore the log's level: commands that run in this process set it, and may end before they restore it."""
    level = LOGGER.level
    yield
    LOGGER.setLevel(level)


@pytest.fixture
def command_line(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs `speccompile` with its arguments in this process: exit code, stdout, stderr."""
    from speccompile.cli import exit_codes
    from speccompile.cli.main import group

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = exit_codes.run(group, [*map(str, arguments)])
        return (code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a temporary folder that all processes of a session have."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def _signals() -> Iterator[None]:
    """Let programs that tests start get what nohup, or the & of a script, has told this one to ignore:
    what is ignored stays so in programs that are started, and what is handled does not."""
    ignored = [each for each in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(each) == signal.SIG_IGN]
    for each in ignored:
        signal.signal(each, lambda *_: None)
    yield
    for each in ignored:
        signal.signal(each, signal.SIG_IGN)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(shared_folder: Path) -> Iterator[None]:
    """Give all tests of a session caches and temporary folders of their own, which go with its folder, even when the
    session is killed."""
    temporary = shared_folder / "tmp"
    temporary.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECCOMPILE_CACHE_DIR", str(shared_folder / "cache"))
        patch.setenv("TMPDIR", str(temporary))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(shared_folder / "torchinductor"))
        patch.setattr(tempfile, "tempdir", str(temporary))
        yield
