"""Figures of README and pages: as they were measured, of the commands and files that there are now."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.figures.measure import FOLDER, MEASUREMENTS, ROOT
from scripts.figures.pages import filled, read_measurements, stale, write
from scripts.figures.plots import PLOTS
from scripts.figures.tables import TABLES, render
from tests.json_files import edited_json

MARKED = "# A page\n\n<!-- figure: speedup -->\n<!-- /figure -->\n"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a checkout's README and figures, with one page."""
    shutil.copytree(FOLDER, tmp_path / "docs" / "figures")
    shutil.copy(ROOT / "README.md", tmp_path)
    (tmp_path / "docs" / "page.md").write_text(MARKED)
    return tmp_path


def test_no_figure_is_stale() -> None:
    run = subprocess.run([sys.executable, "-m", "scripts.figures", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


def test_figures_are_written_where_they_are_shown(copy: Path) -> None:
    assert list(stale(copy)) == ["docs/page.md: its figures differ from docs/figures (hint: python -m scripts.figures)"]
    write(copy)
    text = (copy / "docs" / "page.md").read_text()
    assert list(stale(copy)) == []
    assert text.startswith("# A page\n\n<!-- figure: speedup -->\n| drafter |")
    assert text.endswith("`python -m scripts.figures methods`.\n<!-- /figure -->\n")
    (copy / "docs" / "page.md").write_text(re.sub(r"\d\.\d\dx", "9.99x", text, count=1))
    assert len(list(stale(copy))) == 1


def test_a_changed_command_or_file_makes_a_measurement_stale(copy: Path) -> None:
    write(copy)
    with edited_json(copy / "docs" / "figures" / "methods.json") as data:
        data["commands"][0] += " --set drafter.tokens=2"
        data["inputs"]["recipes/demo/prompts.jsonl"] = "0" * 64
    found = list(stale(copy))
    assert len(found) == 2
    assert "measured by other commands" in found[0]
    assert "recipes/demo/prompts.jsonl changed since it was measured" in found[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- figure: speed -->\n<!-- /figure -->\n", "received the figure speed, expected one of speedup, "),
        ("<!-- figure: speedup -->\n", r"received the figures \['speedup'\], of which only \[\] end"),
    ],
)
def test_wrong_marks_are_told(copy: Path, text: str, message: str) -> None:
    (copy / "docs" / "page.md").write_text(text)
    assert re.search(message, "\n".join(stale(copy)))


def test_a_changed_plot_is_stale(copy: Path) -> None:
    write(copy)
    (copy / "docs" / "figures" / "speedup.svg").write_text("<svg/>")
    assert list(stale(copy)) == [
        "docs/figures/speedup.svg: differs from methods.json (hint: python -m scripts.figures)"
    ]


def test_tables_have_a_row_for_each_bundle() -> None:
    measurements = read_measurements()
    for name in TABLES.keys() - {"peers", "long"}:  # whose rows are others: tests/light/test_peers.py
        source = TABLES[name][0]
        lines = [line for line in render(name, measurements).splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) == 1
        assert sorted(line.split("|")[1].strip() for line in lines[2:]) == sorted(
            case.label for case in MEASUREMENTS[source].values()
        )
    assert filled("no figure", measurements) == "no figure"


@pytest.mark.parametrize("name", PLOTS)
def test_plots_are_for_light_and_dark_pages(name: str) -> None:
    root = ElementTree.parse(FOLDER / name).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in (root[0].text or "")


def test_measured_output_is_that_of_the_target() -> None:
    for name in MEASUREMENTS:
        for row in read_measurements()[name]["rows"].values():
            assert {row[way]["equal_prompts"] for way in ("fixed", "adaptive")} == {row["fixed"]["prompts"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speed"], "received speed, expected methods or precisions"),
        (["methods", "--check"], "received --check and measurements, expected one of them"),
    ],
)
def test_wrong_arguments_are_told(arguments: list[str], message: str) -> None:
    command = [sys.executable, "-m", "scripts.figures", *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 2
    assert message in run.stderr
