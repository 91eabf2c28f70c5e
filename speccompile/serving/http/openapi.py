"""OpenAPI description of the server: `python -m speccompile.serving.http.openapi` writes openapi.json."""

import json
from pathlib import Path
from typing import Any

from speccompile import __version__
from speccompile.bundle.manifest import DECODINGS
from speccompile.runtime.audio.reader import TRANSCRIBE
from speccompile.serving.http.audio import FIELDS, FORMATS, TRANSCRIPTIONS_URL, TRANSLATE, TRANSLATIONS_URL
from speccompile.serving.http.fields import (
    CHAT,
    CHAT_URL,
    COMPLETION,
    COMPLETIONS_URL,
    DETOKENIZE,
    TOKENIZE,
    UNSUPPORTED,
)
from speccompile.serving.http.schema import Schema

FILE = Path(__file__).with_name("openapi.json")


def _object(required: str = "", /, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split()}


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_TEXT, _COUNT, _FLAG, _WORDS = ({"type": kind} for kind in ("string", "integer", "boolean", ["string", "null"]))
# OpenAPI 3.1 has no word for the items of a stream: as in OpenAI's own description, the schema is that of one event.
_EVENT = _object("data", event=_TEXT, data={**_TEXT, "description": "A chunk as JSON; the last one is [DONE]."})
_REASON = {"enum": ["stop", "length", "tool_calls", None]}
_ANYTHING: dict[str, Any] = {"type": ["object", "null"]}

_ANSWER = {"id": _TEXT, "created": _COUNT, "model": _TEXT, "usage": {"anyOf": [_ref("Usage"), {"type": "null"}]},
           "metrics": {**_ANYTHING, "description": "How it went, as vLLM names it; of a single choice."}}  # fmt: skip
_CHOICE = {"index": _COUNT, "finish_reason": _REASON, "logprobs": _ANYTHING}

SCHEMAS: dict[str, Schema] = {
    "Error": _object("error", error=_object("message type param code", message=_TEXT, type=_TEXT, param=_WORDS,
                                            code=_WORDS)),
    "Usage": _object("prompt_tokens completion_tokens total_tokens", prompt_tokens=_COUNT, completion_tokens=_COUNT,
                     total_tokens=_COUNT, prompt_tokens_details=_object(cached_tokens=_COUNT),
                     completion_tokens_details=_object(accepted_prediction_tokens=_COUNT,
                                                       rejected_prediction_tokens=_COUNT)),
    "ChatCompletion": _object(
        "id object created model choices usage", object={"enum": ["chat.completion"]}, **_ANSWER,
        choices=_array(_object("index finish_reason logprobs message", **_CHOICE,
                               message=_object("role content", role={"enum": ["assistant"]}, content=_WORDS)))),
    "Completion": _object(
        "id object created model choices usage", object={"enum": ["text_completion"]}, **_ANSWER,
        choices=_array(_object("index finish_reason logprobs text", **_CHOICE, text=_TEXT))),
    "Drafts": _object(
        "draft_tokens accepted_tokens spans", draft_tokens=_COUNT, accepted_tokens=_COUNT,
        spans=_array(_object("text draft", text=_TEXT, draft=_FLAG))),
    "Model": _object("id object created owned_by", id=_TEXT, object={"enum": ["model"]}, created=_COUNT, owned_by=_TEXT,
                     max_model_len=_COUNT),
    "Bundle": _object(
        "model chat system_prompt text images decoding drafting_method draft_tokens draft_depth speculative "
        "max_model_len",
        model=_TEXT, chat=_FLAG, system_prompt=_FLAG, text=_FLAG, images=_FLAG, decoding={"enum": [*DECODINGS]},
        drafting_method=_WORDS, draft_tokens=_COUNT, draft_depth=_COUNT, speculative=_FLAG, max_model_len=_COUNT),
    "Models": _object("object data", object={"enum": ["list"]}, data=_array(_ref("Model"))),
    "Tokens": _object("count max_model_len tokens", count=_COUNT, max_model_len=_COUNT, tokens=_array(_COUNT),
                      token_strs=_array(_WORDS)),
    "Text": _object("prompt", prompt=_TEXT),
    "Transcript": _object("text usage", text=_TEXT, usage=_object("type seconds")),
    "Health": _object("status", status={"enum": ["loading", "ready", "draining", "failed"]}),
    "Version": _object("version", version=_TEXT),
}  # fmt: skip
"""Schemas of responses. These may have further fields."""

