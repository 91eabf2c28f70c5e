"""The bindings of scripts/examples in Rust and Go: compiled, and on a bundle of a tiny model."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.test_native_packaging import EXAMPLES, prefix
from tests.native.toy_onnx import write_arithmetic_bundle

__all__ = ["prefix"]  # a fixture

pytestmark = pytest.mark.sweep("compiles the standard library of Go")

PROMPTS = ("def main(", "a b c", "x = ")


def _rust(source: Path, prefix: Path, output: Path) -> Path:
    (library,) = {path.parent for path in prefix.rglob("libspeccompile.so")}
    variables = os.environ | {"SPECCOMPILE_LIBRARY": str(library / "libspeccompile.so"), "RUSTFLAGS": "-D warnings"}
    command = ["cargo", "build", "--offline", "--quiet", "--target-dir", output]
    subprocess.run(command, cwd=source, env=variables, check=True, timeout=500)
    return output / "debug" / "service"


def _go(source: Path, prefix: Path, output: Path) -> Path:
    (found,) = {path.parent for path in prefix.rglob("speccompile.pc")}
    variables = os.environ | {"PKG_CONFIG_PATH": str(found), "GOCACHE": str(output / "cache"), "GOFLAGS": "-mod=mod"}
    program = output / "service"
    subprocess.run(["go", "vet", "./..."], cwd=source, env=variables, check=True, timeout=500)
    subprocess.run(["go", "build", "-o", program, "./service"], cwd=source, env=variables, check=True, timeout=500)
    return program


COMPILERS = {"rust": (_rust, "cargo"), "go": (_go, "go")}


@pytest.fixture(scope="module", params=list(COMPILERS))
def service(request, prefix, tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """Return the example service in a language, and the variables that it needs."""
    compiled, program = COMPILERS[request.param]
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}: apt-get install cargo golang-go")
    if request.param == "go" and shutil.which("pkg-config") is None:
        pytest.skip("needs pkg-config: apt-get install pkg-config")
    folder = tmp_path_factory.mktemp(request.param)
    source = shutil.copytree(EXAMPLES / request.param, folder / "source")
    (library,) = {path.parent for path in prefix.rglob("libspeccompile.so")}
    return compiled(source, prefix, folder / "output"), os.environ | {"LD_LIBRARY_PATH": str(library)}


@pytest.fixture(scope="module")
def bundle(built):
    """Return one with a tokenizer, and short: one token at a time from prompt lookup."""
    return built("lookup_5")


def test_requests_of_a_queue_have_the_texts_that_they_have_alone(service, bundle, onnxruntime_library):
    program, variables = service
    variables |= {"SPECCOMPILE_ONNXRUNTIME": str(onnxruntime_library)}
    done = subprocess.run([program, bundle.path, *PROMPTS], env=variables, capture_output=True, timeout=60)
    wanted = "".join(f"{bundle.bundle.generate(prompt, max_new_tokens=64).text}\n" for prompt in PROMPTS)
    assert (done.returncode, done.stdout, done.stderr) == (0, wanted.encode(), b"")


def test_the_text_of_every_prompt_is_bound_by_a_constraint(service, onnxruntime_library, tmp_path):
    program, variables = service
    variables |= {"SPECCOMPILE_ONNXRUNTIME": str(onnxruntime_library)}
    folder = write_arithmetic_bundle(tmp_path / "bound", constrained=True)
    done = subprocess.run(
        [program, folder, "--regex", "[a-c]{5}(é|x)", *PROMPTS], env=variables, capture_output=True, timeout=60
    )
    texts = done.stdout.decode().splitlines()
    assert (done.returncode, done.stderr) == (0, b"")
    assert [bool(re.fullmatch("[a-c]{5}(é|x)", text)) for text in texts] == [True] * len(PROMPTS)
    done = subprocess.run([program, folder, "--regex", "(", *PROMPTS], env=variables, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr[:24]) == (2, b"", b"error: constraint regex:")


def test_errors_come_with_hint_and_exit_code(service, bundle, onnxruntime_library, tmp_path):
    program, variables = service
    variables |= {"SPECCOMPILE_ONNXRUNTIME": str(onnxruntime_library)}
    for words, code in ([bundle.path, "x" * 200], 2), ([tmp_path, "x"], 1):
        done = subprocess.run([program, *words], env=variables, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith("error: ")
    assert subprocess.run([program], env=variables, capture_output=True, timeout=60).returncode == 2


@pytest.mark.parametrize("name", ["rust/src/lib.rs", "go/speccompile.go"])
def test_a_binding_is_short(name):
    assert len((EXAMPLES / name).read_text().splitlines()) <= 200
