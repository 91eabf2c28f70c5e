#!/usr/bin/env python3
"""Write the characters that HTML has names for, as Python's html knows them, for the filter striptags in C++.

scripts/html_names.py            # write native/text/html_names.h
scripts/html_names.py --check    # exit code 1 when it is not what it would write
"""

import html
import sys
from html.entities import html5
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from scripts.unicode_tables import FOLDER, constant, number

PATH = FOLDER / "html_names.h"
HEADER = """\
// Made by scripts/html_names.py from what Python's html knows. Do not edit.
// Numbers are written with five bits a letter (Packed in unicode.h).
#pragma once

namespace spc::unicode {

"""
CONTROLS = (*range(32), *range(127, 160))
TAKEN = "\t\n\f"
"""Control characters that a document may have."""


def header() -> str:
    """Return the text of the header."""
    named = {name.removesuffix(";"): text for name, text in html5.items()}
    names = sorted(named)
    codes = "".join(number(len(named[name])) + "".join(number(ord(each)) for each in named[name]) for name in names)
    controls = {code: html.unescape(f"&#{code};") for code in CONTROLS}
    moved = {code: ord(text) for code, text in controls.items() if text and text not in TAKEN}
    return (
        HEADER
        + constant(
            "kHtmlNames", " ".join(name + "!" * (name in html5) for name in names), "Names; !: may lack its semicolon."
        )
        + constant("kHtmlCharacters", codes, "Characters of each name: how many, which.")
        + constant("kHtmlNumbers", "".join(map(number, sum(moved.items(), ()))), "Numbers, and those that they mean.")
        + "\n}  // namespace spc::unicode\n"
    )


def main() -> int:
    text = header()
    if "--check" not in sys.argv:
        PATH.write_text(text)
        return 0
    if PATH.read_text() == text:
        return 0
    print(f"{PATH} is not what scripts/html_names.py writes")
    return 1


if __name__ == "__main__":
    sys.exit(main())
