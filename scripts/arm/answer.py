"""Run kernels and bundles on this machine, and write their results for compare.py. Needs the runtime alone.

    answer.py kernels FOLDER CASES                # PATH.npz: the outputs of every case, by every path that runs here
    answer.py tokens FOLDER PROMPTS BUNDLE ...    # tokens.json

Arrays are named CASE.RUN.OUTPUT. All NaNs are replaced by one, because their bits depend on the processor.
"""

import ctypes
import json
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from speccompile import native
from speccompile.runtime import Bundle

PROMPTS, NEW_TOKENS = 5, 48

CAREFREE = ", carefree host"
"""Suffix of results with a host thread that rounds upwards and flushes denormals to zero, which must change nothing."""

_CONTROL = {"x86_64": (28, 0xC040), "aarch64": (0, 0x5400000)}
"""Architecture -> offset in fenv_t of the floating-point control word, and the bits to set there: round upwards, flush
to zero, on ARM the alternative float16."""

Outputs = dict[str, NDArray[np.float32]]
Feeds = dict[str, NDArray[Any]]


def open_case(graph: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # this very thread
    native.register(options)
    return ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])


def runs_of(case: Path) -> dict[str, Feeds]:
    runs: dict[str, Feeds] = {}
    with np.load(case.with_suffix(".npz")) as arrays:
        for name in arrays.files:
            run, _, place = name.rpartition(".")
            runs.setdefault(run, {})[place] = arrays[name]
    return runs


def run_case(session: ort.InferenceSession, name: str, runs: dict[str, Feeds]) -> Outputs:
    outputs = [output.name for output in session.get_outputs()]
    made = {}
    for run, feeds in runs.items():
        for output, array in zip(outputs, session.run(outputs, feeds), strict=True):
            made[f"{name}.{run}.{output}"] = np.where(np.isnan(array), np.float32(np.nan), array)
    return made


@contextmanager
def carefree() -> Iterator[None]:
    """Let this thread round upwards and flush denormals to zero, as a library may have set it."""
    libm = ctypes.CDLL("libm.so.6")
    one = np.ones(1, np.float32)
    before, changed = (ctypes.create_string_buffer(64) for _ in range(2))
    libm.fegetenv(before)
    libm.fegetenv(changed)
    place, bits = _CONTROL[platform.machine()]
    control = ctypes.c_uint32.from_buffer(changed, place)
    control.value |= bits
    libm.fesetenv(changed)
    try:
        assert one + np.float32(1e-9) > 1, "this host rounds to nearest nevertheless"
        yield
    finally:
        libm.fesetenv(before)


def answer_kernels(folder: Path, cases: Path) -> None:
    found: dict[str, Outputs] = {path + host: {} for path in native.paths() for host in ("", CAREFREE)}
    for case in sorted(cases.glob("*.onnx")):
        session, runs = open_case(case), runs_of(case)
        for path in native.paths():
            native.use(path)
            found[path] |= run_case(session, case.stem, runs)
            with carefree():
                outputs = run_case(session, case.stem, runs)
            found[path + CAREFREE] |= outputs
    for name, outputs in found.items():
        arrays: dict[str, Any] = {**outputs}
        np.savez(folder / f"{name}.npz", **arrays)


def answer_tokens(folder: Path, prompts: Path, bundles: list[Path]) -> None:
    texts = [json.loads(line)["prompt"] for line in prompts.read_text().splitlines()[:PROMPTS]]
    found = {}
    for path in bundles:
        bundle = Bundle.open(path, threads=1)
        given = [bundle.token_ids(text) for text in texts]
        found[path.name] = {
            "widths": bundle.exactness.widths,
            "differing": bundle.exactness.differing,
            "prompts": given,
            "speculative": [_generate(bundle, prompt, False) for prompt in given],
            "autoregressive": [_generate(bundle, prompt, True) for prompt in given],
        }
    (folder / "tokens.json").write_text(json.dumps({"path": native.kernels(), "bundles": found}))


def _generate(bundle: Bundle, prompt: list[int], autoregressive: bool) -> dict[str, list[int]]:
    """Generate with a fixed draft length: an adaptive one depends on the clock."""
    made = bundle.generate(prompt, max_new_tokens=NEW_TOKENS, autoregressive=autoregressive, adaptive=False)
    return {"tokens": made.token_ids, "accepted": made.path_lengths}


def main(what: str, folder: Path, source: Path, *bundles: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if what == "kernels":
        answer_kernels(folder, source)
    else:
        answer_tokens(folder, source, list(bundles))


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
