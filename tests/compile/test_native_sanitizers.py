"""The runtime with checks of addresses, undefined behaviour, leaks and threads; sessions, and inputs changed at random.

ONNX Runtime has no such checks. What is left out because of it says native/tests/tsan.supp; of leaks nothing is.
"""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from speccompile.bundle.manifest import MANIFEST, canonical_json
from speccompile.native import packaging
from tests.compile.test_kernel_sanitizers import can_compile
from tests.light.fake_bundle import toy_manifest, toy_tokenizer
from tests.light.test_text import TOKENIZERS
from tests.native.conftest import run
from tests.native.image_lines import ImageLines
from tests.native.slot_operations import TRACES, check_trace
from tests.native.test_native_image_files import decode_changed
from tests.native.test_native_model_templates import FOLDER as MODEL_TEMPLATES
from tests.native.test_native_model_templates import GIVEN as TEMPLATES
from tests.native.tokenizers_of_families import FAMILIES
from tests.native.toy_onnx import write_arithmetic_bundle

pytestmark = pytest.mark.sweep("the runtime in C++ is compiled twice more, and fuzzed for half a minute")

THREADS = packaging.FOLDER / "tests" / "tsan.supp"

SECONDS = float(os.environ.get("SPECCOMPILE_FUZZ_SECONDS", "30"))
"""Of changing inputs. More by hand: minutes, and another seed."""
SEED = os.environ.get("SPECCOMPILE_FUZZ_SEED", "1")

CYCLES = os.environ.get("SPECCOMPILE_CYCLES", "100")
"""Of opening, generating and closing; by hand 1,000."""

CHECKS = {"address": "address,undefined,float-cast-overflow", "thread": "thread"}
PROGRAMS = {
    "address": (
        "test_sessions",
        "test_calls",
        "test_memory_growth",
        "test_proposers",
        "test_schedulers",
        "slot_lines",
        "image_lines",
        "fuzz",
    ),
    "thread": ("test_sessions", "test_schedulers", "test_thread_pool"),
}

SLOW_TO_COMPILE = ("AVX_VNNI", "AVX512_VNNI", "AMX_INT8")
"""Paths of the kernels, which tests/compile/test_kernel_sanitizers.py checks."""


@dataclass(frozen=True)
class Programs:
    """Programs that were compiled with checks, in a folder. Anything that the checks find is a failure."""

    build: Path

    def __call__(self, program: str, *words: object, **environment: str) -> str:
        """Run a program to its end, and return what it says."""
        told = {
            "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1",
            "TSAN_OPTIONS": f"suppressions={THREADS}",
        }
        command = [self.build / program, *words]
        done = subprocess.run(
            [str(word) for word in command],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env=os.environ | told | environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-20_000:]
        return done.stdout


