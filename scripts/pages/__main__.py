"""Write the parts of docs/ that are made from the code, or say which are stale.

    python -m scripts.pages             write them
    python -m scripts.pages --check     exit 1 where a page is not what the code says

`scripts/docs --write` and `--check` call this.
"""

import argparse
import sys
from pathlib import Path

from scripts.pages import commands, environment, error_catalogue, metrics, recipe, support
from scripts.pages.marks import with_section

REFERENCE = Path(__file__).resolve().parents[2] / "docs/reference"
PAGES = {
    "recipe.md": recipe.recipe_page,
    "training-recipe.md": recipe.training_page,
    "commands.md": commands.page,
    "environment.md": environment.page,
    "errors.md": error_catalogue.render,
}
"""Page -> function that makes all of it."""
BY_HAND = {"support.md": support.SECTIONS, "http.md": {"metrics": metrics.table}}
"""Page written by hand -> its generated tables."""


def pages(reference: Path = REFERENCE) -> dict[str, str]:
    """Return file name -> text of all pages. reference: folder of the pages that are written by hand."""
    found = {name: make() for name, make in PAGES.items()}
    for page, sections in BY_HAND.items():
        found[page] = (reference / page).read_text(encoding="utf-8")
        for name, make in sections.items():
            found[page] = with_section(found[page], name, make())
    return found


def main(arguments: list[str], reference: Path = REFERENCE) -> int:
    """Write stale pages and return 0; with --check, return 1 if one is stale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(arguments).check
    stale = {
        reference / name: text
        for name, text in pages(reference).items()
        if not (reference / name).exists() or (reference / name).read_text(encoding="utf-8") != text
    }
    for path, text in stale.items():
        if check:
            print(f"{path.name} is stale\nhint: run scripts/docs --write, and commit it", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
