"""Tokenize documents and compute their loss masks."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, NoReturn

import numpy as np
from jinja2 import TemplateError, TemplateSyntaxError

from speccompile.errors import RecipeError
from speccompile.index.chunking import batched_by_size
from speccompile.plan.sources import SourceFacts
from speccompile.plan.training_plan import PROMPTS, TEXT, DataPlan
from speccompile.recipe.training_data import marks_answers
from speccompile.train.data.documents import Chat, Document, Sound
from speccompile.train.data.rows import shortened, wrong
from speccompile.train.data.sounds import NUMBERS, name_sound

FIRST_GUESSED = 2
"""Position of the first draft token in a sample: the first anchor is token 1."""

_FAULTS = (
    TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError,
)  # fmt: skip
"""Exceptions that a chat template can raise."""

_CHARACTERS = 1 << 20
"""Characters of texts that all cores tokenize together."""

_PASSAGE = 1 << 16
"""Characters of a passage, which one core tokenizes."""

TOO_SHORT = "too short to guess anything in"
NOTHING_LEARNT = "with nothing to learn within the length"
NO_ROOM = "with a prompt that fills the length"
NO_ANSWER = "without an answer"
NO_TURN = "without a turn that is to be answered"


@dataclass
class DataStatistics:
    """Counts of prepared documents. learnt: tokens in loss masks. cut: truncated samples. skipped: reason -> count."""

    documents: int = 0
    texts: int = 0
    tokens: int = 0
    learnt: int = 0
    cut: int = 0
    skipped: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"skipped": dict(self.skipped)}

    @staticmethod
    def from_json(said: Mapping[str, Any]) -> "DataStatistics":
        return DataStatistics(**(dict(said) | {"skipped": Counter(said["skipped"])}))

    def __str__(self) -> str:
        """Return the counts as a message."""
        skipped = "".join(f", {count} skipped {reason}" for reason, count in sorted(self.skipped.items()))
        cut = f", {self.cut} of them cut" if self.cut else ""
        learnt = f" ({self.learnt} learnt)" if self.learnt else ""
        return f"{self.documents} documents read, {self.texts} texts of {self.tokens} tokens{learnt} kept{cut}{skipped}"


@dataclass(frozen=True)
class TokenizedSample:
    """Sample of a document. tokens int32 [T]; learnt bool [T]: the loss mask."""

    document: Document
    tokens: np.ndarray
    learnt: np.ndarray


class Tokenization:
    """Tokenization of documents to samples of at most `plan.length` tokens, or to prompts, with counts."""

    def __init__(self, tokenizer: Any, plan: DataPlan, vocabulary: int, source: SourceFacts | None = None) -> None:
        """tokenizer: of transformers; None if the target has none and the data is token ids. vocabulary: number of the
        target's tokens. source: of a target whose encoder reads the prompts, so that a response is a text of its
        own."""
        self.has_sources, self.hears = source is not None, source is not None and source.audio is not None
        self.languages = () if source is None else tuple(source.languages)
        self.tokenizer, self.plan, self.vocabulary, self.counts = tokenizer, plan, vocabulary, DataStatistics()
        self.before = [] if tokenizer is None else _put_before(tokenizer)

    def texts(self, documents: Iterable[Document]) -> Iterator[TokenizedSample]:
        """Yield the samples of documents. Raise RecipeError for tokens that the target does not have, and for
        conversations that the chat template rejects or in which it does not mark responses."""
        for document, ids in self._encoded(documents):
            chat = document.content if isinstance(document.content, Chat) else None
            if document.answer is not None:
                prompt = ids if chat is None else self._asked(document, chat)
                answer = self._answer(document, prompt)
                yield from self._kept(document, prompt + answer, [False] * len(prompt) + [True] * len(answer))
            elif chat is not None:
                ids, learnt = self._masked(document, chat)
                yield from self._kept(document, ids, learnt)
            else:
                yield from self._pieces(document, ids)

    def prompts(self, documents: Iterable[Document]) -> Iterator[TokenizedSample]:
        """Yield prompts for the target: prompts, turns of conversations, passages of texts with room for a response."""
        for document, ids in self._encoded(documents):
            if isinstance(document.content, Chat):
                found = [self._asked(document, turn) for turn in self._turns(document.content)]
            elif self.plan.kind == TEXT:
                found = self._parts(document, ids, self.plan.length - self.plan.max_new_tokens)
            else:
                found = [ids]
            if not found:
                self.counts.skipped[NO_TURN] += 1
            for prompt in found:
                if self._is_prompt(prompt, document):
                    yield TokenizedSample(document, np.asarray(prompt, np.int32), np.zeros(len(prompt), bool))

    def answered(self, document: Document, prompt: Sequence[int], answer: Sequence[int]) -> Iterator[TokenizedSample]:
        """Yield the sample of a prompt and the target's response, which is its loss mask."""
        self.counts.documents += document.is_first_part
        yield from self._kept(document, [*prompt, *answer], [False] * len(prompt) + [True] * len(answer))

    def _encoded(self, documents: Iterable[Document]) -> Iterator[tuple[Document, list[int]]]:
        """Yield documents with their token ids; the ids of conversations are empty."""
        is_text = self.plan.kind == TEXT
        for some in batched_by_size(map(self._readable, documents), _characters, _CHARACTERS):
            texts = [document.content for document in some if isinstance(document.content, str)]
            found = iter(self._ids(texts, special=not is_text))
            for document in some:
                self.counts.documents += document.is_first_part
                match document.content:
                    case str():
                        yield document, next(found)
                    case Chat():
                        yield document, []
                    case Sound() as sound:
                        yield document, name_sound(sound, self.languages)
                    case ids:
                        yield document, list(ids)

    def _readable(self, document: Document) -> Document:
        if isinstance(document.content, Sound) != self.hears:
            received, expected = ("a text", "a sound") if self.hears else ("a sound", "a text")
            hint = 'write {"audio": "talk.wav"}' if self.hears else "this target reads none"
            raise wrong(document.where, received, f"{expected}, as this target reads", hint)
        if isinstance(document.content, Sound):
            self._check_sound(document.content, document.where)
            return document if document.answer is None or self.tokenizer is not None else self._untold(document)
        if self.tokenizer is None and not (isinstance(document.content, tuple) and document.answer is None):
            return self._untold(document)
        return document

    def _untold(self, document: Document) -> NoReturn:
        raise wrong(
            document.where, "words", "token ids: the target has no tokenizer.json",
            'write {"token_ids": [1, 2, 3]}, or add the tokenizer to the target\'s folder',
        )  # fmt: skip

    def _check_sound(self, sound: Sound, where: str) -> None:
        """Raise RecipeError for a file that is not there, and for a language that the target does not know."""
        if not sound.path.is_file():
            raise wrong(where, f"the sound {sound.path}, which is no file", "the path of a sound's file", "correct it")
        if self.languages and sound.language not in self.languages:
            received = "no language" if sound.language is None else f"the language {shortened(sound.language)}"
            shown = ", ".join(sorted(self.languages)[:6]) + (", .." if len(self.languages) > 6 else "")
            raise wrong(where, received, f"one of the target's: {shown}", 'write {"audio": .., "language": "en"}')
        if sound.language is not None and not self.languages:
            raise wrong(
                where, f"the language {shortened(sound.language)}", "none: the target knows one", "leave it out"
            )

    def _ids(self, texts: list[str], *, special: bool) -> list[list[int]]:
        """Tokenize texts. With `special`, add special tokens; without, split long texts into passages for all cores."""
        parts = [[text] if special else _passages(text) for text in texts]
        if not texts:
            return []
        # verbose=False: a text may exceed the model's positions before it is cut.
        made = self.tokenizer(
            list(chain(*parts)), add_special_tokens=special, return_attention_mask=False, verbose=False
        )
        found = iter(made["input_ids"])
        return [list(chain(*islice(found, len(each)))) for each in parts]

    def _answer(self, document: Document, prompt: list[int]) -> list[int]:
        """Return the tokens of a response, tokenized together with its prompt unless a token spans both, with the
        target's end token."""
        assert document.answer is not None
        end = self.tokenizer.eos_token_id
        ending = [] if end is None else [end]
        if isinstance(document.content, str) and not self.has_sources:
            whole = self._ids([document.content + document.answer], special=True)[0]
            if whole[: len(prompt)] == prompt:
                return whole[len(prompt) :] + ending
        return self._ids([document.answer], special=False)[0] + ending

    def _pieces(self, document: Document, ids: list[int]) -> Iterator[TokenizedSample]:
        for piece in self._parts(document, ids, self.plan.length):
            yield from self._kept(document, piece, [True] * len(piece))

    def _parts(self, document: Document, ids: list[int], length: int) -> list[list[int]]:
        """Split a text into passages, each with the target's leading special tokens; an empty text is one passage."""
        before = self.before if isinstance(document.content, str) else []
        size = max(length - len(before), 1)
        return [[*before, *ids[start : start + size]] for start in range(0, len(ids), size)] or [[]]

    def _kept(self, document: Document, ids: Sequence[int], learnt: Sequence[bool]) -> Iterator[TokenizedSample]:
        tokens, mask = self._checked(ids, document), np.asarray(learnt, bool)
        length = self.plan.length
        if not mask[FIRST_GUESSED:length].any():
            self.counts.skipped[TOO_SHORT if mask.all() else NOTHING_LEARNT] += 1
            return
        self.counts.cut += len(tokens) > length
        made = TokenizedSample(document, tokens[:length], mask[:length])
        self.counts.texts += 1
        self.counts.tokens += len(made.tokens)
        self.counts.learnt += int(made.learnt.sum())
        yield made

    def _checked(self, ids: Sequence[int], document: Document) -> np.ndarray:
        """Return the ids as int32 [T]. Raise RecipeError for an id outside the target's vocabulary."""
        named = NUMBERS if self.hears else 0  # which are no tokens
        try:
            tokens = np.asarray(ids, np.int64)
            known = tokens[named:]
            outside = known[(known < 0) | (known >= self.vocabulary)]
        except OverflowError:
            outside = np.asarray([each for each in ids if not 0 <= each < self.vocabulary], object)
        if len(outside):
            raise wrong(
                document.where, f"the token id {outside[0]}", f"one of the target's, from 0 to {self.vocabulary - 1}",
                "give data with the tokens of this target: text is tokenised with its own tokenizer",
            )  # fmt: skip
        return tokens.astype(np.int32)

    def _is_prompt(self, prompt: list[int], document: Document) -> bool:
        self._checked(prompt, document)
        if not prompt or len(prompt) >= self.plan.length:
            self.counts.skipped[NO_ROOM if prompt else TOO_SHORT] += 1
            return False
        self.counts.texts += 1
        self.counts.tokens += len(prompt)
        return True

    def _turns(self, chat: Chat) -> list[Chat]:
        """Return the conversation up to each response, or only up to the last one."""
        roles = [message["role"] for message in chat.messages]
        ends = [
            end
            for end in range(1, len(roles) + 1)
            if roles[end - 1] != "assistant" and (end == len(roles) or roles[end] == "assistant")
        ]
        if self.plan.last_turn or self.plan.kind == PROMPTS:
            ends = ends[-1:]
        return [replace(chat, messages=chat.messages[:end]) for end in ends]

    def _asked(self, document: Document, chat: Chat) -> list[int]:
        return list(self._written(document, chat, add_generation_prompt=True)["input_ids"])

    def _masked(self, document: Document, chat: Chat) -> tuple[list[int], list[bool]]:
        made = self._written(document, chat, return_assistant_tokens_mask=True)
        mask = [bool(each) for each in made["assistant_masks"]]
        return list(made["input_ids"]), _last_run(mask) if self.plan.last_turn else mask

    def _written(self, document: Document, chat: Chat, **options: bool) -> Mapping[str, Any]:
        check_template(self.tokenizer, marks=False)
        try:
            return self.tokenizer.apply_chat_template(
                [dict(message) for message in chat.messages],
                tools=None if chat.tools is None else list(chat.tools),
                return_dict=True,
                tokenizer_kwargs={"verbose": False},
                **options,
            )
        except TemplateSyntaxError as error:
            raise RecipeError(
                f"train.data: received a chat template that cannot be read, line {error.lineno}: {error.message}",
                hint="correct it, or name another one under train.data.template",
            ) from error
        except _FAULTS as error:
            raise RecipeError(
                f"{document.where}: the chat template does not take this conversation: {shortened(str(error))}",
                hint="change the conversation, or leave it out",
            ) from error


