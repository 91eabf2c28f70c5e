"""Reads the blocks of a page, and the marks that say how a test runs them.

A mark is an HTML comment on a line of its own, before the fence that it is for:

    <!-- test: exit 2 -->          the commands of the block end with this exit code, else with 0
    <!-- test: background -->      the block's one command keeps running until the page ends
    <!-- test: sweep REASON -->    this block and all later ones run in the second tier; before the heading: the page
    <!-- test: long REASON -->     this block alone runs in the second tier
    <!-- test: skip REASON -->     the block is not run, because no machine of CI can run it
    <!-- test: demo -->            before the heading: the page begins with `build/demo`, the built demo
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w+-]*)(?P<rest>.*)$")
TITLE = re.compile(r'\btitle="([^"]+)"')
MARK = re.compile(r"^ *<!-- test: (?P<word>\w+) ?(?P<rest>.*?) *-->$")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
SETTINGS = {"exit", "background", "sweep", "long", "skip", "demo"}
NEED_A_REASON = {"sweep", "long", "skip"}
FOR_A_FENCE = {"exit", "background", "long", "skip"}


@dataclass(frozen=True)
class Block:
    """A fence. line: of its first line, from 1. title: the file that it stands for. exit_code: of its commands."""

    line: int
    language: str
    text: str
    title: str | None = None
    exit_code: int = 0
    background: bool = False
    sweep: bool = False
    skip: bool = False


@dataclass(frozen=True)
class Page:
    """needs_demo: `build/demo` is there before the first block."""

    path: Path
    blocks: tuple[Block, ...]
    needs_demo: bool

    @property
    def has_sweep(self) -> bool:
        return any(block.sweep and not block.skip for block in self.blocks)

    @property
    def has_first_tier(self) -> bool:
        return any(not block.sweep and not block.skip for block in self.blocks)


@dataclass(frozen=True)
class Command:
    """A command line, and the lines that it prints according to the page; none if the page shows no output."""

    line: int
    text: str
    output: list[str] = field(default_factory=list)


def read_page(path: Path) -> Page:
    """Read the blocks of a page of Markdown. Raise ValueError for a mark that says nothing."""
    blocks: list[Block] = []
    marks: dict[str, str] = {}
    needs_demo = swept = False
    lines = iter(enumerate(path.read_text(encoding="utf-8").splitlines(), 1))
    for number, line in lines:
        if mark := MARK.match(line):
            word, rest = mark["word"], mark["rest"]
            if word not in SETTINGS or (word in NEED_A_REASON and not rest):
                raise ValueError(
                    f"{path}:{number}: received {line.strip()}, expected one of {sorted(SETTINGS)}; a reason"
                )
            needs_demo, swept = needs_demo or word == "demo", swept or word == "sweep"
            marks[word] = rest
        elif fence := FENCE.match(line):
            text = "\n".join(_body(lines, len(fence["indent"])))
            title = TITLE.search(fence["rest"])
            blocks.append(
                Block(
                    number,
                    fence["language"],
                    text,
                    title and title[1],
                    int(marks.get("exit", 0)),
                    "background" in marks,
                    swept or "long" in marks,
                    "skip" in marks,
                )
            )
            marks = {}
        elif line.strip() and (loose := marks.keys() & FOR_A_FENCE):
            raise ValueError(
                f"{path}:{number}: received text behind the mark {', '.join(sorted(loose))}, expected its fence"
            )
    return Page(path, tuple(blocks), needs_demo)


def _body(lines: Iterator[tuple[int, str]], indent: int) -> Iterator[str]:
    for _, line in lines:
        if line.strip() == "```":
            return
        yield line[indent:] if not line[:indent].strip() else line


def commands(block: Block) -> list[Command]:
    """Return the commands of a `console` block: lines after `$`, with what continues them, and what they print."""
    found: list[Command] = []
    is_open = False
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if is_open:
            last = found[-1]
            found[-1] = Command(last.line, f"{last.text}\n{line.removeprefix('> ')}")
            is_open = line.endswith("\\")
        elif line.startswith("$ "):
            found.append(Command(number, line.removeprefix("$ ")))
            is_open = line.endswith("\\")
        elif line.startswith("> ") and found and not found[-1].output:
            found[-1] = Command(found[-1].line, f"{found[-1].text}\n{line.removeprefix('> ')}")
        elif found:
            found[-1].output.append(line)
        elif line.strip():
            raise ValueError(f"line {number}: output before a command: {line}")
    return found


def matches(expected: list[str], printed: str) -> bool:
    """Return whether what was printed is what a page shows: `...` stands for any characters, alone for any lines.

    Space at the end of lines, and empty lines at both ends, do not count."""
    lines = [line.rstrip() for line in "\n".join(expected).strip("\n").splitlines()]
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else ".*".join(map(re.escape, line.split("..."))) + "\n"
        for line in lines
    )
    text = "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())
    return re.fullmatch(pattern, text) is not None
