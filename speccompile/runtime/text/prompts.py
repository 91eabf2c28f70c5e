"""Prompts as token ids: a text, a conversation, or ids that are checked."""

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any

from speccompile.bundle.manifest import Manifest
from speccompile.errors import PromptError
from speccompile.runtime.text.chat import Templates, apply_chat_template
from speccompile.runtime.text.messages import plain_messages
from speccompile.runtime.text.tokenizer import Tokenizer

Prompt = str | Sequence[int]
ChatTemplate = tuple[Templates, dict[str, str]]
"""A chat template, or several by name, and the special tokens that it may write."""

SHORTEN = "shorten it, or build the bundle with a larger cache.max_length"
TRUNCATE = (
    "shorten it, drop its first tokens with --truncate left (truncate='left'), or build the bundle with a larger "
    "cache.max_length"
)
"""Hints for a prompt that is too long, where nothing truncates it, and where an option does."""
WITHOUT_CHAT = "leave out --chat (chat=True)"
"""Hint for a text that a chat template does not take as a message."""

_LARGEST = 1 << 32
"""Ids of tokenizers are smaller."""

_LONGEST = 80
"""Maximum number of characters of a value in a message."""


def prompt_token_ids(
    prompt: Prompt | None, text: Tokenizer | None, template: ChatTemplate | None, *, chat: bool = False
) -> list[int]:
    """Return the token ids of a prompt. chat: write a text as a user's only message into the template.

    Raise PromptError if it is neither a text nor ids, and for a text without a tokenizer or chat template."""
    if not isinstance(prompt, str):
        return _integers(prompt)
    if chat:
        message = {"role": "user", "content": prompt}
        return conversation_token_ids([message], text, template, instead=WITHOUT_CHAT)
    ids = _tokenizer(text).encode(prompt)
    return ids if prompt else []  # a tokenizer may begin even an empty text with a token


def conversation_token_ids(
    messages: object,
    text: Tokenizer | None,
    template: ChatTemplate | None,
    variables: Mapping[str, Any] | None = None,
    *,
    instead: str = "give a text to generate",
) -> list[int]:
    """Return the token ids of a conversation, up to where the model's answer begins.

    messages: see `plain_messages`; variables: see `apply_chat_template`; instead: what to do without the template.
    Raise PromptError.
    """
    tokenizer = _tokenizer(text)
    written = templated(plain_messages(messages), template, variables, instead=instead)
    return tokenizer.encode(written, special_tokens=False)  # the template writes them itself


def templated(
    messages: Sequence[Mapping[str, Any]], template: ChatTemplate | None, variables: Mapping[str, Any] | None = None, *,
    instead: str = "give a text to generate",
) -> str:  # fmt: skip
    """Return the text of a conversation of plain messages. Raise PromptError as `conversation_token_ids`."""
    if template is None:
        raise PromptError("this bundle's tokenizer has no chat template", hint=instead)
    if not isinstance(variables, Mapping | None) or any(not isinstance(name, str) for name in variables or ()):
        raise PromptError(
            f"chat_template_kwargs: received {str(variables)[:_LONGEST]}, expected a mapping of names to values",
            hint='as in {"enable_thinking": False}',
        )
    return apply_chat_template(template[0], messages, template[1], variables=variables, instead=instead)


def check_token_ids(
    ids: Sequence[int], manifest: Manifest, text: Tokenizer | None, *, hint: str | None = SHORTEN
) -> None:
    """Raise PromptError for a prompt that is empty, too long, or not of the bundle's vocabulary. text: its tokenizer,
    which may have more tokens than the model has rows; hint: of the error for a prompt that is too long; None if it
    will be truncated."""
    if not ids:
        raise PromptError("the prompt is empty: expected at least one token", hint="give a text or token ids")
    size = manifest.vocabulary_size
    if min(ids) < 0 or max(ids) >= size:
        wrong = next(token for token in ids if not 0 <= token < size)
        raise PromptError(
            f"token id {wrong} is out of range: expected 0 to {size - 1}",
            hint=_without_row(wrong, text) or "tokenize the prompt with the target's own tokenizer",
        )
    if len(ids) > manifest.max_length and hint is not None:
        raise PromptError(
            f"the prompt has {len(ids)} tokens, more than this bundle's capacity of {manifest.max_length}",
            hint=hint,
        )


def _without_row(token_id: int, text: Tokenizer | None) -> str:
    """Return the hint for a token of the bundle's own tokenizer that the model has no row for, "" for another id."""
    token = None if text is None or not 0 <= token_id < _LARGEST else text.id_to_token(token_id)
    if token is None:
        return ""
    return f"it is {token!r} of this bundle's tokenizer, which the model has no row for: leave it out of the prompt"


def _integers(prompt: Any) -> list[int]:
    """Return token ids. Raise TypeError for a number that is not whole, PromptError for other values."""
    try:
        parts: Any = None if isinstance(prompt, bytes | bytearray | Mapping) else prompt  # whose parts may be numbers
        return [index(token) for token in parts]
    except TypeError as error:
        if isinstance(prompt, Iterable) and not any(
            isinstance(each, str | bytes | Mapping) for each in [prompt, *prompt]
        ):
            wrong = next(each for each in prompt if not hasattr(each, "__index__"))
            raise TypeError(f"the prompt's token id {wrong!r}: {error}") from None
        raise PromptError(
            f"received the prompt {str(prompt)[:_LONGEST]}, expected a text or token ids",
            hint="generate_batch takes several prompts, and chat messages",
        ) from None


def _tokenizer(text: Tokenizer | None) -> Tokenizer:
    if text is None:
        raise PromptError(
            "this bundle has no tokenizer, and the prompt is a text",
            hint="give token ids: --token-ids 1,2,3 ([1, 2, 3])",
        )
    return text
