"""Fields of requests as JSON Schema: supported ones, known ones that are refused, and unknown ones, which are
ignored."""

import math
from collections.abc import Mapping
from typing import Any

from speccompile.bundle.sampling import LARGEST_BIAS, MOST_BIASES, SAMPLING_OPTIONS, SamplingOption
from speccompile.progress import LOGGER
from speccompile.runtime.text.messages import ROLES
from speccompile.serving.http.errors import RequestError
from speccompile.serving.http.schema import Schema, check, first_problem, shown

CHAT_URL, COMPLETIONS_URL = "/v1/chat/completions", "/v1/completions"

MOST_LOGPROBS = 20
_LOGGED_FIELDS = 100
_logged: set[str] = set()


def _field(kind: str, says: str, **rules: Any) -> dict[str, Any]:
    """Return the schema of a field that may be null, which means absent."""
    return {"type": [kind, "null"], "description": says, **rules}


def _sampling_field(option: SamplingOption) -> dict[str, Any]:
    """Return the schema of a sampling option: its own range, where `option.http` has no other."""
    rules = {} if option.http and "exclusiveMinimum" in option.http else {"minimum": option.least}
    if math.isfinite(option.greatest):
        rules["maximum"] = option.greatest
    kind = "number" if option.kind == "number" else "integer"
    return {**_field(kind, option.help, **rules), **(option.http or {})}


def _list(items: Schema, **rules: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **rules}


_WORDS = {"type": "string", "minLength": 1, "maxLength": 1024}
_STOP = {
    "description": "Texts before which the answer ends.",
    "anyOf": [_WORDS, _list(_WORDS, maxItems=16), {"type": "null"}],
}

COMMON: dict[str, Schema] = {
    "model": _field("string", "One of /v1/models; left out, the one that is served."),
    "max_tokens": _field("integer", "New tokens at most.", minimum=1),
    **{name: _sampling_field(option) for name, option in SAMPLING_OPTIONS.items()},
    "logit_bias": _field(
        "object", "Token ids, as texts, and what is added to their logits, before penalties and temperature.",
        maxProperties=MOST_BIASES,
        additionalProperties={"type": "number", "minimum": -LARGEST_BIAS, "maximum": LARGEST_BIAS}),
    "n": _field("integer", "Answers to each prompt.", minimum=1, maximum=128),
    "stop": _STOP,
    "stop_token_ids": _field("array", "Tokens with which an answer ends.", items={"type": "integer", "minimum": 0},
                             maxItems=256),
    "ignore_eos": _field("boolean", "Go on behind the model's own end."),
    "min_tokens": _field("integer", "Above 0 only with ignore_eos, and without stop.", minimum=0),
    "stream": _field("boolean", "Send the answer as it comes, by server-sent events."),
    "stream_options": _field("object", "With stream.", properties={
        "include_usage": _field("boolean", "The last event has the usage, and no choices."),
        "continuous_usage_stats": _field("boolean", "With include_usage: every event has the usage so far.")}),
    "truncate_prompt_tokens": _field(
        "integer", "Read so many last tokens of each prompt; -1: as many as leave room for the new ones at most.",
        minimum=-1),
    "cache_salt": _field("string", "Only requests with the same one share what is kept of their prompts."),
    "priority": _field(
        "integer", "Lower numbers are served earlier, by a server with --scheduling-policy priority.",
        minimum=-(2**31), maximum=2**31 - 1),
    "speculative": _field("boolean", "false: one token a round, without drafts."),
    "return_token_ids": _field("boolean", "Token ids of the prompt and of every choice."),
    "return_drafts": _field(
        "boolean", "With stream: choices of chunks with tokens have `drafts`, the draft tokens that their round "
        "verified and accepted, and which parts of their text are accepted draft tokens: see the schema Drafts."),
}  # fmt: skip

_FORM: dict[str, Schema] = {
    "response_format": _field(
        "object", "The form of the answer, which a bundle with constraints: true imposes: text, json_object, or a "
        "schema at json_schema.schema.", required=["type"],
        properties={"type": {"enum": ["text", "json_object", "json_schema"]}, "json_schema": _field("object", "")}),
    "structured_outputs": _field(
        "object", "The same, as vLLM has it: one of json, regex, choice, grammar (Lark), json_object."),
    "guided_json": {"description": "The older name of structured_outputs.json.", "type": ["object", "string", "null"]},
    "guided_regex": _field("string", "Of structured_outputs.regex."),
    "guided_grammar": _field("string", "Of structured_outputs.grammar."),
    "guided_choice": _field("array", "Of structured_outputs.choice.", items={"type": "string"},
                            maxItems=2**16),
}  # fmt: skip

_NAME = {"type": "string", "minLength": 1, "maxLength": 256}
_FUNCTION = {"type": "object", "required": ["name"], "properties": {"name": _NAME, "parameters": _field("object", "")}}
_TOOL = {"type": "object", "required": ["type", "function"],
         "properties": {"type": {"enum": ["function"]}, "function": _FUNCTION}}  # fmt: skip
_TOOLS: dict[str, Schema] = {
    "tools": _field("array", "Functions that the model may call.", items=_TOOL, maxItems=128),
    "tool_choice": {
        "description": "auto, none, required, or a function: the last two need a bundle with constraints: true.",
        "anyOf": [{"enum": ["none", "auto", "required", None]}, {**_TOOL}],
    },
    "parallel_tool_calls": _field("boolean", "false: one call at most."),
}

_PART = {"type": "object", "required": ["type", "text"],
         "properties": {"type": {"enum": ["text"]}, "text": {"type": "string"}}}  # fmt: skip
