"""The example service of scripts/examples, built by find_package, on a bundle of a tiny model."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.native.test_native_packaging import prefix, stream

__all__ = ["prefix", "stream"]  # fixtures

PROMPTS = ("def main(", "a b c")
BLOCKED = f"SigBlk:\t{1 << (signal.SIGINT - 1):016x}\n"


@pytest.fixture(scope="module")
def bundle(built):
    """Return a small bundle with a tokenizer, which drafts one token a round by prompt lookup."""
    return built("lookup_5")


@pytest.fixture(scope="module")
def variables(onnxruntime_library: Path) -> dict[str, str]:
    return os.environ | {"SPECCOMPILE_ONNXRUNTIME": str(onnxruntime_library)}


@pytest.fixture(scope="module")
def wanted(bundle) -> bytes:
    """Return what Python's runtime writes."""
    return "".join(f"{bundle.bundle.generate(prompt, max_new_tokens=64).text}\n" for prompt in PROMPTS).encode()


def test_prompts_of_the_command_line_are_streamed(stream, bundle, variables, wanted):
    done = subprocess.run([stream, bundle.path, *PROMPTS], env=variables, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, wanted, b"")


def test_prompts_of_stdin_are_streamed(stream, bundle, variables, wanted):
    lines = "".join(f"{prompt}\n" for prompt in PROMPTS).encode()
    done = subprocess.run([stream, bundle.path], env=variables, input=lines, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, wanted, b"")


def test_requests_of_one_queue_are_answered_in_their_order(stream, bundle, variables):
    """Expect every line to be a request; all of them are decoded beside each other, each as it is alone."""
    prompts = [f"def {name}(" for name in "abcdefgh"] * 6
    lines = "".join(f"{prompt}\n" for prompt in prompts).encode()
    service = stream.with_name("service")
    done = subprocess.run([service, bundle.path], env=variables, input=lines, capture_output=True, timeout=60)
    texts = [json.loads(line)["text"] for line in done.stdout.splitlines()]
    alone = {prompt: bundle.bundle.generate(prompt, max_new_tokens=64).text for prompt in set(prompts)}
    assert (done.returncode, done.stderr, texts) == (0, b"", [alone[prompt] for prompt in prompts])


def test_prompt_that_is_too_long_is_told_with_a_hint(stream, bundle, variables):
    done = subprocess.run([stream, bundle.path, "x" * 200], env=variables, capture_output=True, text=True, timeout=60)
    error, hint = done.stderr.splitlines()
    assert (done.returncode, error[:7], hint[:6]) == (2, "error: ", "hint: ")


def test_an_interrupt_ends_the_service(stream, bundle, variables):
    with subprocess.Popen([stream, bundle.path], env=variables, stdin=subprocess.PIPE) as process:
        status, until = Path(f"/proc/{process.pid}/status"), time.monotonic() + 30
        while BLOCKED not in status.read_text() and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
