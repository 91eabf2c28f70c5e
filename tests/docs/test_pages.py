"""Every block of the README, the examples and docs/ does what its page says: `tests/docs/blocks.py` has the rules."""

import pytest

from tests.docs.blocks import Page, read_page
from tests.docs.running import ROOT, PageRun

OUTSIDE_DOCS = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "scripts/examples/README.md")
PAGES = [read_page(path) for path in (*OUTSIDE_DOCS, *sorted((ROOT / "docs").rglob("*.md")))]
FIRST = [page for page in PAGES if page.has_first_tier]
SWEEP = [page for page in PAGES if page.has_sweep]


def name(page: Page) -> str:
    return page.path.relative_to(ROOT).as_posix()


def run(page: Page, folder, request, *, sweep: bool) -> None:
    demo = request.getfixturevalue("built_demo") if page.needs_demo else None
    run = PageRun(page, folder, demo)
    try:
        for block in page.blocks:
            if not block.skip and (sweep or not block.sweep):
                run.run(block)
    finally:
        run.close()


@pytest.mark.parametrize("page", FIRST, ids=name)
def test_blocks_do_what_the_page_says(page, tmp_path, request):
    run(page, tmp_path, request, sweep=False)


@pytest.mark.sweep("builds, trains or serves for longer than a reader of a test's output waits")
@pytest.mark.parametrize("page", SWEEP, ids=name)
def test_long_blocks_do_what_the_page_says(page, tmp_path, request):
    run(page, tmp_path, request, sweep=True)
