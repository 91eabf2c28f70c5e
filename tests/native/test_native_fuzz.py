"""Inputs that libFuzzer has found in the runtime in C++, and scripts/fuzz, which looks for more."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.conftest import run

CORPUS = Path(__file__).with_name("corpus")
ROOT = Path(__file__).resolve().parents[2]
LARGEST = 64 << 10
"""Bytes of the inputs of one target: they are in the repository."""


def fuzz(*words: object) -> subprocess.CompletedProcess[str]:
    command = [ROOT / "scripts/fuzz", *words]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=3600)


def test_inputs_that_were_found_have_an_answer_or_an_error(native_build, tmp_path):
    """Each is tried once, beside the examples of every target: a crash or a hang fails."""
    inputs = [f"{file.parent.name}:{file}" for file in sorted(CORPUS.glob("*/*"))]
    told = run(native_build / "fuzz", 0, 1, tmp_path / "tried", *inputs)
    tried = {name: int(count) for name, count in re.findall(r"^(\w+): (\d+) inputs", told, re.M)}
    for folder in CORPUS.iterdir():
        assert tried[folder.name] >= len(list(folder.iterdir()))
        assert sum(file.stat().st_size for file in folder.iterdir()) <= LARGEST


def test_the_script_knows_the_targets_of_the_program():
    """Names and order: those that read texts, which have a program of their own, come last."""
    script = (ROOT / "scripts/fuzz").read_text()
    texts, others = (
        re.findall(r'\{"(\w+)", try_', (ROOT / "speccompile/native/tests" / name).read_text())
        for name in ("fuzz_texts.h", "fuzz_targets.h")
    )
    assert re.findall(r"^texts=\((.*?)\)", script, re.M) == [" ".join(texts)]
    assert re.findall(r"^known=\((.*)\)$", script, re.M) == [" ".join([*others, '"${texts[@]}"'])]


WRONG = [(["soon"], "received 'soon'"), (["5", "moon"], "received the target 'moon'")]


@pytest.mark.parametrize(("words", "said"), WRONG)
def test_wrong_words_are_refused_before_anything_is_compiled(words, said):
    done = fuzz(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.sweep("the runtime is compiled with clang, and fuzzed for a minute")
def test_libfuzzer_finds_nothing():
    if shutil.which("clang++") is None:
        pytest.skip("needs clang++ with libFuzzer: apt-get install clang libclang-rt-dev")
    done = fuzz(5)
    assert done.returncode == 0, done.stderr[-10_000:]