_MEDIA = {
    ("image_url",): "but this model takes no images: expected text",
    ("image", "input_image"): "expected text, or image_url for an image",
    ("input_audio", "audio", "audio_url"): "but this model takes no audio: expected text",
    ("video_url", "video"): "but this model takes no videos: expected text",
    ("file", "input_file"): "but this model takes no files: expected text",
}
"""Types of parts, as OpenAI and others name them -> what is said about those that are left once images of a model that
sees are read."""
_MESSAGE = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"enum": list(ROLES)},
        "content": {"anyOf": [{"type": "string"}, _list(_PART), {"type": "null"}]},
    },
}
_CONVERSATION: dict[str, Schema] = {
    "messages": {"description": "The conversation.", **_list(_MESSAGE, minItems=1)},
    "add_generation_prompt": _field("boolean", "End the prompt where the model's answer begins; true by default."),
    "continue_final_message": _field("boolean", "Go on in the last message; add_generation_prompt must be false."),
    "chat_template_kwargs": _field("object", "More variables of the chat template."),
}
CHAT: Schema = {
    "type": "object",
    "required": ["messages"],
    "properties": _CONVERSATION | COMMON | _FORM | _TOOLS | {
        "max_completion_tokens": _field("integer", "New tokens at most; by default what the model has room for.",
                                        minimum=1),
        "logprobs": _field("boolean", "The log-probability of every token, at temperature 1."),
        "top_logprobs": _field("integer", "Of the most probable tokens at each place; with logprobs.",
                               minimum=0, maximum=MOST_LOGPROBS),
    },
}  # fmt: skip

_IDS = _list({"type": "integer", "minimum": 0}, minItems=1)
COMPLETION: Schema = {
    "type": "object",
    "required": ["prompt"],
    "properties": COMMON | _FORM | {
        "prompt": {
            "description": "A text, token ids, or a list of either.",
            "anyOf": [{"type": "string", "minLength": 1}, _list({"type": "string", "minLength": 1}, minItems=1,
                      maxItems=128), _IDS, _list(_IDS, minItems=1, maxItems=128)],
        },
        "max_tokens": _field("integer", "New tokens at most; 16 by default.", minimum=1),
        "logprobs": _field("integer", "The log-probability of every token, and of so many most probable ones.",
                           minimum=0, maximum=MOST_LOGPROBS),
        "echo": _field("boolean", "Begin the answer with the prompt; not with logprobs."),
        "best_of": _field("integer", "As n: no other number is taken.", minimum=1, maximum=128),
    },
}  # fmt: skip

TOKENIZE: Schema = {
    "type": "object",
    "properties": _CONVERSATION | {
        "model": COMMON["model"],
        "prompt": _field("string", "A text; or give messages."),
        "add_special_tokens": _field("boolean", "Those that the tokenizer puts around a text; true by default."),
        "return_token_strs": _field("boolean", "The tokens' own names as well."),
    },
}  # fmt: skip
DETOKENIZE: Schema = {
    "type": "object",
    "required": ["tokens"],
    "properties": {"model": COMMON["model"], "tokens": _list({"type": "integer", "minimum": 0})},
}

_NOTHING = {"enum": [None]}
_OFF = {"enum": [None, False]}

UNSUPPORTED: dict[str, Schema] = {
    "suffix": {"enum": [None, ""]},
    "modalities": {"type": ["array", "null"], "items": {"enum": ["text"]}},
    "audio": _NOTHING,
    "functions": _NOTHING,
    "function_call": {"enum": [None, "none"]},
    "web_search_options": _NOTHING,
    "use_beam_search": _OFF,
    "prompt_logprobs": {"enum": [None, False]},
    "prompt_embeds": _NOTHING,
    "include_stop_str_in_output": _OFF,
    "allowed_token_ids": _NOTHING,
    "bad_words": {"type": ["array", "null"], "maxItems": 0},
    "chat_template": _NOTHING,
    "documents": _NOTHING,
    "images": {"type": ["array", "null"], "maxItems": 0},  # of Ollama and others; here parts of messages
}
"""Fields of other servers -> the values that have no effect here. Other values are refused: ignoring them would
silently give a wrong answer."""


def validate(body: Any, schema: Schema) -> dict[str, Any]:
    """Return the fields that are set. Raise RequestError for an invalid field, or one that is known but not
    supported."""
    check(body, {"type": "object"})
    for name, harmless in UNSUPPORTED.items():
        if name in body and first_problem(body[name], harmless) is not None:
            raise RequestError(
                f"{name}: received {shown(body[name])}, which is not supported", param=name,
                code="unsupported_parameter", hint="leave it out",
            )  # fmt: skip
    _check_parts(body.get("messages"))
    check(body, schema)
    known = {*schema["properties"], *UNSUPPORTED}
    _log_unknown(body, known)
    return {name: value for name, value in body.items() if value is not None and name in known}


def _check_parts(messages: Any) -> None:
    """Raise RequestError for the first part of a message that is another medium than text."""
    for number, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        for index, part in enumerate(content if isinstance(content, list) else ()):
            kind = part.get("type") if isinstance(part, dict) else None
            said = next((said for kinds, said in _MEDIA.items() if isinstance(kind, str) and kind in kinds), None)
            if said is not None:
                where = f"messages[{number}].content[{index}].type"
                raise RequestError(
                    f"{where}: received {shown(kind)}, {said}", param=where, code="unsupported_value",
                    hint="leave the part out",
                )  # fmt: skip


def _log_unknown(body: Mapping[str, Any], known: set[str]) -> None:
    for name in body.keys() - known - _logged:
        if len(_logged) < _LOGGED_FIELDS:  # clients may send any number of names
            _logged.add(name)
            LOGGER.info("the field %.80r of a request is not known here, and ignored", name)
