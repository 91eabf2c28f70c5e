"""Sessions of both runtimes: equal files, continuations with the bits of those from scratch, equal words for what is
wrong."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from speccompile.errors import UsageError
from speccompile.runtime import Bundle
from speccompile.runtime.session_file import SessionFile, read_session, write_session
from tests.compile.combinations import BATCH_SIZE
from tests.compile.test_serving_exact import FEW, KINDS
from tests.native.native_api import NativeError
from tests.native.side_by_side import SideBySide
from tests.suite.selection import sweep_but

REASON = "every kind of drafter and of recurrent state: half a minute"
EQUAL = ("token_ids", "seed", "finish_reason")
PROMPT = [17, 230, 45, 99, 101] * 3
MOST = 1 << 30


@pytest.mark.parametrize("combination", sweep_but(FEW, KINDS, REASON), ids=str)
def test_either_goes_on_from_what_the_other_wrote(
    workshop, combination, native_library, onnxruntime_library, tmp_path
):
    """And writes the same file, byte for byte, wherever it drafts the same."""
    folder = workshop.bundle(combination, batch_size=BATCH_SIZE)
    both = SideBySide(folder, native_library, onnxruntime_library, proposer=combination.proposer)
    dice, cached, path = Random(str(combination)), 0, tmp_path / "s"
    for seed in range(8):
        options: dict[str, Any] = {"adaptive": False}
        if combination.decoding == "sampling" and dice.random() < 0.6:
            options |= {"temperature": 0.9, "seed": seed}
        prompt = [dice.randrange(3, 200) for _ in range(dice.randrange(1, 24))]
        ours = both.session.generate([prompt], max_new_tokens=(count := dice.randrange(1, 15)), **options)[0]
        both.session.save(path)
        content = path.read_bytes()
        both.python.generate(prompt, max_new_tokens=count, **options)
        both.python.save_session(path)
        assert path.read_bytes() == content
        assert path.stat().st_mode & 0o777 == 0o600
        said = prompt + ours["token_ids"]
        kept = said[: dice.choice([len(said), len(said) - 1, dice.randrange(1, len(said))])]
        longer = kept + [dice.randrange(3, 200) for _ in range(dice.randrange(1, 9))]
        options |= {"max_new_tokens": 14, "autoregressive": dice.random() < 0.3, "adaptive": dice.random() < 0.5}
        expected = both.python.generate(longer, **options)
        assert both.session.load(path) == both.python.load_session(path)
        (ours,) = both.session.generate([longer], **options)
        theirs = both.python.generate(longer, **options)
        assert [ours[name] for name in EQUAL] == [getattr(expected, name) for name in EQUAL]
        assert [getattr(theirs, name) for name in EQUAL] == [getattr(expected, name) for name in EQUAL]
        assert ours["cached_tokens"] == theirs.cached_tokens
        cached += theirs.cached_tokens
    assert cached or combination.pair
