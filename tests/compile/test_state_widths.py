"""Targets that carry states give the same bits in windows of any width: logits, states and caches."""

from collections.abc import Sequence

import numpy as np
import pytest

from speccompile.compiler.lower.export import export_verify
from speccompile.compiler.lower.files import engine_file
from speccompile.compiler.prove.schedule_runs import Outputs
from speccompile.compiler.step.verify import Verify
from tests.compile.kernel_runs import needs_library
from tests.compile.test_lowered_models import lowered

pytestmark = [needs_library, pytest.mark.builds(2)]

TEXT = 64
WINDOWS = ([64], [17, 47], [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 18], [9, 8, 7, 6, 5, 4, 3, 2, 1, 17, 2], [33, 31])


def at_ends(outputs: Outputs, widths: Sequence[int]) -> dict[int, np.ndarray]:
    """Return tokens committed -> the logits behind the last of them: all tokens of the text are given."""
    return {int(end): step["logits"][:, 0] for end, step in zip(np.cumsum(widths), outputs, strict=False)}


@pytest.mark.sweep("a trace each; a convolution and a scan are in the first tier", but=["lfm2", "mamba"])
@pytest.mark.parametrize("name", ["lfm2", "mamba", "bamba", "minimax", "recurrent_gemma"])
def test_windows_of_any_width(name, tmp_path):
    model = lowered(name, tmp_path, lambda decoder: export_verify(Verify(decoder)))
    file = engine_file(model.graph, "cpu")
    *steps, states = model.run(file, [1] * TEXT)
    alone = at_ends(steps, [1] * TEXT)
    for widths in WINDOWS:
        *steps, after = model.run(file, widths)
        for end, logits in at_ends(steps, widths).items():
            np.testing.assert_array_equal(logits, alone[end], f"{widths}: logits behind {end} tokens")
        for state, whole in states.items():
            np.testing.assert_array_equal(after[state], whole, f"{widths}: {state}")
