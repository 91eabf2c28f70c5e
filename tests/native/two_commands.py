"""Both commands on the same command line: `speccompile` in this process, `speccompile-native` as a program."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from speccompile.bundle.hashes import hash_folder, write_hashes
from speccompile.bundle.manifest import CHAT
from speccompile.cli import exit_codes
from speccompile.cli.main import group

SPEED = re.compile(r"[\d.]+ tokens/s(, [\d.]+x autoregressive \(estimated\))?")
HELP = re.compile(r"^help: speccompile explain SC\d{3}\n", re.MULTILINE)
"""A line that the program does not have: its errors have no codes."""
LONG_STEP = re.compile(r"^.*: (?:still running, )?[\d.]+ s\n", re.MULTILINE)
TIMES = re.compile(r'("(?:seconds|tokens_per_second)": )[\d.e+-]+')


STEADY = ["--fixed-draft-length", "--threads", 1]
"""How many rounds there are is then no matter of the clock."""


class Said(NamedTuple):
    """What a command said, its own name and whatever the clock says left out."""

    code: int
    out: bytes
    err: str


def _said(code: int, out: bytes, err: bytes) -> Said:
    text = err.decode(errors="surrogateescape").replace("speccompile-native", "speccompile")
    return Said(
        code,
        TIMES.sub(r"\1 ..", out.decode(errors="surrogateescape")).encode(errors="surrogateescape"),
        SPEED.sub(".. tokens/s", HELP.sub("", LONG_STEP.sub("", text))),
    )


@dataclass
class TwoCommands:
    """onnxruntime: its library. environment: of the program, beside this process's."""

    program: Path
    onnxruntime: Path
    capture: pytest.CaptureFixture[bytes]
    environment: dict[str, str] = field(default_factory=dict)

    def variables(self) -> dict[str, str]:
        return os.environ | {"SPECCOMPILE_ONNXRUNTIME": str(self.onnxruntime)} | self.environment

    def native(self, *words: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        line = [self.program, *(os.fsencode(str(word)) for word in words)]
        return subprocess.run(line, input=stdin, capture_output=True, env=self.variables())

    def start(self, *words: object, **more: object) -> "subprocess.Popen[bytes]":
        line = [str(self.program), *map(str, words)]
        return subprocess.Popen(line, env=self.variables(), stderr=subprocess.PIPE, **more)  # type: ignore[call-overload]

    def python(self, *words: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        line = [str(word) for word in words]
        self.capture.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            code = exit_codes.run(group, line)
        return subprocess.CompletedProcess(line, code, *self.capture.readouterr())

    def same(self, *words: object, stdin: bytes = b"") -> Said:
        """Return what both say, which must be equal."""
        ours, theirs = (
            _said(done.returncode, done.stdout, done.stderr)
            for done in (self.native(*words, stdin=stdin), self.python(*words, stdin=stdin))
        )
        assert ours == theirs
        return ours


@pytest.fixture
def both(native_build, onnxruntime_library, capfdbinary) -> TwoCommands:
    return TwoCommands(native_build / "speccompile-native", onnxruntime_library, capfdbinary)


@pytest.fixture(scope="module")
def lookup(built) -> Path:
    return built("lookup_3").path


@pytest.fixture(scope="module")
def model(built) -> Path:
    return built("model_4").path


@pytest.fixture(scope="module")
def silent(built) -> Path:
    """Return a bundle without a drafter and a tokenizer."""
    return built("none").path


@pytest.fixture
def chatty(lookup, tmp_path) -> Path:
    """Return one with a chat template."""
    folder = tmp_path / "chatty"
    shutil.copytree(lookup, folder)
    template = "{{ messages[0].content }}{{ messages | length }}{{ messages[-1].role }}"
    (folder / CHAT).write_text(json.dumps({"special_tokens": {}, "template": template}))
    write_hashes(folder, hash_folder(folder))
    return folder
