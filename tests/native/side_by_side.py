"""Run the same requests in both runtimes over one bundle, and compare all that they return."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from speccompile.runtime import Bundle, Generation, Proposer
from tests.native.native_api import NativeBundle

LOGPROB_TOLERANCE = 1e-9
"""numpy adds and exponentiates in another order than a loop does."""

BY_THE_CLOCK = {"seconds", "tokens_per_second"}


class SideBySide:
    """A bundle, opened by both runtimes with one thread each. prompts: texts or token ids. proposer: of both."""

    def __init__(
        self, folder: Path, library: Path, onnxruntime: Path, *, proposer: Proposer | None = None, **options: Any
    ) -> None:
        self.python = Bundle.open(folder, threads=1, proposer=proposer, **options)
        self.native = NativeBundle(folder, library=library, onnxruntime=onnxruntime, threads=1, **options)
        self.session = self.native.session()
        if proposer is not None:
            self.session.propose_with(proposer)

    def check(self, prompts: Sequence[Any], **options: Any) -> list[Generation]:
        """Generate in both, from drafters that have learned nothing, and return Python's generations. All but the
        times must be equal, and with adaptive draft lengths all but the drafts."""
        self.python.reset()
        self.session.reset_kept()
        expected = self.python.generate_batch(prompts, **options)
        found = self.session.generate(prompts, **options)
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            _check(ours, theirs, adaptive=options.get("adaptive", True))
        return expected


def _check(ours: dict[str, Any], theirs: Generation, *, adaptive: bool) -> None:
    shown = theirs.to_json()
    logprobs, expected = ours.get("logprobs", []), shown.pop("logprobs", [])
    assert len(logprobs) == len(expected)
    assert all(abs(one - other) <= LOGPROB_TOLERANCE for one, other in zip(logprobs, expected, strict=True))
    left_out = BY_THE_CLOCK | ({"rounds", "mean_accepted"} if adaptive else set())
    assert {name: ours[name] for name in shown if name not in left_out} == {
        name: value for name, value in shown.items() if name not in left_out
    }
    assert sum(ours["path_lengths"]) >= len(ours["token_ids"]) - 1
    if not adaptive:
        assert ours["path_lengths"] == theirs.path_lengths
        assert ours["draft_lengths"] == theirs.draft_lengths
