"""A Whisper as onnxruntime-genai's builder exports it, and its greedy decoding by ONNX Runtime's own operators.

onnxruntime-genai's own loop needs a tokenizer, which random models have none of: so the graphs run in a loop here, with
outputs bound to the next step's inputs, and nothing copied.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

PRECISIONS = {"float32": "fp32", "int8": "int8"}


def convert(folder: Path, precision: str, target: Path) -> None:
    """Write the graphs of the Whisper in `folder`. The builder may fail after that, when it copies a tokenizer."""
    builder = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-m", str(folder), "-o", str(target)]
    line = [*builder, "-p", PRECISIONS[precision], "-e", "cpu", "-c", str(target.with_suffix(".cache"))]
    done = subprocess.run(line, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if not all((target / f"{name}.onnx").is_file() for name in ("encoder", "decoder")):
        raise SystemExit(f"onnxruntime-genai: no graphs of {folder}\n{done.stdout[-2000:]}")


def run(model: Path, prompt: list[int], never: int, count: int) -> dict[str, Any]:
    """Return the time of the first token, the speed of `count` greedy ones behind it, and the tokens, on one thread.
    never: a token that is never chosen."""
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    encoder, decoder = (ort.InferenceSession(model / f"{name}.onnx", settings) for name in ("encoder", "decoder"))
    inputs, outputs = ({each.name: each for each in side} for side in (decoder.get_inputs(), decoder.get_outputs()))

    def decode(seed: int, tokens: int) -> Iterator[int]:
        features = (np.random.default_rng(seed).normal(size=(1, 80, 3000)) * 0.3).astype(np.float32)
        names = [each.name for each in encoder.get_outputs()]
        encoded = dict(zip(names, encoder.run_with_ort_values(names, {"audio_features": value(features)}), strict=True))
        cached = {name.replace("present", "past"): each for name, each in encoded.items() if "present" in name}
        for name, each in inputs.items():
            if "_self_" in name:
                cached[name] = value(np.zeros((1, each.shape[1], 0, each.shape[3]), np.float32))
        ids = prompt
        for _ in range(tokens):
            feed = {"input_ids": value(np.array([ids], np.dtype(inputs["input_ids"].type[7:-1]))), **cached}
            found = dict(zip(outputs, decoder.run_with_ort_values(list(outputs), feed), strict=True))
            cached |= {name.replace("present", "past"): each for name, each in found.items() if "present" in name}
            logits = found["logits"].numpy()[0, -1].copy()
            logits[never] = -np.inf
            ids = [int(logits.argmax())]
            yield ids[0]

    def value(array: Any) -> Any:
        return ort.OrtValue.ortvalue_from_numpy(array)

    list(decode(1, 4))
    start, times, found = perf_counter(), [], []
    for token in decode(0, count):
        times.append(perf_counter() - start)
        found.append(token)
    return {"first": times[0], "speed": (count - 1) / (times[-1] - times[0]), "tokens": found, "accepted": None}