_ERRORS = {
    400: "The request is wrong, or asks for what this model cannot do.",
    401: "No API key, or none that is known.",
    404: "There is no such model.",
    408: "The request did not come in time.",
    413: "The body is too large.",
    415: "The body is no application/json.",
    429: "Too much waits; Retry-After says for how long.",
    431: "The line and headers of the request are too large.",
    500: "The server failed.",
    503: "The model is being opened, or the server is closing.",
    504: "The request took longer than this server allows.",
}


def document() -> dict[str, Any]:
    """Return the whole description: OpenAPI 3.1."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "speccompile serve", "version": __version__,
                 "description": "A bundle behind OpenAI's API. Fields that are not named here are ignored, but for "
                 f"{', '.join(UNSUPPORTED)}: of those, values that ask for anything are refused with 400."},
        "paths": {
            CHAT_URL: {"post": _asking("chat", CHAT, "ChatCompletion", streams=True)},
            COMPLETIONS_URL: {"post": _asking("completions", COMPLETION, "Completion", streams=True)},
            TRANSCRIPTIONS_URL: {"post": _hearing("transcriptions", TRANSCRIBE)},
            TRANSLATIONS_URL: {"post": _hearing("translations", TRANSLATE)},
            "/v1/models": {"get": _getting("models", "Models", 401, 503)},
            "/v1/models/{name}": {"get": _getting("model", "Model", 401, 404, 503) | {"parameters": [
                {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}]}},
            "/bundle": {"get": _getting("bundle", "Bundle", 401, 503)},
            "/tokenize": {"post": _asking("tokenize", TOKENIZE, "Tokens")},
            "/detokenize": {"post": _asking("detokenize", DETOKENIZE, "Text")},
            "/health": {"get": _getting("health", "Health") | {"responses": {
                "200": _response("It takes requests.", "Health"), "503": _response("It does not.", "Health")}}},
            "/metrics": {"get": {"operationId": "metrics", "security": [], "responses": {
                "200": {"description": "Prometheus' text.", "content": {"text/plain": {"schema": _TEXT}}},
                "503": _response(_ERRORS[503], "Error")}}},
            "/version": {"get": _getting("version", "Version") | {"security": []}},
        },
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }  # fmt: skip


def _asking(name: str, body: Schema, answer: str, *, streams: bool = False) -> dict[str, Any]:
    """Return an operation with a request body."""
    found = _response("The answer.", answer)
    if streams:
        found["content"]["text/event-stream"] = {"schema": _EVENT}
    errors = {str(status): _response(says, "Error") for status, says in _ERRORS.items()}
    request = {"required": True, "content": {"application/json": {"schema": body}}}
    return {"operationId": name, "requestBody": request, "responses": {"200": found} | errors}


def _hearing(name: str, task: str) -> dict[str, Any]:
    """Return an operation with a form that holds a sound."""
    known = {
        "file": {**_TEXT, "contentMediaType": "application/octet-stream"},
        "response_format": {"enum": [*FORMATS]},
        "timestamp_granularities[]": _array({"enum": ["segment"]}),
        "stream": {"enum": ["true", "false"]},
    }
    form = _object("file", **{field: known.get(field, _TEXT) for field in FIELDS[task]})
    found = _asking(name, form, "Transcript", streams=True)
    found["requestBody"]["content"] = {"multipart/form-data": {"schema": form}}
    found["responses"]["200"]["content"]["text/plain"] = {"schema": _TEXT}
    return found


def _getting(name: str, answer: str, *errors: int) -> dict[str, Any]:
    found = {str(status): _response(_ERRORS[status], "Error") for status in errors}
    return {"operationId": name, "responses": {"200": _response("It.", answer)} | found}


def _response(says: str, schema: str) -> dict[str, Any]:
    return {"description": says, "content": {"application/json": {"schema": _ref(schema)}}}


def written() -> str:
    """Return the content of the file."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(written(), encoding="utf-8")
