"""What stops a training: before the weights change, with the samples named."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file

from speccompile.errors import TrainingError
from speccompile.train.divergence_guard import FACTOR, PATIENCE, SHOWN, DivergenceGuard
from tests.train.toy_training import Toy, ToyWeigh, run, texts


def broken(tmp_path, scale, *, step=7, accumulate=1, **keys):
    """Return a training in which a step's loss is another one; the message it ends with, and its student."""
    student = Toy()
    weigh = ToyWeigh(student, 8)
    weigh.before[step] = scale
    with pytest.raises(TrainingError) as caught:
        run(tmp_path, student=student, weigh=weigh, save_every=0, accumulate=accumulate, **keys)
    return str(caught.value), student


def listed(samples):
    return "its samples: " + ", ".join(str(each) for each in samples)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_before_the_weights_change(tmp_path, bad):
    message, student = broken(tmp_path, lambda part: bad)
    assert message.startswith(f"step 7: the loss is {bad}, expected a finite one; {listed(texts(7, 0, 1, 8))}; ")
    kept = load_file(tmp_path / "checkpoints/latest/learner.safetensors")
    assert json.loads((tmp_path / "checkpoints/latest/state.json").read_text())["step"] == 7
    assert all(torch.equal(value, kept[name]) for name, value in student.state_dict().items() if name in kept)


def test_the_part_is_named_that_has_it(tmp_path):
    message, _ = broken(tmp_path, lambda part: math.nan if part == 1 else 1.0, accumulate=4)
    assert listed(texts(7, 1, 4, 8)) + ";" in message


def test_a_gradient_that_is_no_number_stops_as_well(tmp_path):
    student = Toy()
    weigh = ToyWeigh(student, 8)

    def poison(part):
        student.hidden.weight.register_hook(lambda gradient: gradient * math.nan)
        return 1.0

    weigh.before[3] = poison
    with pytest.raises(TrainingError, match=r"step 3: the norm of the gradient is nan, expected a finite one; its sam"):
        run(tmp_path, student=student, weigh=weigh, save_every=0)
    before = load_file(tmp_path / "checkpoints/latest/learner.safetensors")
    assert all(torch.equal(value, student.state_dict()[name]) for name, value in before.items())


def test_a_batch_that_weighs_nothing_is_named(tmp_path):
    student = Toy()

    class Weightless(ToyWeigh):
        def __call__(self, *at):
            weighed = super().__call__(*at)
            return type(weighed)(weighed.total * 0, weighed.weight * (at[0] != 2), {})

    weigh = Weightless(student, 8)
    with pytest.raises(TrainingError, match=r"step 2: the batch's weights add up to 0, expected some token that is le"):
        run(tmp_path, student=student, weigh=weigh)


def test_a_loss_that_explodes_stops_and_leaves_what_was_good(tmp_path):
    """Train with a rate of 300 for AdamW: weights of some tenths become hundreds. The kept checkpoint is an earlier
    one."""
    with pytest.raises(
        TrainingError, match=r"the loss explodes: it was .* in the last steps, expected at most .*its s"
    ):
        run(tmp_path, save_every=0, learning_rate=300.0, warmup=0)
    state = json.loads((tmp_path / "checkpoints/latest/state.json").read_text())
    assert state["step"] <= 1
    assert all(
        value.abs().max() < 400 for value in load_file(tmp_path / "checkpoints/latest/learner.safetensors").values()
    )


def test_a_training_that_exploded_does_so_again_where_it_goes_on(tmp_path):
    student = Toy()
    weigh = ToyWeigh(student, 8)
    for step in range(8, 20):
        weigh.before[step] = lambda part: 100.0
    with pytest.raises(TrainingError) as first:
        run(tmp_path, student=student, weigh=weigh, save_every=0)
    again = Toy()
    once_more = ToyWeigh(again, 8)
    once_more.before = weigh.before
    with pytest.raises(TrainingError) as second:
        run(tmp_path, student=again, weigh=once_more, save_every=0)
    assert str(first.value) == str(second.value)
    assert str(first.value).startswith(f"step {8 + PATIENCE - 1}: the loss explodes")


def see(losses, watch=None):
    """Return the step at which a row of losses stops a training, or None."""
    watch = watch or DivergenceGuard(None)
    for step, loss in enumerate(losses):
        try:
            watch.see_loss(step, [loss * 2], [2.0])
        except TrainingError:
            return step
    return None


@pytest.mark.parametrize(
    ("losses", "step"),
    [
        ([8.0] * 5 + [7, 6, 5, 4, 3, 2] + [2.5] * 20, None),  # a good one
        ([8.0, 500, 600, 700, 800, 900], 5),  # from the first step on
        ([8.0] + [20.0] * 50, None),  # worse than guessing, and within the factor: it may come down
        ([8.0, *([2.0] * 10), *([9.0] * 5)], 15),  # all that was learnt is lost
        ([8.0, *([2.0] * 10), *([9.0] * 4), 2.0, *([9.0] * 4)], None),  # spikes
        ([0.01] * 10 + [0.5] * 10, None),  # so near zero batches differ by more
        ([0.9] * 10 + [1.0] * 50, None),  # total variation is never above 1
        ([0.5] * 10 + [1.6] * 5, 14),
    ],
)
def test_what_counts_as_an_explosion(losses, step):
    assert see(losses) == step


def test_the_watch_goes_on_where_it_was():
    losses = [8.0, *([2.0] * 10), *([9.0] * 5)]
    first, second = DivergenceGuard(None), DivergenceGuard(None)
    assert see(losses[:13], first) is None
    second.load(json.loads(json.dumps(first.state())))
    assert see(losses[13:], second) == 2
    assert not second.is_stable
    assert second.limit == max(8.0, FACTOR * 2.0)


def test_many_samples_are_named_in_part():
    watch = DivergenceGuard(lambda step, part, parts: range(100))
    with pytest.raises(TrainingError, match=rf", {SHOWN - 1} and {100 - SHOWN} more; the weights are those before"):
        watch.see_loss(4, [math.nan], [1.0])
