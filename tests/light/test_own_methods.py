"""Drafting methods of other packages: how they are found, what is said of one that is wrong, and the page about it."""

import re
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from speccompile import drafters
from speccompile.drafters import jacobi
from speccompile.errors import EngineError
from tests.own_method import echo_drafter

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/add-a-drafting-method.md").read_text(encoding="utf-8")


def point(value: str) -> EntryPoint:
    return EntryPoint("mine", value, drafters.GROUP)


def test_a_module_with_a_family_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafters, "entry_points", lambda group: [point("tests.own_method.echo_drafter")])
    assert list(drafters._others()) == [echo_drafter]
    assert list(drafters._registered([jacobi, echo_drafter])) == ["jacobi", "echo"]


@pytest.mark.parametrize(
    ("value", "received"),
    [
        ("tests.own_method.nothing", "received ModuleNotFoundError: No module named 'tests.own_method.nothing'"),
        ("tests.zoo", "received AttributeError: module 'tests.zoo' has no attribute 'METHOD'"),
    ],
)
def test_one_that_is_wrong_is_one_error(monkeypatch: pytest.MonkeyPatch, value: str, received: str) -> None:
    monkeypatch.setattr(drafters, "entry_points", lambda group: [point(value)])
    with pytest.raises(
        EngineError, match=re.escape(f"the drafting method 'mine' ({value}) cannot be loaded: {received}")
    ):
        list(drafters._others())


def test_a_kind_that_is_there_already_is_refused() -> None:
    other = ModuleType("somebodys")
    other.METHOD = jacobi.METHOD  # type: ignore[attr-defined]
    with pytest.raises(
        EngineError, match=r"^the drafting method 'jacobi' is there twice: received somebodys, expected"
    ):
        drafters._registered([jacobi, other])


def test_the_page_shows_the_files_that_are_tested() -> None:
    shown = re.findall(r'^```python title="(echo_drafter/\S+)"\n(.*?)```', PAGE, re.M | re.S)
    files = sorted((ROOT / "tests/own_method/echo_drafter").glob("*.py"))
    assert dict(shown) == {f"echo_drafter/{file.name}": file.read_text(encoding="utf-8") for file in files}


def test_paths_on_the_page_are_there() -> None:
    for path in re.findall(r"`((?:speccompile|tests)/[\w./]+)`", PAGE):
        assert (ROOT / path).exists(), path
