"""Rows that come and go at any time, beside others at any stage: each gets the tokens and the log-probabilities that it
gets alone. Over a toy engine that fails the test when a row is read that was never committed, or another text's."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import pytest

from speccompile.bundle.sampling import GREEDY, SamplingParams
from speccompile.contract import Graph
from speccompile.runtime import Bundle
from speccompile.runtime.generation import SequenceState
from tests.light.fake_bundle import toy_bundle, toy_manifest
from tests.light.forced_lengths import ForcedLengths, forced_lengths
from tests.light.toy_engine import ToyEngine

CAPACITY = 64
LETTERS = 5
"""So few that texts begin alike."""

KINDS = {
    "chain": {},
    "chain, fused": {"fused": True},
    "static": {"tree": "static"},
    "dynamic, fused": {"tree": "dynamic", "fused": True},
    "taps": {"features": True},
    "taps, fused": {"features": True, "fused": True},
    "pairs": {"features": True, "pairs": True},
    "pairs, fused": {"features": True, "pairs": True, "fused": True},
    "states": {"carried": True},
    "states, fused": {"carried": True, "fused": True},
    "states, pairs": {"carried": True, "features": True, "pairs": True},
    "sampling": {"sampling": True},
    "sampling, static, fused": {"sampling": True, "tree": "static", "fused": True},
    "drawn": {"sampling": True, "sample": True},
    "drawn, static": {"sampling": True, "sample": True, "tree": "static"},
    "drawn, static, fused": {"sampling": True, "sample": True, "tree": "static", "fused": True},
}


@dataclass
class Request:
    """What is asked, and what came of it."""

    prompt: list[int]
    room: int
    sampling: SamplingParams
    logprobs: bool
    speculative: bool
    adaptive: bool
    row: SequenceState = field(init=False)
    cancelled: bool = False

    def begin(self) -> SequenceState:
        self.row = SequenceState(self.prompt, self.room, CAPACITY, (), None, self.sampling, self.logprobs)
        return self.row


def requests(dice: Random, count: int, kind: dict[str, object]) -> Iterator[Request]:
    for number in range(count):
        prompt = [dice.randrange(LETTERS) for _ in range(dice.randrange(1, 24))]
        sampling = GREEDY
        if "sampling" in kind and dice.random() < 0.8:
            sampling = SamplingParams(dice.choice([0.0, 1.0]), repetition_penalty=dice.choice([1, 1.3]), seed=number)
        yield Request(prompt, dice.randrange(1, 20), sampling, *(dice.random() < share for share in (0.4, 0.8, 0.7)))


class Server:
    """Does whatever may be done, in random order."""

    def __init__(self, bundle: Bundle, dice: Random, wanted: list[Request]) -> None:
        self.loop, self.dice, self.waiting = bundle._loop, dice, wanted
        self.held: dict[int, list[int]] = {slot: [] for slot in range(bundle.manifest.batch_size)}
        """Of free slots, what their caches hold."""
        self.running: dict[int, Request] = {}
        self.reused = self.copied = 0

    def run(self) -> None:
        while self.waiting or self.running:
            self.dice.choice([self.admit, self.admit, self.read, self.read, self.decode, self.decode, self.leave])()
            for slot in [slot for slot, request in self.running.items() if not request.row.is_active]:
                self.release(slot)

    def admit(self) -> None:
        if not self.waiting or not self.held:
            return
        slot, request = self.dice.choice(list(self.held)), self.waiting.pop()
        if self.running and self.loop.supports_prefix_reuse and self.dice.random() < 0.3:
            source = self.dice.choice(list(self.running))
            self.loop.copy(source, slot)
            self.held[slot] = self.running[source].row.all_token_ids[: self.loop._slots[source].committed_length]
            self.copied += 1
        held, reuse = self.held.pop(slot), 0
        if self.loop.supports_prefix_reuse and self.dice.random() < 0.8:
            if self.dice.random() < 0.5:
                request.prompt[: len(held)] = held[: len(request.prompt)]
            while reuse < min(len(held), len(request.prompt) - 1) and held[reuse] == request.prompt[reuse]:
                reuse += 1
            self.reused += reuse
        self.running[slot] = request
        options = {"speculative": request.speculative, "adaptive": request.adaptive, "reuse": reuse}
        assert self.loop.admit(slot, request.begin(), **options) <= reuse

    def read(self) -> None:
        unread = [slot for slot in self.running if not self.loop.is_prefilled(slot)]
        if unread:
            slot, most = self.dice.choice(unread), self.dice.choice([None, 1, 3, 50])
            assert self.loop.prefill(slot, most) > 0

    def decode(self) -> None:
        decoding = {
            slot: len(each.row.token_ids) for slot, each in self.running.items() if self.loop.is_prefilled(slot)
        }
        self.loop.decode()
        assert all(len(self.running[slot].row.token_ids) > before for slot, before in decoding.items())

    def leave(self) -> None:
        if self.running and self.dice.random() < 0.1:
            slot = self.dice.choice(list(self.running))
            self.running[slot].cancelled = True
            self.release(slot)

    def release(self, slot: int) -> None:
        request, (tokens, read) = self.running.pop(slot), self.loop.release(slot)
        assert tokens == request.row.all_token_ids[: len(tokens)]
        assert read <= len(tokens)
        self.held[slot] = tokens


def alone(request: Request, **kind: object) -> SequenceState:
    """Return the same of a bundle that does nothing else."""
    bundle, row = toy_bundle(max_length=CAPACITY, **kind), request.begin()
    for _ in bundle._loop.generate([row], request.speculative):
        pass
    return row


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 25), marks=pytest.mark.sweep("more orders"))])
@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "whole"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_row_gets_what_it_gets_alone(kind, ranges, seeds):
    reused = copied = 0
    for seed in seeds:
        dice = Random(seed)
        bundle = toy_bundle(
            ranges=ranges, max_length=CAPACITY, batch_size=4, prefill_chunk=dice.randrange(2, 9), **kind
        )
        bundle.engine.compares = True
        if seed % 3:
            policy = forced_lengths(bundle, [dice.randrange(1, 6) for _ in range(7)])
            assert isinstance(policy, ForcedLengths)
            bundle._loop.drafting.policy = policy
        asked = list(requests(dice, 12, kind))
        server = Server(bundle, dice, list(asked))
        server.run()
        reused, copied = reused + server.reused, copied + server.copied
        for request in asked:
            row, expected = request.row, alone(request, **kind)
            count = len(row.token_ids)
            assert request.cancelled or row.finish_reason == expected.finish_reason
            assert row.token_ids == expected.token_ids[: count if request.cancelled else None]
            assert row.logprobs == (expected.logprobs and expected.logprobs[:count])
    assert bool(reused and copied) == ("carried" not in kind)


class OtherShapes(ToyEngine):
    """Has its states in shapes of its own, as engines of TensorRT have the tokens."""

    def host_view(self, buffer: str, shape: tuple[int, ...]) -> np.ndarray:
        return self._arrays.setdefault((buffer, shape), np.zeros(shape, self._dtypes[buffer]))


def test_a_copy_has_the_states_as_the_engine_has_them():
    made = toy_manifest(batch_size=2)

    def reshaped(graph: Graph) -> Graph:
        inputs = (replace(each, shape=(*each.shape, 1)) if each.role == "state" else each for each in graph.inputs)
        return replace(graph, inputs=tuple(inputs))

    entry = replace(made.engines[0], graphs=tuple(map(reshaped, made.engines[0].graphs)))
    engine = OtherShapes(made)
    bundle = Bundle(made, engine, entry, None, None)
    tensors = [each for graph in entry.graphs for each in graph.inputs if each.role == "state"]
    states = [engine.host_view(each.buffer, each.concrete_shape({"batch": 2})) for each in tensors]
    assert states
    for state in states:
        state[0] = 7
    bundle._loop.copy(0, 1)
    assert all((state == 7).all() for state in states)
