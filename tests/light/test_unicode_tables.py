"""Tables of characters of the runtime in C++ are what their scripts write."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def check(script: str) -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / script, "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_names_of_html_are_those_of_python():
    check("html_names.py")


@pytest.mark.sweep("asks the package tokenizers about every character, for minutes")
def test_tables_of_unicode_are_those_of_tokenizers():
    check("unicode_tables.py")
