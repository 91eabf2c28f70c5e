"""Prompts of multi-turn questions: each turn follows the earlier turns and the answers generated to them."""

from collections.abc import Sequence
from typing import Any

from speccompile.bundle.prompts import IMAGES, Question
from speccompile.errors import PromptError
from speccompile.measure.bench.sources import PROMPT, QuestionSources
from speccompile.runtime import Bundle
from speccompile.runtime.audio.mel import Features
from speccompile.runtime.text.chat import apply_chat_template
from speccompile.runtime.text.prompts import SHORTEN, ChatTemplate

PLAIN, TEMPLATE = "plain", "chat_template"
"""Formats of a conversation: one message per line, or the bundle's chat template."""


class ConversationPrompts:
    """Writer of the prompts of questions. A plain prompt, which has no category, stays as it is."""

    def __init__(self, bundle: Bundle, chat: ChatTemplate | None, max_new_tokens: int) -> None:
        """chat: the bundle's chat template; None for plain text. max_new_tokens: length of the longest answer."""
        self._bundle, self._chat, self._longest = bundle, chat, max_new_tokens
        self._sources = QuestionSources(bundle)

    @property
    def form(self) -> str:
        """Return `PLAIN` or `TEMPLATE`."""
        return TEMPLATE if self._chat else PLAIN

    def token_ids(self, question: Question, answers: Sequence[str] = ()) -> list[int] | Features:
        """Return the prompt of the turn after these answers; for a target with an encoder its source. Raise PromptError
        if the bundle cannot take it."""
        if question.given != PROMPT or self._bundle.manifest.source is not None:
            return self._sources.read(question)
        if question.images:
            seen = self._bundle._prompt(question.turns[0], chat=False, hint=SHORTEN, images=list(question.images))
            return seen.ids
        if question.category is None:
            return self._bundle.token_ids(question.turns[0])
        said = [str(turn) for turn in question.turns[: len(answers) + 1]]
        if self._chat is None:
            return self._bundle.token_ids("\n".join(_in_turns(said, answers)))
        text = self._bundle.text
        assert text is not None, "a bundle with a chat template has a tokenizer"
        template, special_tokens = self._chat
        messages = [
            {"role": ("user", "assistant")[index % 2], "content": content}
            for index, content in enumerate(_in_turns(said, answers))
        ]
        written = apply_chat_template(template, messages, special_tokens)
        return self._bundle.token_ids(text.encode(written, special_tokens=False))

    def options(self, question: Question) -> dict[str, Any]:
        """Return options of the generation of a question: its pictures, and languages, after `token_ids`."""
        pictures: dict[str, Any] = {IMAGES: list(question.images)} if question.images else {}
        return pictures | self._sources.languages(question)

    def check(self, question: Question) -> None:
        """Raise PromptError if a turn may leave no room for its answer. Earlier answers count at their longest."""
        if question.given != PROMPT or self._bundle.manifest.source is not None:
            self._sources.read(question)
            return
        most = self._bundle.manifest.max_length
        for turn in range(len(question.turns)):
            needed = len(self.token_ids(question, [""] * turn)) + turn * self._longest
            if needed >= most:
                before = f" and the answers before turn {turn + 1} may have" if turn else " has"
                raise PromptError(
                    f"the prompt{before} {needed} tokens, which leaves no room in this bundle's capacity of {most}",
                    hint="shorten it, ask for fewer new tokens, or build the bundle with a larger cache.max_length",
                )


def _in_turns(said: Sequence[str], answers: Sequence[str]) -> list[str]:
    """Return the messages in order: a turn, its answer, .., the last turn."""
    pairs = zip(said, answers, strict=False)
    return [*(text for pair in pairs for text in pair), said[-1]]
