"""Prompt of a request as token ids."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from speccompile.errors import PromptError
from speccompile.runtime.images.conversations import mark_placeholders
from speccompile.runtime.text.chat import apply_chat_template
from speccompile.runtime.text.messages import plain_message
from speccompile.serving.http.errors import RequestError
from speccompile.serving.http.images import ShownMessages
from speccompile.serving.http.schema import shown
from speccompile.serving.http.tools import Tools

if TYPE_CHECKING:
    from speccompile.runtime.text.tokenizer import Tokenizer
    from speccompile.runtime.text_bundle import Texts

_SHORTEN = "shorten it, or let truncate_prompt_tokens: -1 drop its first tokens"


def chat_prompt(
    body: dict[str, Any], bundle: "Texts", tools: Tools | None = None, *, fits: bool = False,
    shown: ShownMessages | None = None,
) -> list[int]:  # fmt: skip
    """Return the token ids of a conversation in the bundle's chat template, with its tools. fits: refuse a text that is
    too long for the model before it is tokenized; shown: its messages with pictures, which are read. Raise
    RequestError."""
    text = require_tokenizer(bundle)
    try:
        written, mark = _chat_text(body, bundle, tools, shown)
        if fits:
            _check_bytes(written, bundle, "messages")
        if shown is not None and bundle.vision is not None:
            return bundle.vision.prompt(written, shown.pictures, special_tokens=False, mark=mark).ids
        return text.encode(written, special_tokens=False)  # the template writes them itself
    except PromptError as error:
        raise RequestError(str(error), param="messages") from error


def _chat_text(
    body: dict[str, Any], bundle: "Texts", tools: Tools | None, shown: ShownMessages | None
) -> tuple[str, str]:
    """Return the text of a conversation, and the mark inside placeholders that its users typed beside pictures."""
    if bundle.chat_template is None:
        raise RequestError("this model has no chat template", param="messages", hint="use /v1/completions")
    template, special_tokens = bundle.chat_template
    going_on = body.get("continue_final_message", False)
    opening = body.get("add_generation_prompt", not going_on)
    if going_on and opening:
        raise RequestError(
            "continue_final_message: received true, and add_generation_prompt is true as well, expected one of them",
            param="continue_final_message",
        )
    messages = [_plain(message, f"messages[{index}]") for index, message in enumerate(body["messages"])]
    variables = body.get("chat_template_kwargs", {}) | ({} if tools is None else {"tools": tools.declared})
    mark = ""
    if shown is not None and bundle.vision is not None:
        placeholders = bundle.vision.settings.placeholders
        (messages, variables), mark = mark_placeholders([shown.messages, variables], placeholders)
    written = apply_chat_template(template, messages, special_tokens, opening, variables)
    return (_until_end_of(str(messages[-1]["content"]).strip(), written) if going_on else written), mark


def text_prompts(body: dict[str, Any], bundle: "Texts", kept: int | None = None) -> list[list[int]]:
    """Return the token ids of every prompt of /v1/completions. kept: see `kept_tokens`. Raise RequestError for an
    invalid one."""
    if bundle.manifest.source is not None:  # that hears: others are not served
        hint = "use /v1/audio/transcriptions"
        raise RequestError("prompt: received a text, but this model hears", param="prompt", hint=hint)
    prompt = body["prompt"]
    prompts = prompt if isinstance(prompt, list) and not isinstance(prompt[0], int | float) else [prompt]
    return [_encoded(each, bundle, is_whole=kept is None)[-(kept or 0) :] for each in prompts]


def kept_tokens(body: dict[str, Any], bundle: "Texts", new: int) -> int | None:
    """Return how many last tokens of each prompt are read, by `truncate_prompt_tokens`; None for all. new: new tokens
    at most. Raise RequestError for 0, which would leave no prompt."""
    asked: int | None = body.get("truncate_prompt_tokens")
    if asked == 0:
        raise RequestError(
            "truncate_prompt_tokens: received 0, expected -1 or a number from 1 on", param="truncate_prompt_tokens",
            hint="leave it out to read the whole prompt",
        )  # fmt: skip
    return max(1, bundle.manifest.max_length - new) if asked == -1 else None if asked is None else int(asked)


def _encoded(prompt: str | Sequence[float], bundle: "Texts", *, is_whole: bool) -> list[int]:
    """Return the token ids of a prompt. is_whole: refuse one that is too long before any work."""
    if isinstance(prompt, str):
        if is_whole:
            _check_bytes(prompt, bundle, "prompt")
        return encode(prompt, bundle)
    if is_whole:
        check_length(prompt, bundle, "prompt")
    tokens = [int(token) for token in prompt]
    check_tokens(tokens, bundle.manifest.vocabulary_size, "prompt")
    return tokens


def encode(prompt: str, bundle: "Texts", special_tokens: bool = True) -> list[int]:
    """Return the token ids of a text. Raise RequestError for an invalid one."""
    try:
        return require_tokenizer(bundle).encode(prompt, special_tokens)
    except PromptError as error:
        raise RequestError(str(error), param="prompt") from error


def decode(tokens: Sequence[float], bundle: "Texts") -> str:
    """Return the text of token ids: of all that `encode` gives, though the model may lack some. Raise RequestError for
    an invalid one."""
    text, ids = require_tokenizer(bundle), [int(token) for token in tokens]
    check_tokens(ids, max(bundle.manifest.vocabulary_size, text.size), "tokens")
    return text.decode(ids)


def check_tokens(tokens: Sequence[int], size: int, field: str) -> None:
    """Raise RequestError with the first of token ids that is not below a size."""
    if tokens and not 0 <= min(tokens) <= max(tokens) < size:
        wrong = next(token for token in tokens if not 0 <= token < size)
        raise RequestError(f"{field}: token id {wrong} is out of range: expected 0 to {size - 1}", param=field)


def token_biases(given: Mapping[str, float], size: int, field: str) -> dict[int, float]:
    """Return numbers by token id, of a JSON object. Raise RequestError for the first key that is no token id below a
    size."""
    for key in given:
        if not re.fullmatch("0|[1-9][0-9]{0,9}", key) or int(key) >= size:
            raise RequestError(
                f"{field}: received the key {shown(key)}, expected token ids from 0 to {size - 1}", param=field
            )
    return {int(key): float(bias) for key, bias in given.items()}


def _check_bytes(text: str, bundle: "Texts", field: str) -> None:
    """Raise RequestError, before the text is tokenized, if it is longer than any text of as many tokens as the model
    takes."""
    most, size = require_tokenizer(bundle).most_bytes(bundle.manifest.max_length), len(text.encode())
    if most is not None and size > most:
        raise RequestError(
            f"This model's maximum context length is {bundle.manifest.max_length} tokens, which are {most} bytes of "
            f"text at most, and {field} has {size} bytes",
            param=field, code="context_length_exceeded", hint=_SHORTEN,
        )  # fmt: skip


def check_length(prompt: Sequence[float], bundle: "Texts", field: str) -> None:
    """Raise RequestError, in OpenAI's words, if the prompt leaves no capacity for a new token."""
    most = bundle.manifest.max_length
    if len(prompt) >= most:
        raise RequestError(
            f"This model's maximum context length is {most} tokens, and {field} has {len(prompt)}: no token would fit "
            "behind them",
            param=field,
            code="context_length_exceeded",
            hint=_SHORTEN,
        )


def require_tokenizer(bundle: "Texts") -> "Tokenizer":
    """Return the bundle's tokenizer. Raise RequestError if it has none."""
    if bundle.text is None:
        raise RequestError("this model has no tokenizer", hint="send token ids to /v1/completions")
    return bundle.text


def _plain(message: dict[str, Any], where: str) -> dict[str, Any]:
    """Return a message as templates know it. Raise RequestError that names the field, as the error's text does."""
    try:
        return plain_message(message, where)
    except PromptError as error:
        raise RequestError(str(error), param=str(error).partition(":")[0]) from error


def _until_end_of(content: str, written: str) -> str:
    """Return what a template wrote, cut after the last message's content."""
    found = written.rfind(content)
    if found < 0:
        raise RequestError(
            "continue_final_message: the chat template changes the last message, so that it cannot be continued",
            param="continue_final_message",
        )
    return written[: found + len(content)]