def check_template(tokenizer: Any, *, marks: bool) -> None:
    """Raise RecipeError if the tokenizer has no chat template, or, with `marks`, if it does not mark responses."""
    template = tokenizer.chat_template
    if not template:
        raise RecipeError(
            "train.data: received conversations, expected a chat template in the target's tokenizer: it has none",
            hint="add chat_template.jinja to the target's folder, or give prompts or text",
        )
    if marks and not marks_answers(tokenizer.get_chat_template()):
        raise RecipeError(
            "train.data: the target's chat template does not mark answers: expected {% generation %} in it, and "
            "{% endgeneration %}, around what the assistant says",
            hint="put both tags into a copy of the template and name that under train.data.template, or have answers "
            "made: train.data.answers: bundle",
        )
    if marks and not tokenizer.is_fast:
        raise RecipeError(
            f"train.data: received {type(tokenizer).__name__}, expected a tokenizer with a tokenizer.json: no other "
            "says which tokens an answer has",
            hint="save the tokenizer with tokenizer.json, or have answers made: train.data.answers: bundle",
        )


def _put_before(tokenizer: Any) -> list[int]:
    """Return the special tokens that the tokenizer adds before a text, such as <s>."""
    plain = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    whole = list(tokenizer("a")["input_ids"])
    places = range(len(whole) - len(plain) + 1)
    return whole[: next((start for start in places if whole[start : start + len(plain)] == plain), 0)]


def _last_run(mask: list[bool]) -> list[bool]:
    """Return the mask reduced to its last run of True."""
    end = next((place + 1 for place in range(len(mask) - 1, -1, -1) if mask[place]), 0)
    start = next((place + 1 for place in range(end - 1, -1, -1) if not mask[place]), 0)
    return [start <= place < end for place in range(len(mask))]


def _passages(text: str) -> list[str]:
    """Split a text into passages that end with a line."""
    found, start = [], 0
    while len(text) - start > _PASSAGE:
        end = text.rfind("\n", start, start + _PASSAGE) + 1
        if end <= start:
            break
        found.append(text[start:end])
        start = end
    return [*found, text[start:]]


def _characters(document: Document) -> int:
    return len(document.content) if isinstance(document.content, str) else 1
