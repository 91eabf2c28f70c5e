"""Measure a prompt's first token after restoring a session beside that after reading the prompt.

    python -m scripts.restore BUNDLE [--tokens 4096] [--runs 3]

The prompt is random tokens. Each run opens the file that the first one has written, in the page cache, and reads it:
its hash is compared. Prints the median of runs, and the ratio.
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

from speccompile.machine.system import processor
from speccompile.runtime import Bundle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    bundle = Bundle.open(given.bundle)
    prompt = np.random.default_rng(0).integers(3, bundle.manifest.vocabulary_size, given.tokens).tolist()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session"
        bundle.generate(prompt, session=path, max_new_tokens=1)
        read = statistics.median(_seconds(bundle, prompt, None) for _ in range(given.runs))
        restored = statistics.median(_seconds(bundle, prompt, path) for _ in range(given.runs))
        size = path.stat().st_size
    print(f"{processor()['name']}: {given.tokens} tokens, {size / 1e6:.1f} MB")
    print(f"prefill {read:.3f} s, restored {restored:.3f} s: {read / restored:.1f} times sooner")


def _seconds(bundle: Bundle, prompt: list[int], path: Path | None) -> float:
    """Return the seconds until one token has come. path: of a session that holds the prompt."""
    bundle.reset()
    start = perf_counter()
    if path is not None:
        bundle.load_session(path)
    found = bundle.generate(prompt, max_new_tokens=1)
    assert (found.cached_tokens > 0) == (path is not None)
    return perf_counter() - start


if __name__ == "__main__":
    main()
