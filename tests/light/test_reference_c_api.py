"""docs/reference/c-api.md is complete: every function, constant, type and option of the C ABI, as the header has it."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from speccompile.bundle.sampling import SAMPLING_OPTIONS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "c-api.md").read_text(encoding="utf-8")
HEADER = (ROOT / "speccompile" / "native" / "include" / "speccompile.h").read_text(encoding="utf-8")
ABI: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "abi.py"))
SCHEDULER = (ROOT / "speccompile" / "native" / "abi" / "scheduler.cpp").read_text(encoding="utf-8")
DECLARED = ABI["read_header"]()
SECTIONS = {found[1]: found[2] for found in re.finditer(r"^### (spc_\w+)\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S)}
HANDLES = {"request", "session", "bundle", "result", "scheduler", "submission", "delta", "void"}
"""Parameters that need no words: the object that a function is about."""
ASPECTS = ["Parameters", "Ownership", "Errors", "Threads"]


def plain(text: str) -> str:
    """Return a declaration without what a reader does not see: line breaks and spaces within brackets."""
    return re.sub(r"\s+", " ", text).replace("( ", "(").strip()


def declarations() -> dict[str, str]:
    found = [plain(each) for each in re.findall(r"^SPC_API ([^;]+;)", HEADER, re.M)]
    return {re.search(r"(\w+)\(", each)[1]: each for each in found}  # type: ignore[index]


def test_every_function_has_a_section_with_its_declaration() -> None:
    assert set(SECTIONS) == {function.name for function in DECLARED.functions} == set(declarations())
    for name, text in SECTIONS.items():
        code = re.search(r"```c\n(.*?)\n```", text, re.S)
        assert code is not None, name
        assert plain(code[1]) == declarations()[name]


def test_every_section_says_what_a_caller_must_know() -> None:
    for name, text in SECTIONS.items():
        assert re.findall(r"^- \*\*(\w+)\*\*: \S", text, re.M) == ASPECTS, name
    for name, declaration in declarations().items():
        flat = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", declaration)  # of a function pointer its own name
        named = set(re.findall(r"(\w+)(?=[,)])", flat.partition("(")[2])) - HANDLES
        assert {each for each in named if f"`{each}`" not in SECTIONS[name]} == set(), name


def test_functions_that_return_no_error_say_that_they_cannot_fail() -> None:
    for function in DECLARED.functions:
        can_fail = "spc_error *" in function.result.replace(" *", " *")
        assert can_fail != ("cannot fail" in SECTIONS[function.name]), function.name


def test_constants_and_types_are_those_of_the_header() -> None:
    rows = dict(re.findall(r"^\| `(SPC_\w+)` \| (.*?) \|", PAGE, re.M))
    shown = {name: re.sub(r"\s", "", value.strip("`")) for name, value in rows.items()}
    assert shown == {name: re.sub(r"\s", "", value) for name, value in DECLARED.constants.items()}
    assert set(re.findall(r"^\| `(spc_\w+)` \|", PAGE, re.M)) == set(DECLARED.structs)


def test_options_and_their_defaults_are_those_of_the_header() -> None:
    comment = re.search(r"Options by the names.*?\*/", HEADER, re.S)
    assert comment is not None
    table = re.search(r"\| option \| function .*?\n\n", PAGE, re.S)
    assert table is not None
    defaults = dict(re.findall(r"^\| `(\w+)` \| \w+ \| .* \| (\S+) \| \w+ \|$", table[0], re.M))
    known = re.findall(r"(\w+) (\d+)(?=[,;\s])", re.sub(r"0 or 1:|\(0 is.*", "", comment[0]))
    drawn = {name: f"{option.neutral:g}" for name, option in SAMPLING_OPTIONS.items() if option.neutral is not None}
    assert {name: value for name, value in defaults.items() if name != "seed"} == dict(known) | drawn
    opened = re.search(r"\| option \| value \| default.*?\n\n", PAGE, re.S)
    assert opened is not None
    assert set(re.findall(r"^\| `(\w+)` \|", opened[0], re.M)) == set(
        re.findall(r'"(\w+)":', before("spc_bundle_open"))
    )


@pytest.mark.parametrize(
    ("function", "head"), [("spc_scheduler_create", "scheduler option"), ("spc_scheduler_submit", "term")]
)
def test_options_of_schedulers_are_those_of_the_header(function: str, head: str) -> None:
    table = re.search(rf"\| {head} \| value \| default.*?(\n\n|\Z)", SECTIONS[function], re.S)
    assert table is not None
    known = re.findall(r'"(\w+)"(?= \(|:| and)', before(function))
    assert set(re.findall(r"^\| `(\w+)` \|", table[0], re.M)) == set(known)
    assert f'"{", ".join(known)}"' in SCHEDULER, "the message that refuses another one lists them"
    defaults = dict(re.findall(r"^\| `(\w+)` \| .* \| (\d+) \|$", table[0], re.M))
    assert defaults == dict(re.findall(r'"(\w+)" \((\d+)\)', before(function)))


def before(function: str) -> str:
    """Return the comment before a declaration."""
    text = HEADER.partition(f"SPC_API spc_error *{function}(")[0]
    return text[text.rindex("/*") :]
