"""Record a command in a terminal, and write the recording as an SVG that plays in a browser.

    python scripts/recording.py docs/assets/demo.svg -- speccompile generate build/demo --prompt 'def main('

The command runs once, in a pseudo-terminal. Text appears in the picture when it appeared in the terminal, `--slower`
times as slowly; a reader without animations sees the last state. Colors, carriage returns and newlines are drawn, any
other control sequence is an error. The exit status is that of the command, and nothing is written unless that is 0.
"""

import argparse
import codecs
import os
import pty
import re
import shlex
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from pathlib import Path

CELL, LINE, MARGIN, FONT_SIZE = 8.4, 19, 16, 14
"""Size of the picture's parts, in its units."""
TYPING_SECONDS = 1.2
"""Time in which the command line appears, before the recording begins."""
CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
CLASSES = {"1": "bold", "2": "dim", "31": "red", "32": "green", "33": "yellow", "34": "blue", "36": "blue"}
"""Parameter of a color sequence -> class of the text behind it."""
STYLE = """
  svg { --paper: #f6f8fa; --ink: #1f2328; --dim: #59636e; --edge: #d1d9e0; --green: #116329; --red: #a40e26;
        --yellow: #7a4d00; --blue: #0a53be; }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #161b22; --ink: #e6edf3; --dim: #9198a1; --edge: #3d444d; --green: #5bd071; --red: #ff8d85;
          --yellow: #e3b341; --blue: #79b8ff; } }
  rect { fill: var(--paper); stroke: var(--edge); }
  text { font-family: ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; white-space: pre; fill: var(--ink);
         animation: hide linear; }
  .bold { font-weight: bold; } .dim { fill: var(--dim); } .green { fill: var(--green); } .red { fill: var(--red); }
  .yellow { fill: var(--yellow); } .blue { fill: var(--blue); }
  @keyframes hide { from { opacity: 0; } to { opacity: 0; } }
  @media (prefers-reduced-motion: reduce) { text { animation: none; } }
"""
"""Every text is hidden until the end of its animation, so that a reader without animations sees all of it."""


@dataclass(frozen=True)
class Cell:
    letter: str
    seconds: float
    """Time at which it appears."""
    style: str


@dataclass
class Screen:
    """A terminal's lines. Text that is wider than the screen goes on in the next line."""

    columns: int
    lines: list[list[Cell]] = field(default_factory=lambda: [[]])
    column: int = 0
    style: str = ""

    def write(self, text: str, seconds: float) -> None:
        """Write text as a terminal does. Raise ValueError for a control sequence that moves the cursor."""
        place = 0
        while place < len(text):
            if control := CONTROL.match(text, place):
                self._control(control)
                place = control.end()
                continue
            self._put(text[place], seconds)
            place += 1

    def _put(self, letter: str, seconds: float) -> None:
        if letter == "\r":
            self.column = 0
        elif letter == "\n":
            self.lines.append([])
        elif not letter.isprintable():
            raise ValueError(f"received the control character {letter!r}, expected text, colors and newlines")
        else:
            if self.column == self.columns:
                self.lines.append([])
                self.column = 0
            line = self.lines[-1]
            line.extend(Cell(" ", seconds, "") for _ in range(self.column - len(line)))
            line[self.column : self.column + 1] = [Cell(letter, seconds, self.style)]
            self.column += 1

    def _control(self, control: re.Match[str]) -> None:
        match control.groups():
            case parameters, "m":
                known = [CLASSES[one] for one in parameters.split(";") if one in CLASSES]
                self.style = " ".join(known)
            case _, "K":
                del self.lines[-1][self.column :]
            case _:
                raise ValueError(f"received the control sequence {control[0]!r}, expected colors and newlines")


def record(command: list[str], columns: int) -> Iterator[tuple[float, str]]:
    """Yield (seconds since the start, text) as a command writes it to a terminal. Raise CalledProcessError."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, columns))
    start = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    decoder = codecs.getincrementaldecoder("utf-8")()
    while data := _read(ours):
        yield time.monotonic() - start, decoder.decode(data)
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command)


def _read(terminal: int) -> bytes:
    """Return what came, b"" at the end, which Linux tells by an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def play(shown: str, chunks: list[tuple[float, str]], columns: int, slower: float) -> Screen:
    """Return the screen after a command line and its output. The wait for the first output is not played."""
    screen = Screen(columns)
    screen.style = "dim"
    screen.write("$ ", 0)
    screen.style = "bold"
    for place, letter in enumerate(shown):
        screen.write(letter, TYPING_SECONDS * place / len(shown))
    screen.style = ""
    screen.write("\r\n", TYPING_SECONDS)
    begin = chunks[0][0] if chunks else 0.0
    for seconds, text in chunks:
        screen.write(text, TYPING_SECONDS + 0.4 + slower * (seconds - begin))
    while len(screen.lines) > 1 and not screen.lines[-1]:
        del screen.lines[-1]
    return screen


def draw(screen: Screen, title: str, note: str) -> str:
    """Return the SVG. title: text for readers who do not see it. note: a line below the terminal."""
    width = round(screen.columns * CELL + 2 * MARGIN)
    height = (len(screen.lines) + 1) * LINE + 2 * MARGIN
    parts = []
    for row, line in enumerate(screen.lines):
        y, place = MARGIN + (row + 0.8) * LINE, 0
        for (seconds, style), run in groupby(line, key=lambda cell: (round(cell.seconds, 2), cell.style)):
            text = "".join(cell.letter for cell in run)
            parts.append(_text(text, MARGIN + place * CELL, y, seconds, style))
            place += len(text)
    last = max((cell.seconds for line in screen.lines for cell in line), default=0.0)
    parts.append(_text(note, MARGIN, height - MARGIN, last, "dim"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-size="{FONT_SIZE}">\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n'
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _text(text: str, x: float, y: float, seconds: float, style: str) -> str:
    if not text.strip():
        return ""
    # Fonts differ in width: the length is said, so that columns stay where they are.
    length = f'textLength="{len(text) * CELL:.1f}" lengthAdjust="spacingAndGlyphs"'
    named = f' class="{style}"' if style else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" {length}{named} style="animation-duration:{seconds:.2f}s" '
        f'xml:space="preserve">{escape(text)}</text>'
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="the SVG file")
    parser.add_argument("--columns", type=int, default=80, help="width of the terminal")
    parser.add_argument("--slower", type=float, default=1.0, help="how many times as slowly it is played")
    parser.add_argument("--note", default="", help="a line below the terminal, as on the machine")
    parser.add_argument("command", nargs="+", help="the command and its arguments, behind --")
    args = parser.parse_args()
    shown = shlex.join(args.command)
    try:
        chunks = list(record(args.command, args.columns))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{shown}: {error}", file=sys.stderr)
        return getattr(error, "returncode", 1)
    speed = f"played at 1/{args.slower:g} of its speed" if args.slower != 1 else ""
    note = ", ".join(part for part in (args.note, speed) if part)
    args.output.write_text(draw(play(shown, chunks, args.columns, args.slower), shown, note), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
