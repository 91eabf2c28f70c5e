"""The runner of blocks notices what a reader would: each test gives it a page that is wrong in one way, or right."""

import subprocess

import pytest

from tests.docs.blocks import commands, matches, read_page
from tests.docs.running import PageFailure, PageRun


@pytest.fixture
def run(tmp_path):
    """Run the blocks of a page that is given as text."""

    def run(text: str):
        path, folder = tmp_path / "page.md", tmp_path / "folder"
        path.write_text(text)
        folder.mkdir()
        page = read_page(path)
        running = PageRun(page, folder, None)
        try:
            for block in page.blocks:
                running.run(block)
        finally:
            running.close()
        return folder

    return run


RIGHT = [
    "```console\n$ echo one; echo two\none\ntwo\n```\n",
    "```console\n$ printf 'a\\nb\\nc\\n'\na\n...\n```\n",
    "```console\n$ echo 'speed 12.5 tokens/s'\nspeed ... tokens/s\n```\n",
    "<!-- test: exit 3 -->\n```console\n$ exit 3\n```\n",
    "```console\n$ echo one \\\n  two\none two\n```\n",
    "```console\n$ cat <<END\n> text\n> END\ntext\n```\n",
    '```json title="a/b.json"\n{}\n```\n```console\n$ cat a/b.json\n{}\n```\n',
    "```python\nx = 1\n```\n```python\nassert x == 1\n```\n",
    "```yaml\na: 1\n```\n",
    "```text\n$ exit 1\n```\n",
    '```cpp\n#include <speccompile.hpp>\nint main() { speccompile::Request().prompt("a"); }\n```\n',
    "1. A list:\n\n    ```console\n    $ echo one\n    one\n    ```\n",
]
WRONG = [
    "```console\n$ echo one\ntwo\n```\n",
    "```console\n$ echo one; echo two\none\n```\n",
    "```console\n$ exit 3\n```\n",
    "<!-- test: exit 3 -->\n```console\n$ exit 0\n```\n",
    "```console\n$ exit 3\n$ exit 0\n```\n",
    "```python\nassert 1 == 2\n```\n",
    "```python\nx = (\n```\n",
    "```yaml\na: [\n```\n",
    "```json\n{a}\n```\n",
    "```toml\na\n```\n",
    "```cpp\n#include <speccompile.hpp>\nint main() { speccompile::Requests(); }\n```\n",
]


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_right_passes(run, text):
    run(text)


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_fails_with_its_line(run, text):
    with pytest.raises(PageFailure, match=r"page\.md:\d+: "):
        run(text)


def test_a_server_ends_with_its_page(run):
    folder = run(
        "<!-- test: background -->\n```console\n$ echo $$ > pid; exec sleep 100\n```\n"
        "```console\n$ until [ -s pid ]; do sleep 0.01; done; kill -0 $(cat pid)\n```\n"
    )
    pid = (folder / "pid").read_text().strip()
    assert subprocess.run(["ps", "-p", pid], capture_output=True).returncode == 1


def test_marks_are_for_the_next_block_and_a_sweep_for_all_that_follow(tmp_path):
    path = tmp_path / "page.md"
    fence = "```console\n$ true\n```\n"
    path.write_text(
        f"<!-- test: demo -->\n# Title\n{fence}<!-- test: skip needs a GPU -->\n{fence}"
        f"<!-- test: long builds -->\n{fence}{fence}<!-- test: sweep trains -->\n{fence}{fence}"
    )
    page = read_page(path)
    assert page.needs_demo
    assert [block.skip for block in page.blocks] == [False, True, False, False, False, False]
    assert [block.sweep for block in page.blocks] == [False, False, True, False, True, True]


@pytest.mark.parametrize("mark", ["<!-- test: sweep -->", "<!-- test: skip -->", "<!-- test: often -->"])
def test_a_mark_without_a_reason_or_meaning_is_refused(tmp_path, mark):
    path = tmp_path / "page.md"
    path.write_text(f"{mark}\n```console\n$ true\n```\n")
    with pytest.raises(ValueError, match=r"page\.md:1: received"):
        read_page(path)


def test_a_mark_is_for_the_fence_behind_it(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("<!-- test: exit 2 -->\n\nText.\n\n```console\n$ true\n```\n")
    with pytest.raises(ValueError, match=r"page\.md:3: received text behind the mark exit"):
        read_page(path)


def test_what_a_server_says_is_shown_when_a_later_block_fails(run):
    with pytest.raises(PageFailure, match="the page's servers\nno such port"):
        run(
            "<!-- test: background -->\n```console\n$ echo no such port; touch said\n```\n"
            "```console\n$ until [ -e said ]; do sleep 0.01; done; exit 7\n```\n"
        )


def test_output_belongs_to_the_command_above_it(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("```console\n$ one\n1\n\n$ two\n2\n```\n")
    (block,) = read_page(path).blocks
    assert [(command.line, command.text, command.output) for command in commands(block)] == [
        (2, "one", ["1", ""]),
        (5, "two", ["2"]),
    ]


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        (["a"], "a\n", True),
        (["a ", ""], "a", True),
        (["a...c"], "abc", True),
        (["a...c"], "ab\nc", False),
        (["a", "...", "c"], "a\nc", True),
        (["a", "...", "c"], "a\nb\nb\nc", True),
        (["...", "c"], "c", True),
        (["a.c"], "abc", False),
        (["a"], "a\nb", False),
    ],
)
def test_dots_stand_for_anything(expected, printed, same):
    assert matches(expected, printed) == same
