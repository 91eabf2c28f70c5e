"""The site is built without a warning, and a browser that shows it asks no other host."""

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.running import ROOT

pytest.importorskip("material")
pytest.importorskip("mkdocstrings")

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}
"""Tag -> the attribute by which a browser loads something."""


class Loaded(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "link" and given.get("rel") in {"canonical", "prev", "next"}:
            return
        self.found.append(given.get(LOADED.get(tag, "")) or "")


LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]+)(?:#[^)]*)?\)")
"""A link of Markdown to a file: what stands before its mark."""
SITE = pytest.mark.sweep("the whole site takes half a minute to build; what goes wrong most, a link, is found below")


def test_every_link_leads_to_a_file():
    pages = sorted((ROOT / "docs").rglob("*.md"))
    assert len(pages) > 30
    for page in pages:
        text = re.sub(r"(?s)^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert [link for link in LINK.findall(text) if not (page.parent / link).exists()] == [], page


@pytest.fixture(scope="module")
def site() -> Path:
    built = subprocess.run([ROOT / "scripts/docs"], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return ROOT / "build/site"


@SITE
def test_no_page_loads_anything_from_another_host(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loaded = Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert [url for url in loaded.found if url.startswith(("http:", "https:", "//"))] == [], page
        here = [url.partition("#")[0].partition("?")[0] for url in loaded.found if not url.startswith("data:")]
        assert [url for url in here if url and not (page.parent / url).exists() and page.name != "404.html"] == [], page


@SITE
def test_questions_find_their_page(site):
    """Find the words of questions in the index that the site's search reads."""
    text = (site / "search/search_index.json").read_text(encoding="utf-8").lower()
    for words in ("eagle-25", "exit code", "sc301", "cache.max_length", "spc_session_step", "top_p", "prompt_lookup"):
        assert words in text, words


def test_a_wrong_argument_is_named():
    built = subprocess.run([ROOT / "scripts/docs", "--publish"], capture_output=True, text=True)
    assert built.returncode == 2
    assert "received --publish, expected --serve, --write, --check" in built.stderr
