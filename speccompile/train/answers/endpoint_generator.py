"""Responses by an endpoint with OpenAI's completions API that serves the target, such as vLLM, SGLang or llama.cpp.

Servers with `return_token_ids` (vLLM, SGLang) receive and return token ids. Text of other servers is tokenized again,
and servers that refuse token ids receive prompts as text; a prompt that does not survive this round trip fails.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from threading import Thread
from typing import Any, TypeVar

from speccompile.errors import CheckpointError, SpeccompileError, UsageError
from speccompile.plan.training_plan import TrainingPlan
from speccompile.progress import LOGGER
from speccompile.train.answers.generator import STOP, FailedResponse, GenerationRequest, Response, ended
from speccompile.train.answers.server import RefusedError, Server

EXACT = {"return_token_ids": True, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Fields of vLLM and SGLang in addition to OpenAI's: they return the generated token ids, and override the sampling
defaults of a checkpoint's generation_config.json."""

IDS, TEXT = "ids", "text"
T = TypeVar("T")
R = TypeVar("R")
Form = tuple[str, Mapping[str, Any]]
FORMS: tuple[Form, ...] = ((IDS, EXACT), (IDS, {}), (TEXT, {}))
"""Formats of a request: form of the prompt, and further fields. A run uses the first one that gets a response."""

UNSENDABLE = FailedResponse("its tokens are no text that would be tokenized to them again")
"""Failure of a prompt that cannot be sent as text."""


@contextmanager
def endpoint_maker(plan: TrainingPlan) -> Iterator["EndpointMaker"]:
    """Yield the generator of the plan's endpoint. Raise UsageError if it is missing, or its key is not in the
    environment."""
    data = plan.data
    if data.endpoint is None:
        raise UsageError(
            "train.data.answers.endpoint: received nothing, expected the address of a server",
            hint="for example http://localhost:8000/v1",
        )
    key = os.environ.get(data.endpoint_key or "")
    if data.endpoint_key and not key:
        raise UsageError(
            f"train.data.answers.key: received '{data.endpoint_key}', expected an environment variable that is set",
            hint=f"set {data.endpoint_key} to the endpoint's key, or leave the key out",
        )
    yield EndpointMaker(plan, Server(data.endpoint, key))


class EndpointMaker:
    """Generator with one request per prompt; the requests of a group are concurrent."""

    words = "the endpoint"

    def __init__(self, plan: TrainingPlan, server: Server) -> None:
        self._plan, self._server = plan, server
        self._form: Form | None = None

    def answer(self, group: Sequence[GenerationRequest]) -> list[Response | FailedResponse]:
        if self._form is not None:
            return self._in_form(self._form, group)
        found: list[Response | FailedResponse] = [UNSENDABLE] * len(group)
        for form in FORMS:
            answers = zip(found, self._in_form(form, group), strict=True)
            found = [old if new is UNSENDABLE else new for old, new in answers]  # keep failures of earlier formats
            if any(isinstance(each, Response) for each in found):
                LOGGER.info("answers: prompts go to %s as %s", self._server.url, form[0])
                self._form = form
                break
        return found

    def _in_form(self, form: Form, group: Sequence[GenerationRequest]) -> list[Response | FailedResponse]:
        """Send the requests concurrently. Tokenization stays in this thread: tokenizers are not thread-safe."""
        kind, fields = form
        bodies = [self._body(asked, kind) | dict(fields) for asked in group]
        return [
            self._read(found, asked) if isinstance(found, dict) else found
            for asked, found in zip(group, _at_once(self._post, bodies), strict=True)
        ]

    def _body(self, request: GenerationRequest, kind: str) -> dict[str, Any]:
        data = self._plan.data
        prompt = request.tokens if kind == IDS else self._text(request.tokens)
        body = {
            "prompt": prompt,
            "max_tokens": request.max_new_tokens,
            "temperature": request.temperature,
            "top_p": 1.0,
            "n": 1,
        }
        return body | {"seed": request.seed} | ({"model": data.endpoint_model} if data.endpoint_model else {})

    def _post(self, body: Mapping[str, Any]) -> dict[str, Any] | FailedResponse:
        """Send a request and return its first choice."""
        if body["prompt"] is None:
            return UNSENDABLE
        try:
            found = self._server.post(body)
        except RefusedError as error:
            return FailedResponse(str(error))
        match found:
            case {"choices": [{"text": str()} as choice, *_]}:
                return dict(choice)
        return FailedResponse(f"the endpoint answered {str(found)[:80]}, expected choices with a text")

    def _read(self, choice: Mapping[str, Any], request: GenerationRequest) -> Response | FailedResponse:
        """Convert a choice to token ids: the server's, or those of its text. A stop adds an end token."""
        size, ends = self._plan.target.facts.vocabulary_size, self._plan.target.facts.eos_token_ids
        given = choice.get("token_ids")
        ids = self._tokenizer(choice["text"], add_special_tokens=False)["input_ids"] if given is None else given
        if not isinstance(ids, list):
            return FailedResponse(f"the endpoint answered with token_ids {str(ids)[:80]}, expected a list")
        wrong = next((each for each in ids if not (isinstance(each, int) and 0 <= each < size)), None)
        if wrong is not None:
            raise SpeccompileError(
                f"{self._server.url}: received token id {wrong}, expected ids below {size}, the size of the target's "
                "vocabulary",
                hint="check that the endpoint serves the target, by its name in train.data.answers.model",
            )
        if choice.get("finish_reason") == STOP and ends and not (ids and ids[-1] in ends):
            ids = [*ids, choice["stop_reason"] if choice.get("stop_reason") in ends else ends[0]]
        if not ids:
            return FailedResponse("the endpoint answered without a token")
        return ended(ids, request.max_new_tokens, ends)

    def _text(self, tokens: Sequence[int]) -> str | None:
        """Return a text that the target's tokenizer encodes to exactly these tokens, or None. The tokenizer may add the
        first token."""
        for behind in (tokens, tokens[1:]):
            text: str = self._tokenizer.decode(behind, clean_up_tokenization_spaces=False)
            if list(self._tokenizer(text)["input_ids"]) == list(tokens):
                return text
        return None

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        folder = self._plan.target.folder
        if not self._plan.target.facts.tokenizer:
            raise CheckpointError(
                f"{folder}: received no tokenizer, and the endpoint answers in text, expected tokenizer.json",
                hint="serve the target by a server with return_token_ids, such as vLLM",
            )
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _at_once(act: Callable[[T], R], things: Sequence[T]) -> list[R]:
    """Call `act` on all things, one daemon thread each, which does not delay an interrupted process. Raise the error of
    the first failed thing."""
    found: dict[int, R | BaseException] = {}

    def work(place: int, thing: T) -> None:
        try:
            found[place] = act(thing)
        except BaseException as error:  # noqa: BLE001 - raised below
            found[place] = error

    threads = [Thread(target=work, args=each, daemon=True) for each in enumerate(things)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [_result(found[place]) for place in range(len(things))]


def _result(found: R | BaseException) -> R:
    if isinstance(found, BaseException):
        raise found
    return found
