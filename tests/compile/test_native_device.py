"""A bundle over a device's memory, in C++: the processor runs in a GPU's place, and gives what it gives alone."""

import subprocess

import pytest

NEW_TOKENS = 40
"""As native/tests/device_bundle.h, which also has the prompts."""


@pytest.mark.parametrize("name", ["model_1", "lookup_3"])
def test_the_tokens_over_a_devices_memory(native_build, onnxruntime_library, built, name):
    """Compare tokens with Python's; the program compares with its own engine for processors."""
    bundle = built(name).bundle
    command = [native_build / "test_device", "tokens", onnxruntime_library, built(name).path]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    size = bundle.manifest.vocabulary_size
    prompts = [
        [(7 + 31 * row + 13 * (i % 5)) % size for i in range(3 + 17 * row)] for row in range(bundle.manifest.batch_size)
    ]
    expected = bundle.generate_batch(prompts, max_new_tokens=NEW_TOKENS)
    found = [[int(token) for token in line.split()] for line in run.stdout.splitlines()]
    assert found == [each.token_ids for each in expected]
