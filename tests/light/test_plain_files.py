"""Only regular files are read: no links out of a bundle, pipes, devices or endless files, in both programs; recipes
within limits."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from speccompile.bundle.hashes import HASHES, read_hashes
from speccompile.bundle.prompts import read_prompts, read_questions
from speccompile.cli.prompt_input import read_text
from speccompile.cli.serve import api_keys
from speccompile.errors import BundleError, PromptError, RecipeError, UsageError
from speccompile.machine.plain_files import read_plain
from speccompile.recipe.load import load_recipe
from speccompile.serving.batch.requests import read_lines
from tests.light.bundle_example import write_bundle

NATIVE = Path(sys.executable).with_name("speccompile-native")
WRONG = "received a pipe, device or socket, expected a regular file"


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize("make", [pipe, device])
def test_what_is_no_regular_file_is_refused(tmp_path, make):
    make(tmp_path / "file")
    with pytest.raises(OSError, match=WRONG):
        read_plain(tmp_path / "file")
    with pytest.raises(PromptError, match=f"--prompt-file .*file: {WRONG}"):
        read_text("--prompt-file", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=f"--api-key-file .*file: {WRONG}"):
        api_keys((), tmp_path / "file")
    with pytest.raises(RecipeError, match=f"file: {WRONG}"):
        load_recipe(tmp_path / "file")


def test_a_socket_and_a_folder_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    listening(Path("socket"))
    for name in ("socket", "."):
        with pytest.raises(OSError, match=r"No such device|Is a directory"):
            read_plain(Path(name))


def test_a_file_beyond_the_limit_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_plain(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="received more than 4 bytes, which no such file has"):
        read_plain(tmp_path / "file", 4)


@pytest.mark.parametrize(("make", "message"), [(pipe, WRONG), (device, "leads out of the bundle, to /dev/zero")])
def test_hashes_that_are_no_file_of_the_bundle_are_refused_by_both_programs(tmp_path, make, message):
    folder = write_bundle(tmp_path / "bundle")
    (folder / HASHES).unlink()
    make(folder / HASHES)
    with pytest.raises(BundleError, match=message):
        read_hashes(folder)
    done = subprocess.run([NATIVE, "inspect", folder], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert message in done.stderr


def test_a_link_to_the_same_hashes_elsewhere_is_refused_by_both_programs(tmp_path):
    folder = write_bundle(tmp_path / "bundle")
    (folder / HASHES).rename(tmp_path / HASHES)
    (folder / HASHES).symlink_to(tmp_path / HASHES)
    with pytest.raises(BundleError, match=r"hashes.json: leads out of the bundle, to .*/hashes.json"):
        read_hashes(folder)
    done = subprocess.run([NATIVE, "inspect", folder], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, "hashes.json: leads out of the bundle" in done.stderr) == (1, True)


def test_keys_that_are_not_utf_8_are_refused_and_not_shown(tmp_path):
    (tmp_path / "keys").write_bytes(b"secret\n\xff\n")
    with pytest.raises(UsageError, match="keys: byte 7 is no UTF-8, expected text with one key a line") as caught:
        api_keys((), tmp_path / "keys")
    assert "secret" not in str(caught.value)


BOMB = "\n".join(
    ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    + [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    + ["name: *a11"]
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "it stands for more than 100000 values"),
        ("a: " + "[" * 65 + "]" * 65, "values are nested more than 64 deep"),
        ("a: " + "[" * 5000 + "]" * 5000, "received text that is not YAML"),
        ("a: &a [*a]", "an alias stands for itself"),
        ("a: " + "x" * (1 << 20), "received more than 1048576 bytes"),
    ],
)
def test_recipes_without_end_are_refused(tmp_path, text, message):
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(RecipeError, match=message):
        load_recipe(tmp_path)


@pytest.mark.parametrize("read", [read_prompts, read_questions, read_lines], ids=lambda each: each.__name__)
@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_files_of_prompts_and_requests_are_regular_ones(tmp_path, read, kind):
    """Refuse a pipe, which would never end, and /dev/zero, which would take all memory."""
    path = tmp_path / "prompts.jsonl"
    os.mkfifo(path) if kind == "a pipe" else path.symlink_to("/dev/zero")
    with pytest.raises((OSError, UsageError), match="received a pipe, device or socket, expected a regular file"):
        read(path)
