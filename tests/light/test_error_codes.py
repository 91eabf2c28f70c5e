"""Codes of errors: every `raise` of the package has one, the catalogue has no other, and the command line tells it."""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

from scripts.pages.error_catalogue import EXIT_CODES as EXPLAINED
from scripts.pages.error_catalogue import Package, Raise, raises, read_package
from speccompile import errors
from speccompile.cli.error_codes import catalogue, code_of, find, is_part
from speccompile.cli.main import COMMANDS, group
from speccompile.errors import BundleError
from speccompile.runtime.options import check_threads
from speccompile.serving.http.errors import RequestError

CommandLine = Callable[..., tuple[int, str, str]]


EXIT_CODES = {"click.UsageError": 2, "OSError": 1, "MemoryError": 1, "Exception": errors.DEFECT_EXIT_CODE}
COMMAND = re.compile(r"`speccompile (\w+)([^`]*)`")


@pytest.fixture(scope="module")
def package() -> Package:
    """Return the code of the package, which takes seconds to read: not where tests are only collected."""
    return read_package()


@pytest.fixture(scope="module")
def found(package: Package) -> list[Raise]:
    """Return every `raise` of the package."""
    return list(raises(package))


def listed(name: str, package: Package) -> str:
    """Return the class in the catalogue that a class of the package is, or derives from."""
    if any(name in entry.errors for entry in catalogue().values()):
        return name
    return next(listed(base, package) for base in package.bases[name])


def test_every_raise_is_of_a_module_that_the_catalogue_names(package: Package, found: list[Raise]) -> None:
    assert len(found) > 900
    for each in found:
        for name in (listed(error, package) for error in each.errors):
            modules = [module for entry in catalogue().values() if name in entry.errors for module in entry.modules]
            assert any(is_part(each.module, module) for module in modules), (name, each.module, each.line)


def test_every_module_of_the_catalogue_raises_what_it_says(package: Package, found: list[Raise]) -> None:
    raised = {(find(listed(name, package), each.module), each.module) for each in found for name in each.errors}
    passed_on = {each.module for each in found if not each.errors}  # errors that were made elsewhere
    for entry in catalogue().values():
        for prefix in entry.modules:
            known = {module for code, module in raised if code == entry.code} | passed_on
            assert any(is_part(module, prefix) for module in known), (entry.code, prefix)


@pytest.mark.parametrize("entry", catalogue().values(), ids=catalogue())
def test_an_entry_is_whole(entry: Any) -> None:
    assert re.fullmatch(r"SC\d{3}", entry.code)
    assert not entry.title.endswith(".")
    assert all(text.endswith(".") for text in (entry.meaning, entry.cure))
    for name in entry.errors:
        known = RequestError if name == "RequestError" else getattr(errors, name, None)
        assert entry.exit_code == (known.exit_code if known else EXIT_CODES[name])
    assert entry.exit_code in EXPLAINED


def test_every_class_of_errors_has_a_code() -> None:
    classes = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)}
    assert classes <= {name for entry in catalogue().values() for name in entry.errors}


def test_commands_and_options_in_cures_are_there() -> None:
    found = [match for entry in catalogue().values() for match in COMMAND.findall(f"{entry.meaning} {entry.cure}")]
    assert len(found) > 10
    for name, words in found:
        assert name in COMMANDS, name
        command = group.get_command(click.Context(group), name)
        options = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"--[\w-]+", words)) <= options, (name, words)


def test_the_module_that_raised_decides_the_code() -> None:
    with pytest.raises(errors.UsageError) as caught:
        check_threads(0)
    module = "speccompile.runtime.options"
    assert code_of(caught.value) == find("UsageError", module) != find("UsageError", "speccompile.cli.chat")


def test_an_error_of_a_module_that_is_not_listed_has_the_first_code_of_its_class() -> None:
    assert code_of(BundleError("raised by nobody")) == find("BundleError") == "SC300"
    assert code_of(type("Own", (BundleError,), {})("of another package")) == "SC300"


@pytest.fixture
def explain(command_line: CommandLine) -> CommandLine:
    return partial(command_line, "explain")


@pytest.mark.parametrize("code", catalogue())
def test_explain_prints_meaning_and_cure(code: str, explain: CommandLine) -> None:
    entry = catalogue()[code]
    exit_code, out, err = explain(code.lower())
    assert (exit_code, err) == (0, "")
    assert out.startswith(f"{code}: {entry.title}\n")
    assert entry.meaning in out
    assert entry.cure in out
    assert out.endswith(f"Exit code: {entry.exit_code}\n")
    assert json.loads(explain(code, "--json")[1])["cure"] == entry.cure


def test_explain_lists_all_codes(explain: CommandLine) -> None:
    lines = explain()[1].splitlines()
    assert [line.split()[0] for line in lines] == list(catalogue())
    assert [entry["code"] for entry in json.loads(explain("--json")[1])] == list(catalogue())


@pytest.mark.parametrize(
    ("word", "hint"),
    [("SC3011", "did you mean SC301? `speccompile explain` lists all"), ("?", "`speccompile explain`")],
)
def test_an_unknown_code_is_refused(word: str, hint: str, explain: CommandLine) -> None:
    code, out, err = explain(word)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: received the code '{word}', expected one such as SC001\nhint: {hint}")


def test_errors_as_json_have_their_code(tmp_path: Path, command_line: CommandLine) -> None:
    code, _, err = command_line("--progress", "json", "inspect", tmp_path)
    assert code == 1
    failure = json.loads(err.splitlines()[-1])
    assert list(failure) == ["event", "code", "message", "hint", "exit_code"]
    assert (failure["event"], failure["code"], failure["exit_code"]) == ("error", "SC300", 1)
    assert "help:" not in failure["message"]
