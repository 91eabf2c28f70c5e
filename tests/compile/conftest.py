"""Bundles of tiny models, each built once a session, when it is first asked for; and the command line."""

import fcntl
from collections.abc import Callable, Iterator
from functools import cache, partial

import pytest

from speccompile.runtime.devices import onnxruntime
from tests.compile import tiny_bundles
from tests.compile.combinations import Workshop
from tests.compile.tiny_bundles import Built
from tests.native.conftest import native_build, native_library, onnxruntime_library  # noqa: F401 - for tests in here
from tests.native.refusals import copied, in_native, sampling, two  # noqa: F401
from tests.native.two_commands import both, chatty, lookup, model, silent  # noqa: F401


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Let engines take one thread where nobody says how many: workers share the cores.

    Until the end of each module: a worker goes on with tests of other folders.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnxruntime, "available_cores", lambda: 1)
        yield


@pytest.fixture(scope="session")
def built(shared_folder) -> Callable[[str], Built]:
    """Return the bundle of a name in `tiny_bundles.RECIPES`. The processes of one session share them."""

    @cache
    def get(name: str) -> Built:
        folder = shared_folder / "bundles" / name
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
            if not (folder / "bundle").exists():
                tiny_bundles.make(name, folder)
        return Built(folder)

    return get


@pytest.fixture(scope="session")
def workshop(shared_folder) -> Workshop:
    """Return a folder in which the processes of one session share models, bundles and what is kept of their engines."""
    return Workshop(shared_folder / "combinations")


@pytest.fixture
def cli(command_line) -> Callable[..., tuple[int, str, str]]:
    """Return `command_line` without progress."""
    return partial(command_line, "-q")
