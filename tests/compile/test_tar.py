"""The archive of scripts/tar runs bundles where no Python is: in a root that has glibc, libstdc++ and nothing else."""

import json
import os
import platform
import shutil
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from speccompile.runtime import Bundle
from tests.compile.test_wheels import ROOT, made
from tests.native.toy_onnx import write_arithmetic_bundle

__all__ = ["made"]  # a fixture

pytestmark = [
    pytest.mark.sweep("needs the wheel, for which all of the C++ is compiled by another compiler"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the archive that is tried out is for x86-64"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root folder"),
]
PROMPT = [3, 1, 4, 1, 5, 9]
LOADED = ("libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libgcc_s.so.1", "libstdc++.so.6")
LIBRARIES, LOADER = Path("/lib/x86_64-linux-gnu"), Path("/lib64/ld-linux-x86-64.so.2")
Command = Callable[..., list[str]]


def archive_of(folder: Path) -> Path:
    done = subprocess.run([ROOT / "scripts/tar", folder, "x86_64"], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def rooted(archive: Path, root: Path) -> tuple[Bundle, Command]:
    """Return a bundle in a root with the archive's files, and the command there with words behind it."""
    for path in (*map(LIBRARIES.joinpath, LOADED), LOADER):
        target = root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for name in ("proc", "tmp"):
        (root / name).mkdir()
    with tarfile.open(archive) as packed:
        packed.extractall(root / "anywhere", filter="data")
    (unpacked,) = (root / "anywhere").iterdir()
    bundle = Bundle.open(write_arithmetic_bundle(root / "bundle"), threads=1)
    program = Path("/") / unpacked.relative_to(root) / "bin/speccompile-native"
    # the loader asks /proc where a program lies
    enter = ("unshare", "--mount", "sh", "-c", 'mount --bind /proc "$0/proc" && exec chroot "$0" "$@"', root, program)
    return bundle, lambda *words: [str(word) for word in (*enter, *words)]


@pytest.fixture(scope="module")
def archive(made: Path) -> Path:
    return archive_of(made)


def test_the_same_wheels_give_the_same_bytes(archive: Path) -> None:
    before = archive.read_bytes()
    assert archive_of(archive.parent).read_bytes() == before


def test_it_generates_and_serves_without_python(archive: Path, tmp_path: Path) -> None:
    bundle, command = rooted(archive, tmp_path)
    assert [path for path in tmp_path.rglob("*") if "python" in path.name.lower()] == []
    expected = bundle.generate(PROMPT, max_new_tokens=24)
    words = ("generate", "/bundle", "--token-ids", ",".join(map(str, PROMPT)), "--max-new-tokens", 24, "--json")
    done = subprocess.run(command(*words), env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["token_ids"] == expected.token_ids
    with subprocess.Popen(
        command("serve", "/bundle", "--port", 0),
        env={"PATH": os.environ["PATH"]}, stdout=subprocess.PIPE, text=True,
    ) as serving:  # fmt: skip
        try:
            assert serving.stdout
            address = serving.stdout.readline().split()[-1]
            ready = ask(f"{address}/health", patience=60)
            answered = ask(f"{address}/v1/completions", {"prompt": PROMPT, "max_tokens": 24})
        finally:
            serving.kill()
    assert ready == {"status": "ready"}
    assert answered["choices"][0]["text"] == expected.text


def ask(url: str, body: dict[str, Any] | None = None, patience: int = 10) -> Any:
    """Ask until the server has opened its bundle."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    for remaining in reversed(range(patience * 10)):
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code != 503 or not remaining:
                raise
        time.sleep(0.1)
    return None
