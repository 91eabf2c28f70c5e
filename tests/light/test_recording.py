"""The recorder of terminals: what a command writes is what the picture shows."""

import runpy
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "recording.py"
Screen = runpy.run_path(str(SCRIPT))["Screen"]


def lines(screen: Screen) -> list[str]:
    return ["".join(cell.letter for cell in line) for line in screen.lines]


def texts(picture: Path) -> list[str]:
    return ["".join(text.itertext()) for text in ElementTree.parse(picture).getroot().iter() if "}text" in text.tag]


def test_a_recording_shows_command_output_and_note(tmp_path: Path) -> None:
    picture = tmp_path / "a.svg"
    command = [sys.executable, SCRIPT, picture, "--note", "a machine", "--slower", "2", "--"]
    run = subprocess.run([*command, "printf", "one <two>\\nthree\\n"], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    found = texts(picture)
    typed = "".join(found[:-3]).replace(" ", "")  # letters appear one by one, and spaces are not drawn
    assert typed == "$printf'one<two>\\nthree\\n'"
    assert found[-3:] == ["one <two>", "three", "a machine, played at 1/2 of its speed"]


def test_a_command_that_fails_leaves_no_picture(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, SCRIPT, tmp_path / "a.svg", "--", "false"], capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.startswith("false: ")
    assert not (tmp_path / "a.svg").exists()


def test_a_screen_wraps_overwrites_and_colors() -> None:
    screen = Screen(8)
    screen.write("0123456789\r\nold", 1.0)
    screen.write("\r\x1b[Knew \x1b[32mok\x1b[0m", 2.0)
    assert lines(screen) == ["01234567", "89", "new ok"]
    assert [cell.style for cell in screen.lines[2]] == ["", "", "", "", "green", "green"]
    assert {cell.seconds for cell in screen.lines[2]} == {2.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\x1b[2A", "received the control sequence '\\\\x1b\\[2A', expected colors and newlines"),
        ("\x07", "received the control character '\\\\x07', expected text, colors and newlines"),
    ],
)
def test_a_screen_refuses_other_control_sequences(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Screen(8).write(text, 0.0)


def test_the_recording_of_the_demo_is_for_light_and_dark_pages() -> None:
    picture = ROOT / "docs" / "assets" / "demo.svg"
    assert "prefers-color-scheme: dark" in picture.read_text()
    assert any("new tokens in" in text for text in texts(picture))
