"""Tasks on the body of a request. Each gives bytes, so that it can run in another process."""

import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from speccompile.machine.system import process_sizes
from speccompile.runtime.constraints import Constraint
from speccompile.runtime.images.encoder import LowDetail
from speccompile.serving.http import prompts
from speccompile.serving.http.errors import RequestError
from speccompile.serving.http.fields import DETOKENIZE, TOKENIZE, validate
from speccompile.serving.http.images import read_pictures, shown_messages
from speccompile.serving.http.json_text import dumps, parse
from speccompile.serving.http.requests import (
    ParsedRequest,
    TokenizedBody,
    chat_fields,
    chat_request,
    completion_fields,
    completion_request,
    with_adapter,
    with_default_speculative,
    with_model_name,
)

if TYPE_CHECKING:
    from speccompile.serving.http.reading.limited_bundle import LimitedBundle

CHAT, COMPLETION, TOKENIZED, DETOKENIZED = "chat", "completion", "tokenize", "detokenize"
_MOST_GRAMMAR = 128 * 2**20
"""Maximum bytes of a compiled grammar: every running request may hold one in the server's memory."""
_MOST_STEP = 0.05
"""Maximum processor seconds of one step of a grammar: all requests of the batch wait for it in every round."""


@dataclass(frozen=True)
class Reading:
    """Reading of bodies for one served model. name: of the model; speculative: default of requests that do not set
    it."""

    bundle: "LimitedBundle"
    name: str
    speculative: bool = True

    def request(self, task: str, data: bytes) -> ParsedRequest:
        """Return the request in a body. Raise RequestError, as all methods do."""
        return self.finished(task, self._tokenized(task, data))

    def checked(self, task: str, data: bytes) -> bytes:
        """Return the tokenized body as JSON, once all of the request has been read, and the memory that its grammar
        took."""
        body = self._tokenized(task, data)
        before = process_sizes().get("VmRSS", 0)
        constraint = self.finished(task, body).options.get("constraint")
        size = process_sizes().get("VmRSS", 0) - before
        if constraint is not None:
            _check_cost(constraint, size)
        images = [_written(each) for each in body.images]
        return dumps({"fields": body.fields, "prompts": body.prompts, "images": images, "grammar_bytes": size})

    def finished(self, task: str, body: TokenizedBody) -> ParsedRequest:
        """Return the request of a tokenized body."""
        body = body._replace(fields=with_default_speculative(body.fields, speculative=self.speculative))
        asked = (chat_request if task == CHAT else completion_request)(body, self.bundle)
        if body.images and self.bundle.vision is not None:  # decoded here, not where the event loop waits
            pictures = body.pictures or self.bundle.vision.pictures(body.images)
            asked = replace(asked, options=asked.options | {"images": pictures})
        return with_adapter(asked, self.name)

    def tokens(self, data: bytes) -> bytes:
        """Return the answer of /tokenize."""
        body = self._json(data)
        shown = shown_messages(body, self.bundle.vision)
        fields = validate(body if shown is None else shown.rest, TOKENIZE)
        if ("prompt" in fields) == ("messages" in fields):
            raise RequestError("received a prompt and messages, or neither, expected one of them", param="prompt")
        if "messages" in fields:
            if shown is not None and self.bundle.vision is not None:
                shown = read_pictures(shown, self.bundle.vision)
            tokens = prompts.chat_prompt(fields, self.bundle, shown=shown)
        else:
            tokens = prompts.encode(fields["prompt"], self.bundle, fields.get("add_special_tokens", True))
        found = {"count": len(tokens), "max_model_len": self.bundle.manifest.max_length, "tokens": tokens}
        if fields.get("return_token_strs"):
            found["token_strs"] = [prompts.require_tokenizer(self.bundle).id_to_token(token) for token in tokens]
        return dumps(found)

    def text(self, data: bytes) -> bytes:
        """Return the answer of /detokenize."""
        fields = validate(self._json(data), DETOKENIZE)
        return dumps({"prompt": prompts.decode(fields["tokens"], self.bundle)})

    def task(self, name: str) -> Callable[[bytes], bytes]:
        """Return a task by its name."""
        if name == TOKENIZED:
            return self.tokens
        if name == DETOKENIZED:
            return self.text
        return lambda data: self.checked(name, data)

    def _tokenized(self, task: str, data: bytes) -> TokenizedBody:
        return (chat_fields if task == CHAT else completion_fields)(self._json(data), self.bundle)

    def _json(self, data: bytes) -> Any:
        return with_model_name(parse(data), self.name)


def _written(image: "bytes | LowDetail") -> dict[str, Any]:
    is_low = isinstance(image, LowDetail)
    return {"low": is_low, "file": b64encode(image.source if isinstance(image, LowDetail) else image).decode()}


def read_image(written: dict[str, Any]) -> "bytes | LowDetail":
    """Return a picture of a body that `Reading.checked` has written."""
    file = b64decode(written["file"])
    return LowDetail(file) if written["low"] else file


def _check_cost(constraint: Constraint, size: int) -> None:
    """Raise RequestError for a grammar that takes too many bytes, or whose steps take too long. Here is its first step:
    llguidance's limits bound the others."""
    matcher = constraint.matcher(())
    start = time.process_time()
    matcher.mask()
    matcher.forced_tokens(1)
    seconds = time.process_time() - start
    if size > _MOST_GRAMMAR or seconds > _MOST_STEP:
        raise RequestError(
            f"received a constraint that takes {size >> 20} MiB, and {1000 * seconds:.0f} ms a token, expected at most "
            f"{_MOST_GRAMMAR >> 20} MiB and {1000 * _MOST_STEP:.0f} ms: the limits of one grammar",
            code="limit_exceeded", hint="ask for a simpler form",
        )  # fmt: skip
