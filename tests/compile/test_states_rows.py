"""States that a row carries: of rows that take no part they stay as they are, bit for bit; a text in other chunks
leaves the same; and what another generation has left is never read."""

from itertools import islice

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from speccompile.contract import BATCH, is_recurrent_state
from speccompile.runtime import Bundle, GenerationOptions
from speccompile.runtime.batch import Batch
from tests import zoo
from tests.compile.combinations import MAX_LENGTH, ON_STATES
from tests.light.forced_lengths import force

PAIR = ON_STATES[0]
"""Target and drafter carry states."""
NOISE = 1e-5
TEXT = np.random.default_rng(5).integers(3, zoo.VOCABULARY, 41).tolist()


@pytest.fixture(scope="module")
def bundle(workshop) -> Bundle:
    return Bundle.open(workshop.bundle(PAIR), threads=1)


@pytest.fixture(scope="module")
def continuation(workshop):
    """Return transformers' own continuation, greedy."""
    folder = workshop.models(PAIR.where.architecture) / "target"
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()

    def after(prompt: list[int], new_tokens: int) -> list[int]:
        ids = torch.tensor([prompt])
        mask = torch.ones_like(ids)
        found = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=new_tokens)
        return found[0, len(prompt) :].tolist()

    return after


def states(bundle: Bundle) -> dict[str, np.ndarray]:
    """Return copies of all that is carried, [B, ..]."""
    outputs = [
        tensor for graph in bundle.manifest.graphs for tensor in graph.outputs if is_recurrent_state(tensor.buffer)
    ]
    sizes = {BATCH: bundle.manifest.batch_size}
    found = {each.buffer: bundle.engine.host_view(each.buffer, each.concrete_shape(sizes)).copy() for each in outputs}
    assert {name.partition(".")[0] for name in found} == {"target", "drafter"}
    return found


def test_a_row_that_takes_no_part_keeps_its_states_bit_for_bit(bundle, continuation):
    bundle.generate_batch([TEXT[:9], TEXT[9:30]], max_new_tokens=8)
    before = states(bundle)
    for wanted in ([3, 3, 1, 1, 2, 3], [1, 1, 3]):
        force(bundle, wanted)
        assert bundle.generate(TEXT[:20], max_new_tokens=20).token_ids == continuation(TEXT[:20], 20)
        for name, state in states(bundle).items():
            assert state[1].tobytes() == before[name][1].tobytes()
            assert state[0].tobytes() != before[name][0].tobytes()


def test_a_row_that_ended_keeps_its_states_while_the_other_goes_on(bundle):
    whole = [*TEXT, *TEXT[: MAX_LENGTH - 4 - len(TEXT)]]  # behind which there is room for four tokens
    bundle.generate_batch([whole, TEXT[:3]], max_new_tokens=4, adaptive=False)
    before = states(bundle)
    ended, other = bundle.generate_batch([whole, TEXT[:3]], max_new_tokens=30, adaptive=False)
    assert (len(ended.token_ids), len(other.token_ids)) == (4, 30)
    for name, state in states(bundle).items():
        if name.startswith("target."):
            assert state[0].tobytes() == before[name][0].tobytes()
            assert state[1].tobytes() != before[name][1].tobytes()


@pytest.mark.parametrize("widths", [[41], [16, 16, 9], [1] * 41, [5, 16, 1, 13, 6]], ids=str)
def test_a_text_in_other_chunks_leaves_the_same_states(bundle, widths):
    engine, batch = bundle.engine, bundle.manifest.batch_size
    found = []
    for each in ([1] * 41, widths):
        start = 0
        for width in each:
            forward = bundle._loop.rounds.forward(width, 1, 1, fused=False, logprobs=False)
            forward.window[0] = TEXT[start : start + width]
            for name, value in {"n_given": width, "n_total": width, "length": start}.items():
                engine.host_view(name, (batch,))[:] = [value, *[0] * (batch - 1)]
            forward.verify()
            start += width
        found.append(states(bundle))
    for name, expected in found[0].items():
        if name.startswith("target."):
            np.testing.assert_allclose(found[1][name][0], expected[0], rtol=0, atol=NOISE * np.abs(expected).max())


def test_a_generation_that_is_cancelled_leaves_nothing_behind(bundle, continuation):
    expected = continuation(TEXT, 12)
    for rounds in (1, 2, 4):
        batch = Batch(bundle, [TEXT[::-1], TEXT[5:9]], GenerationOptions(max_new_tokens=30))
        running = batch.run()
        assert len(list(islice(running, rounds))) == rounds
        running.close()
        bundle.reset()
        assert bundle.generate(TEXT, max_new_tokens=12).token_ids == expected
