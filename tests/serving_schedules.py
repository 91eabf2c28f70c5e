"""Random schedules of requests over a bundle: each must get what `Bundle.generate` gives it alone, bit for bit."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from speccompile.runtime import Bundle, Generation
from speccompile.serving.scheduler import Limits, Observer, OutputDelta, Request
from speccompile.serving.scheduler.latency import LatencyEstimates
from speccompile.serving.scheduler.scheduler import Scheduler
from tests.light.forced_lengths import force

SAME = ("token_ids", "text", "logprobs", "top_logprobs", "seed", "prompt_tokens", "mode")
PATIENCE = 5000
"""Ticks after which a schedule would never end."""


class Whims(LatencyEstimates):
    """Costs that have nothing to do with time: chunks of any size, copies now and then."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random

    def chunk(self, waiting: int, decoding: int, taken: int = 0) -> int | None:
        return self._random.choice([0, 1, 5] if taken else [None, 1, 2, 5, 16])

    def pays_to_copy(self, tokens: int) -> bool:
        return self._random.random() < 0.7


@dataclass
class Asked:
    """One request: when it comes, what it asks for, and after how many ticks it is cancelled."""

    tick: int
    prompt: list[int]
    options: dict[str, Any]
    terms: dict[str, Any]
    patience: int | None
    request: Request | None = field(default=None, repr=False)


class Alone:
    """What requests get when nothing is beside them. The bundle is at rest when it is asked."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self._known: dict[str, list[Generation]] = {}

    def __call__(self, prompt: Sequence[int], options: dict[str, Any]) -> list[Generation]:
        key = repr((list(prompt), sorted(options.items())))
        if key not in self._known:
            self._known[key] = self.bundle.generate_batch([prompt], **options)
        return self._known[key]


def draw(random: Random, alone: Alone, count: int, *, urgent: bool = False) -> list[Asked]:
    """Draw requests whose prompts often begin alike, or go on from what another got, at random times. urgent: they come
    one after the other, most of them with a higher priority than those before."""
    manifest = alone.bundle.manifest
    longest = manifest.max_length - 8
    bases = [[random.randrange(3, manifest.vocabulary_size) for _ in range(longest)] for _ in range(2)]
    made: list[Asked] = []
    for _ in range(count):
        base = random.choice(bases)
        prompt = base[: random.randint(1, longest // 2)]
        if made and random.random() < 0.3:
            earlier = random.choice(made)
            prompt = [*earlier.prompt, *random.choice(alone(earlier.prompt, earlier.options)).token_ids][:longest]
        if random.random() < 0.5:
            prompt = [*prompt[: longest - 3], *base[:3]]
        made.append(
            Asked(
                tick=random.choice([0, 1, 2, random.randrange(30)]),
                prompt=prompt,
                options=_options(random, alone.bundle),
                terms={"client": random.choice("ab"), "salt": random.choice(["", "", "x"]),
                       "reuse": random.random() < 0.9, "priority": (0, 0, -1, 2)[len(made) % 4]},
                patience=random.choice([None, None, None, random.randrange(8)]),
            )
        )  # fmt: skip
    for place, each in enumerate(made if urgent else []):
        each.tick, each.terms["priority"] = place, random.choice([0, -place, -place])
        each.options |= {"max_new_tokens": 14, "num_return_sequences": 1}
    return made


def _options(random: Random, bundle: Bundle) -> dict[str, Any]:
    options: dict[str, Any] = {
        "max_new_tokens": random.choice([1, 2, 7, 14]),
        "autoregressive": random.random() < 0.15,
        "adaptive": random.random() < 0.6,
        "logprobs": random.random() < 0.5,
        "top_logprobs": random.choice([0, 0, 3]),
        "ignore_eos": random.random() < 0.3,
    }
    if random.random() < 0.2:
        options["stop_token_ids"] = [random.randrange(bundle.manifest.vocabulary_size) for _ in range(20)]
    if bundle.text is not None and random.random() < 0.3:
        options["stop"] = random.sample(["a", "e", "1", " ", "th", "is"], 2)
    if bundle.manifest.decoding == "sampling" and random.random() < 0.7:
        options |= {
            "temperature": random.choice([0.0, 0.7, 1.5]),
            "seed": random.randrange(1000),
            "top_k": random.choice([0, 5, 40]),
            "top_p": random.choice([1.0, 0.9]),
            "repetition_penalty": random.choice([1.0, 1.3]),
            "frequency_penalty": random.choice([0.0, 0.0, 0.75]),
            "presence_penalty": random.choice([0.0, 0.0, -1.5]),
            "logit_bias": random.choice([None, None, {7: 2.5, 31: -100}]),
            "num_return_sequences": random.randint(1, bundle.manifest.batch_size),
        }
    return options


class Preemptions(Observer):
    """Counts the sequences that lost their slot."""

    count = 0

    def preempted(self) -> None:
        self.count += 1


def play(
    bundle: Bundle, seed: int, count: int = 12, alone: Alone | None = None, told: Preemptions | None = None
) -> list[Generation]:
    """Return one schedule, served and compared. Returns what the sequences got that were not cancelled. told: counts
    preemptions, of which there are many then."""
    random = Random(seed)
    asked = draw(random, alone or Alone(bundle), count, urgent=told is not None)
    if random.random() < 0.5 and bundle.speculative:
        force(bundle, [random.randint(1, bundle.manifest.tokens + 1) for _ in range(7)])
    limits = Limits(client_rows=random.choice([None, 1]), reuse=random.random() < 0.9, scheduling_policy="priority")
    made = Scheduler(bundle, limits, told)
    made._costs = Whims(random)
    for tick in range(PATIENCE):
        for each in asked:
            if each.tick == tick:
                each.request = made.submit(each.prompt, **each.terms, **each.options)
            if each.patience is not None and each.tick + each.patience == tick and each.request is not None:
                each.request.cancel()
        made.step()
        if made.is_idle and all(each.request is not None for each in asked):
            break
    else:
        raise AssertionError(f"schedule {seed} never ends")
    alone = alone or Alone(bundle)
    return [found for each in asked for found in compare(each, alone, seed)]


def compare(asked: Asked, alone: Alone, seed: int) -> list[Generation]:
    """Return a request that was served, with what it gets alone: all of it, or its beginning where it was cancelled."""
    assert asked.request is not None
    pieces = list(asked.request)
    whole = []
    for index, expected in enumerate(alone(asked.prompt, asked.options)):
        found = _joined([piece for piece in pieces if piece.index == index])
        where = f"schedule {seed}, sequence {index} of {asked}"
        if found.finish_reason == "cancelled":
            assert found.token_ids == expected.token_ids[: len(found.token_ids)], where
            continue
        for name in (*SAME, "finish_reason"):
            assert getattr(found, name) == getattr(expected, name), f"{name} of {where}"
        whole.append(found)
    return whole


def _joined(pieces: list[OutputDelta]) -> Generation:
    """Return the whole of one sequence, which its pieces make up."""
    generation = pieces[-1].generation
    assert generation is not None
    assert [piece.generation for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    if generation.text is not None:
        assert "".join(piece.text for piece in pieces) == generation.text
    for name in ("token_ids", "logprobs", "top_logprobs"):
        if getattr(generation, name) is not None:
            assert [value for piece in pieces for value in getattr(piece, name)] == getattr(generation, name)
    return generation
