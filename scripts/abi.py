"""The C ABI as text: what include/speccompile.h declares, a line each, in the order of the header.

    scripts/abi.py            compare speccompile/native/abi/speccompile.abi with the header
    scripts/abi.py --write    write it, where nothing of it was removed or changed

Programs that were linked yesterday must run tomorrow: with one SPC_ABI lines are only ever added. The tests compare the
lines with the symbols of the compiled library as well (tests/native/test_native_abi.py).
Exits 1 where anything differs.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[1] / "speccompile" / "native"
HEADER = NATIVE / "include" / "speccompile.h"
DESCRIPTION = NATIVE / "abi" / "speccompile.abi"


@dataclass(frozen=True)
class Function:
    """A declaration: types are words and stars, each after one space, without the names of parameters."""

    name: str
    result: str
    parameters: tuple[str, ...]

    def __str__(self) -> str:
        return f"function {self.name}({', '.join(self.parameters)}) -> {self.result}"


@dataclass(frozen=True)
class Header:
    """What a program can depend on. `structs` are opaque; `constants` are macros and members of enums."""

    constants: dict[str, str]
    structs: tuple[str, ...]
    functions: tuple[Function, ...]

    def lines(self) -> list[str]:
        return [
            *(f"constant {name} = {value}" for name, value in self.constants.items()),
            *(f"struct {name}" for name in self.structs),
            *map(str, self.functions),
        ]


def read_header(path: Path = HEADER) -> Header:
    """Read the declarations of the header. Raise ValueError for one that the ABI is not made of."""
    text = re.sub(r"/\*.*?\*/", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    constants = {}
    for name, value in re.findall(r"^#define (SPC_\w+) (.+)$", text, re.MULTILINE):
        if name != "SPC_API":
            constants[name] = value.strip()
    code = re.sub(r"^#.*$|SPC_API", "", text, flags=re.MULTILINE)
    code = code.partition('extern "C" {')[2].rpartition("}")[0]
    structs, functions = [], []
    for statement in re.split(r";(?![^{]*\})", code):
        words = _spaced(statement)
        if found := re.fullmatch(r"enum \{ (.*) \}", words):
            constants |= (pair.split(" = ") for pair in found[1].strip(" ,").split(" , "))
        elif found := re.fullmatch(r"typedef struct (\w+) \1", words):
            structs.append(found[1])
        elif found := re.fullmatch(r"(.+?) (\w+) \( (.*) \)", words):
            functions.append(Function(found[2], found[1], tuple(map(_type, _parameters(found[3])))))
        elif words:
            raise ValueError(f"expected an enum, an opaque struct or a function, received: {words}")
    return Header(constants, tuple(structs), tuple(functions))


def _spaced(text: str) -> str:
    """Return every name and every sign apart."""
    return " ".join(re.findall(r"\w+|[^\w\s]", text))


def _parameters(text: str) -> list[str]:
    """Cut at the commas that are in no inner brackets."""
    if text == "void":
        return []
    found, depth = [""], 0
    for word in text.split():
        depth += (word == "(") - (word == ")")
        if word == "," and not depth:
            found.append("")
        else:
            found[-1] += f" {word}"
    return [each.strip() for each in found]


def _type(parameter: str) -> str:
    """Return a parameter's type, without its name: `const char *`."""
    if found := re.fullmatch(r"(.+) \( \* \w+ \) \( (.*) \)", parameter):
        return f"{found[1]} ( * ) ( {' , '.join(map(_type, _parameters(found[2])))} )"
    return parameter.rpartition(" ")[0] or parameter


def differences(committed: list[str], declared: list[str]) -> tuple[list[str], list[str]]:
    """Return lines that the header has lost, and those that it has gained."""
    return [line for line in committed if line not in declared], [line for line in declared if line not in committed]


def read_description(path: Path = DESCRIPTION) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


REMOVED = (
    "programs that were linked with this SPC_ABI need what is gone: keep it, and add a function of another name. "
    "A new ABI counts up SPC_ABI, the version in exports.map and ABI in locate.py, and starts speccompile.abi afresh"
)
ADDED = "additions are fine: scripts/abi.py --write, then commit abi/speccompile.abi"
TITLE = "# The C ABI, as scripts/abi.py writes it from include/speccompile.h. Lines are only ever added."


def explain(lost: list[str], gained: list[str]) -> str:
    """Return what differs, and how to proceed; "" where nothing does."""
    lines = [*(f"- {line}" for line in lost), *(f"+ {line}" for line in gained)]
    return "\n".join([*lines, f"hint: {REMOVED if lost else ADDED}"]) if lines else ""


def main(arguments: list[str], header: Path = HEADER, description: Path = DESCRIPTION) -> int:
    """Return 1 for a description that is not the header's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the description")
    write = parser.parse_args(arguments).write
    declared = read_header(header).lines()
    lost, gained = differences(read_description(description) if description.exists() else [], declared)
    if lost or (gained and not write):
        sys.stderr.write(f"abi: {header.name} is not what {description.name} says:\n{explain(lost, gained)}\n")
        return 1
    if write:
        description.write_text("\n".join([TITLE, *declared]) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
