"""Responses in OpenAI's form, complete and in chunks."""

import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from speccompile.runtime import Generation
from speccompile.serving.http.errors import cancelled_error
from speccompile.serving.http.requests import ParsedRequest
from speccompile.serving.http.text_offsets import TextOffsets
from speccompile.serving.http.tokens import TokenTexts
from speccompile.serving.http.tools import to_json
from speccompile.serving.http.usage import final_usage, metrics, usage
from speccompile.serving.scheduler import OutputDelta
from speccompile.serving.scheduler.draft_spans import DraftSpans

if TYPE_CHECKING:
    from speccompile.bundle import Manifest

Logprobs = tuple[Sequence[int], Sequence[float] | None, Sequence[Sequence[tuple[int, float]]] | None]
"""Tokens, their log-probabilities, and the most probable tokens at each position."""

_IMPOSSIBLE = -9999.0
"""OpenAI's value for a log-probability that JSON cannot express."""


class ResponseBuilder:
    """Builder of the response to one request. Choice i * sequences + j is the j-th sequence of the i-th prompt."""

    def __init__(self, request: ParsedRequest, model: str, manifest: "Manifest", texts: TokenTexts) -> None:
        self.request, self.drafts = request, manifest.tokens
        self._texts = texts
        self._head = {
            "id": f"{'chatcmpl' if request.chat else 'cmpl'}-{uuid.uuid4().hex}",
            "object": "chat.completion" if request.chat else "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._offsets = self._text_offsets() if request.logprobs is not None and not request.chat else []
        self._spans = self._draft_spans() if request.drafts else []
        self._new_tokens = 0
        self._prompt_tokens = sum(map(len, request.prompts))

    def full(self, generations: Sequence[Generation]) -> dict[str, Any]:
        """Return the response with all choices in order. Raise RequestError if one was cancelled or timed out."""
        for each in generations:
            _check_finished(each)
        choices = [self._choice(index, each) for index, each in enumerate(generations)]
        found = self._head | {"choices": choices} | self._ending(generations)
        return found | ({"prompt_token_ids": self.request.prompts[0]} if self.request.token_ids else {})

    def first_chunks(self) -> list[dict[str, Any]]:
        """Return the first chunks of a stream: the role, or with echo the prompt."""
        chunks = []
        for index in range(self.request.choices):
            if self.request.chat:
                chunks.append(self._chunk(index, {"delta": {"role": "assistant", "content": ""}}))
            elif self.request.echo is not None:
                chunks.append(self._chunk(index, {"text": self._echo(index)}))
        if self.request.token_ids and chunks:
            chunks[0]["prompt_token_ids"] = self.request.prompts[0]
        return chunks

    def chunks(self, index: int, piece: OutputDelta) -> list[dict[str, Any]]:
        """Return the stream's chunks for a delta of one choice. Raise RequestError if it was cancelled or timed out."""
        self._new_tokens += len(piece.token_ids)
        ended = piece.generation
        chunks = []
        if piece.text or (piece.token_ids and self._sends_tokens):
            tokens = (piece.token_ids, piece.logprobs, piece.top_logprobs)
            parts: dict[str, Any] = {"logprobs": self._logprobs(index, tokens, ended)}
            if self.request.token_ids:
                parts["token_ids"] = piece.token_ids
            said = "" if self.request.tools else piece.text  # it may become a tool call, which is known only at its end
            if self._spans:
                parts["drafts"] = self._spans[index].read(piece, said)
            written = {"delta": {"content": said}} if self.request.chat else {"text": said}
            chunks.append(self._chunk(index, written | parts))
        if ended is not None:
            _check_finished(ended)
            last, reason = self._message(ended)
            if self.request.tools:
                calls = [{"index": number} | call for number, call in enumerate(last.get("tool_calls", ()))]
                chunks.append(self._chunk(index, {"delta": last | ({"tool_calls": calls} if calls else {})}))
            nothing: dict[str, Any] = {"delta": {}} if self.request.chat else {"text": ""}
            chunks.append(self._chunk(index, nothing | {"finish_reason": reason}))
        return chunks

    def last_chunks(self, generations: Sequence[Generation]) -> list[dict[str, Any]]:
        """Return the last chunks of a stream: the usage, if requested."""
        if not self.request.usage:
            return []
        return [self._head | {"object": self._chunk_object, "choices": []} | self._ending(generations)]

    @property
    def _sends_tokens(self) -> bool:
        """Return whether chunks say something of tokens that have no text yet."""
        return self.request.logprobs is not None or self.request.token_ids or self.request.drafts

    def _draft_spans(self) -> list[DraftSpans]:
        return [DraftSpans(self._texts.tokenizer, self._prompt(index)) for index in range(self.request.choices)]

    def _text_offsets(self) -> list[TextOffsets]:
        starts = (len(self._echo(index)) for index in range(self.request.choices))
        return [TextOffsets(self._texts, self._prompt(index), start) for index, start in enumerate(starts)]

    def _prompt(self, index: int) -> list[int]:
        return self.request.prompts[index // self.request.sequences]

    @property
    def _chunk_object(self) -> str:
        return "chat.completion.chunk" if self.request.chat else "text_completion"

    def _echo(self, index: int) -> str:
        return "" if self.request.echo is None else self.request.echo[index // self.request.sequences]

    def _chunk(self, index: int, parts: dict[str, Any]) -> dict[str, Any]:
        choice = {"index": index, "logprobs": None, "finish_reason": None} | parts
        found: dict[str, Any] = self._head | {"object": self._chunk_object, "choices": [choice]}
        if self.request.usage:
            so_far = usage(self._prompt_tokens, self._new_tokens)
            found["usage"] = so_far if self.request.continuous_usage else None
        return found

    def _choice(self, index: int, generation: Generation) -> dict[str, Any]:
        tokens = (generation.token_ids, generation.logprobs, generation.top_logprobs)
        said, reason = self._message(generation)
        choice: dict[str, Any] = {"index": index, "finish_reason": reason}
        choice["logprobs"] = self._logprobs(index, tokens, generation)
        if self.request.token_ids:
            choice["token_ids"] = generation.token_ids
        if self.request.chat:
            return choice | {"message": {"role": "assistant", "refusal": None} | said}
        return choice | {"text": self._echo(index) + said["content"]}

    def _message(self, generation: Generation) -> tuple[dict[str, Any], str]:
        """Return the content and tool calls of a message, and its finish reason."""
        text, reason = generation.text or "", finish_reason(generation)
        said, calls = self.request.tools.read(text) if self.request.tools else (text, [])
        if not calls:
            return {"content": text}, reason
        return {"content": said or None, "tool_calls": [to_json(call) for call in calls]}, "tool_calls"

    def _ending(self, generations: Sequence[Generation]) -> dict[str, Any]:
        """Return the usage and, for a single sequence, its metrics."""
        found = {"usage": final_usage(generations, self.request.sequences)}
        return found | ({"metrics": metrics(generations[0], self.drafts)} if len(generations) == 1 else {})

    def _logprobs(self, index: int, found: Logprobs, ended: Generation | None) -> dict[str, Any] | None:
        if self.request.logprobs is None:
            return None
        tokens, logprobs, tops = found
        assert logprobs is not None, "log-probabilities were asked for"
        tops = tops or [[]] * len(tokens)
        if self.request.chat:
            each = zip(tokens, logprobs, tops, strict=True)
            content = [
                self._entry(token, logprob) | {"top_logprobs": [self._entry(*other) for other in top]}
                for token, logprob, top in each
            ]
            return {"content": content, "refusal": None}
        most = None if ended is None else len(self._echo(index)) + len(ended.text or "")
        return self._columns(tokens, logprobs, tops) | {"text_offset": self._offsets[index].take(tokens, most)}

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        written = self._texts[token]
        return {"token": written.text, "logprob": max(logprob, _IMPOSSIBLE), "bytes": written.data}

    def _columns(
        self, tokens: Sequence[int], logprobs: Sequence[float], tops: Sequence[Sequence[tuple[int, float]]]
    ) -> dict[str, Any]:
        """Return the log-probabilities in the form of /v1/completions, without the offsets."""
        texts = [self._texts[token].text for token in tokens]
        best = [{self._texts[token].text: max(each, _IMPOSSIBLE) for token, each in top} for top in tops]
        return {
            "tokens": texts,
            "token_logprobs": [max(each, _IMPOSSIBLE) for each in logprobs],
            "top_logprobs": best if self.request.logprobs else None,
        }


def finish_reason(generation: Generation) -> str:
    """Return the finish reason in OpenAI's words, which have none for a full context."""
    return "length" if generation.finish_reason == "capacity" else generation.finish_reason


def _check_finished(generation: Generation) -> None:
    if generation.finish_reason in ("cancelled", "timeout"):
        raise cancelled_error(generation.finish_reason, len(generation.token_ids))
