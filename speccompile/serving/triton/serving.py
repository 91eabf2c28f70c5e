"""Answer requests round by round, in batches of at most the bundle's size."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from speccompile.errors import SpeccompileError
from speccompile.progress import LOGGER
from speccompile.runtime import Bundle, Generation
from speccompile.runtime.generation import SequenceState
from speccompile.serving.triton.requests import Client, ParsedRequest, read, start


class CancelledError(SpeccompileError):
    """The client has cancelled the request."""


def answer(bundle: Bundle, clients: Sequence[Client]) -> None:
    """Send every client its answer or an error. Return when all have theirs; raise nothing."""
    asked = []
    for client in clients:
        try:
            asked.append(read(client, bundle))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            client.fail(error)
    for group in _groups(asked, bundle.manifest.batch_size):
        _Answers(bundle, group).run()


def _groups(asked: Sequence[ParsedRequest], most: int) -> Iterator[list[ParsedRequest]]:
    """Yield groups of requests that can run in one batch, in order of arrival."""
    left = list(asked)
    while left:
        group = [each for each in left if each.shared == left[0].shared][:most]
        yield group
        left = [each for each in left if each not in group]


class _Answers:
    """Answers of one generation."""

    def __init__(self, bundle: Bundle, group: Sequence[ParsedRequest]) -> None:
        self._bundle, self._group = bundle, group
        self._open = dict(enumerate(group))
        """Requests without their last response, by batch slot."""
        self._sent = [(0, 0)] * len(group)
        """Numbers of text pieces and tokens sent to each client."""

    def run(self) -> None:
        try:
            batch = start(self._bundle, self._group)
            for asked, row in zip(self._group, batch.rows, strict=True):
                row.decodes_every_round = row.decodes_every_round or (asked.stream and row.stream is not None)
            with closing(batch.run()) as rounds:
                for _ in rounds:
                    for number in list(self._open):
                        self._send(number, batch.rows[number], batch)
                    if not self._open:
                        break
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            for asked in self._open.values():
                asked.client.fail(error)

    def _send(self, number: int, row: SequenceState, batch: Any) -> None:
        """Send the output of a round to the client of a sequence."""
        asked = self._open[number]
        if not row.is_active:
            del self._open[number]
            asked.client.send(self._last(number, row, batch.generations()[number]), final=True)
        elif asked.client.cancelled():
            del self._open[number]
            LOGGER.info("a request was cancelled after %d tokens", len(row.token_ids))
            asked.client.fail(CancelledError("the request was cancelled"))
        elif asked.stream:
            piece = self._new(number, row)
            if piece["text_output"] != [""] or row.stream is None:
                self._sent[number] = len(row.pieces), len(row.token_ids)
                asked.client.send(piece, final=False)

    def _new(self, number: int, row: SequenceState) -> dict[str, Sequence[Any]]:
        pieces, tokens = self._sent[number]
        return {"text_output": ["".join(row.pieces[pieces:])], "output_ids": row.token_ids[tokens:]}

    def _last(self, number: int, row: SequenceState, generation: Generation) -> dict[str, Sequence[Any]]:
        return self._new(number, row) | {
            "finish_reason": [generation.finish_reason],
            "num_input_tokens": [generation.prompt_tokens],
            "num_output_tokens": [len(generation.token_ids)],
            "generation": [json.dumps(generation.to_json(), ensure_ascii=False)],
        }
