"""Bundles that are almost right, opened in C++ as well: both runtimes refuse them, in the same words."""

import pytest

from tests.light import test_bundle_checks
from tests.light.test_bundle_checks import bundle  # noqa: F401  a fixture
from tests.native.bundle_lines import Lines, outcome
from tests.native.test_native_bundle import check_same, open_bundle


@pytest.fixture(autouse=True)
def _both(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_both(folder, *, verify: bool = True):
        ours = outcome(lambda: lines.ask("open", str(folder), verify=verify))
        check_same(ours, outcome(lambda: open_bundle(folder, verify=verify)))
        return open_bundle(folder, verify=verify)

    monkeypatch.setattr(test_bundle_checks, "open_bundle", open_both)


for _name, _test in list(vars(test_bundle_checks).items()):
    if _name.startswith("test_"):
        globals()[_name] = _test