@pytest.fixture(scope="module")
def checked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Return the programs with the checks of the parameter."""
    name: str = request.param
    try:
        cmake = Path(packaging._cmake())
    except packaging.CannotCompileError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp(name)
    if not can_compile(cmake, folder / "nothing", f"-fsanitize={CHECKS[name]}"):
        pytest.skip(f"the C++ compiler has no -fsanitize={CHECKS[name]}")
    kept = os.environ.get("SPECCOMPILE_NATIVE_BUILD")
    build = Path(f"{kept}-{name}") if kept else folder / "build"
    left_out = (f"-DSPECCOMPILE_CAN_{path}=OFF" for path in SLOW_TO_COMPILE)
    settings = (
        f"-DSPECCOMPILE_SANITIZE={CHECKS[name]}",
        "-DSPECCOMPILE_TESTS=ON",
        "-DSPECCOMPILE_INSTALL=OFF",
        *left_out,
    )
    run(cmake, "-S", packaging.FOLDER, "-B", build, *packaging._generator(), *settings)
    run(cmake, "--build", build, "--parallel", os.cpu_count() or 1, "--target", *PROGRAMS[name])

    return Programs(build)


@pytest.mark.parametrize("checked", CHECKS, indirect=True)
@pytest.mark.parametrize(("name", "kernels"), [("model_4", "none"), ("lookup_3", "")], ids=["onnxruntime", "kernels"])
def test_sessions(checked, built, onnxruntime_library, name, kernels):
    """Run sessions on several threads, cancel them, and let them outlive their bundle; on ONNX Runtime's kernels, and
    on ours."""
    checked("test_sessions", built(name).path, onnxruntime_library, 10, SPECCOMPILE_KERNELS=kernels)


@pytest.mark.parametrize("checked", CHECKS, indirect=True)
@pytest.mark.parametrize("kind", [{}, {"fused": True}, {"has_slices": False}], ids=["slices", "fused", "whole"])
def test_schedulers(checked, tmp_path, onnxruntime_library, kind):
    """Requests of several threads at once, cancelled ones, and what outlives the scheduler."""
    checked("test_schedulers", write_arithmetic_bundle(tmp_path / "b", **kind), onnxruntime_library, 15)


@pytest.mark.parametrize("checked", ["thread"], indirect=True)
def test_threads_that_share_the_work_of_operators(checked):
    checked("test_thread_pool")


@pytest.mark.parametrize("checked", ["address"], indirect=True)
def test_wrong_calls_and_leaks(checked, built, onnxruntime_library):
    folder = built("lookup_3").path
    checked("test_calls", folder, onnxruntime_library)
    checked("test_memory_growth", folder, onnxruntime_library, 10, SPECCOMPILE_KERNELS="none")


@pytest.mark.parametrize("checked", ["address"], indirect=True)
def test_proposers(checked, built, onnxruntime_library):
    checked("test_proposers", built("retrieval").path, onnxruntime_library)


@pytest.mark.parametrize("checked", ["address"], indirect=True)
@pytest.mark.parametrize("trace", TRACES, ids=str)
@pytest.mark.parametrize("kind", [{"samples": True}, {"fused": True, "has_slices": False}], ids=["slices", "whole"])
def test_slots(checked, tmp_path, onnxruntime_library, trace, kind):
    check_trace(
        trace, write_arithmetic_bundle(tmp_path / "b", **kind), checked.build / "slot_lines", onnxruntime_library
    )


@pytest.mark.parametrize("checked", ["address"], indirect=True)
def test_pictures_that_are_changed_at_random(checked, tmp_path):
    native = ImageLines(checked.build, tmp_path)
    assert decode_changed(native, tmp_path, 100) > 0
    native.close()


WAYS = (
    {"fused": True},
    {"tree": "static"},
    {"tree": "dynamic", "sampling": True},
    {"sampling": True, "sample": True, "batch_size": 2},
    {"features": True},
    {"speculative": False},
)


def seeds(folder: Path, bundles: list[Path]) -> list[str]:
    """Return inputs in which nothing is wrong, each with the name of what reads it in front."""
    found = []
    for number, way in enumerate(WAYS):
        file = folder / f"{number}.json"
        file.write_bytes(canonical_json(toy_manifest(**way).to_json()))
        found.append(f"manifest:{file}")
    made = {"toy": toy_tokenizer(), **TOKENIZERS, **{name: make() for name, make in FAMILIES.items()}}
    for name, tokenizer in made.items():
        tokenizer.save(str(folder / name))
        found.append(f"tokenizer:{folder / name}")
    messages = TEMPLATES["conversations"]
    for number, file in enumerate(sorted(MODEL_TEMPLATES.iterdir())):
        chosen = list(messages.values())[number % len(messages)]
        given = TEMPLATES["special"] | TEMPLATES["variables"][number % 3] | {"messages": chosen}
        (folder / file.name).write_bytes(file.read_bytes() + b"\xff" + json.dumps(given).encode())
        found.append(f"jinja:{folder / file.name}")
    for bundle in bundles:
        found.append(f"manifest:{bundle / MANIFEST}")
        found += [f"onnx:{file}" for file in sorted(bundle.glob("graphs/*.onnx"))]
    return found


@pytest.mark.parametrize("checked", ["address"], indirect=True)
def test_inputs_that_are_changed_at_random(checked, built, tmp_path):
    """Manifests, hashes, tokenizers, graphs, sessions, indexes, chat templates, requests, constraints, and what
    drafters keep. The input of a failure is told, and lies in the folder of the test."""
    inputs = seeds(tmp_path, [built(name).path for name in ("lookup_3", "model_4")])
    told = checked("fuzz", SECONDS, SEED, tmp_path / "tried", *inputs)
    tried = {line.partition(":")[0] for line in told.splitlines() if " inputs, " in line}
    targets = "manifest hashes tokenizer onnx kept session index picture wav jinja request constraint answer"
    assert tried == set(targets.split())


def test_nothing_grows(native_build, built, onnxruntime_library):
    """Count memory, threads and open files of the released library."""
    print(run(native_build / "test_memory_growth", built("lookup_3").path, onnxruntime_library, CYCLES))


@pytest.mark.parametrize("name", ["none", "model_4"])
def test_sessions_as_they_are_released(native_build, built, onnxruntime_library, name):
    run(native_build / "test_sessions", built(name).path, onnxruntime_library)
    run(native_build / "test_calls", built(name).path, onnxruntime_library)
