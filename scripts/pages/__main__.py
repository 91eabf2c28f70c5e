"""Write the parts of docs/ that are made from the code, or say which are stale.

    python -m scripts.pages             write them
    python -m scripts.pages --check     exit 1 where a page is not what the code says

`scripts/docs --write` and `--check` call this.
"""

import argparse
import sys
from pathlib import Path

from scripts.pages import commands, environment, recipe, support
from scripts.pages.marks import with_section

REFERENCE = Path(__file__).resolve().parents[2] / "docs/reference"
PAGES = {
    "recipe.md": recipe.recipe_page,
    "training-recipe.md": recipe.training_page,
    "commands.md": commands.page,
    "environment.md": environment.page,
}
"""Pages that are made whole."""


def pages() -> dict[Path, str]:
    """Path -> its text, as the code says it."""
    found = {REFERENCE / name: make() for name, make in PAGES.items()}
    text = (REFERENCE / "support.md").read_text(encoding="utf-8")
    for name, make in support.SECTIONS.items():
        text = with_section(text, name, make())
    return found | {REFERENCE / "support.md": text}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if not check:
        for path in stale:
            path.write_text(pages()[path], encoding="utf-8")
    for path in stale:
        said = "is stale: run scripts/docs --write" if check else "written"
        print(f"{path.relative_to(REFERENCE.parents[1])}: {said}", file=sys.stderr)
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
