"""Prompt files, one JSON object a line: prompts, or questions with turns as in Spec-Bench, MT-Bench and SPEED-Bench.

Keys that are not needed for generation are ignored. Media that are not read are refused: without them the prompt would
be a different one.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from speccompile.errors import PromptError
from speccompile.machine.plain_files import read_plain

FORMS = '{"prompt": "text"} or {"token_ids": [1, 2, 3]}'

QUESTION = '{"question_id": 81, "category": "writing", "turns": ["text", ..]}'

SOUND = "audio"
GIVEN = {
    "source": {"source_language": "source_language", "target_language": "target_language"},
    SOUND: {"language": "source_language"},
}
"""Key of a line for a target with an encoder -> its keys about languages, each with an option of `Bundle.generate`."""
GIVEN_FORMS = '{"source": "text"} or {"audio": "talk.wav", "language": "en"}'

IMAGES = "images"
"""Key of the pictures of a prompt, for a target that sees."""
IMAGE_FORM = '{"prompt": "text", "images": ["one.png", ..]}'

_ALONE = {"prompt", "token_ids", "turns", "messages"}
"""Keys beside which those of `GIVEN` say something else."""

MT_BENCH = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
"""Categories of MT-Bench (Zheng et al. 2023), which Spec-Bench (Xia et al. 2024) treats as one task."""

SPEED_BENCH = "sub_category"
"""Key that only SPEED-Bench (Abramovich et al. 2026) has. Some of its categories have names of MT-Bench's."""

UNRESOLVED = "FULL BENCHMARK DATA SHOULD BE FETCHED"
"""Beginning of turns in the published SPEED-Bench whose text belongs to another dataset."""

PLAIN = "prompts"
"""Group of prompts that are no questions."""

SHOWN = 80
"""Maximum number of characters of an invalid line in a message."""

_KEYS = {"question_id", "category", "turns"}

_MEDIA = re.compile(r"(?:input_)?(image|video|audio)s?(?:_url|_path|_file)?")
"""Names of keys and types of message parts that hold no text."""

T = TypeVar("T")


@dataclass(frozen=True)
class Question:
    """One conversation. Each turn continues it; a prompt is a single turn.

    category: as in the file, None for a prompt. Only prompts may be token ids. speed_bench: whether it is of
    SPEED-Bench, whose categories are separate tasks. given: key of its text, if that is a source, or the path of a
    sound. languages: names and values of a generation's options. images: paths of the pictures of a prompt.
    """

    turns: tuple[str | list[int], ...]
    category: str | None = None
    speed_bench: bool = False
    given: str = "prompt"
    languages: tuple[tuple[str, str], ...] = ()
    images: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """Return the task of Spec-Bench, or "prompts" for a prompt: the key by which results are grouped."""
        if self.category is None:
            return PLAIN
        return "mt_bench" if self.category in MT_BENCH and not self.speed_bench else self.category


def read_prompts(path: Path) -> list[str | list[int]]:
    """Return the prompts of a file in order, each as text or as token ids; skip blank lines.

    Raise PromptError, with the line's number, for a file that is missing, empty or not in this form.
    """
    return _read(path, _prompt)


def read_questions(path: Path) -> list[Question]:
    """Return the questions and prompts of a file in order, like `read_prompts`.

    A question is a line of Spec-Bench's or MT-Bench's question.jsonl, or of SPEED-Bench written as such lines, whose
    questions have texts as ids. Lines for targets with an encoder are sources and sounds, see `GIVEN`; a prompt may
    have pictures, see `IMAGE_FORM`. A relative path is relative to the file's folder.
    """
    return _read(path, _question)


def _read(path: Path, parse: Callable[[str, Path, int], T]) -> list[T]:
    try:
        text = read_plain(path).decode("utf-8-sig")
    except (FileNotFoundError, IsADirectoryError) as error:
        found = "it is a folder" if isinstance(error, IsADirectoryError) else "nothing lies there"
        raise PromptError(
            f"received the prompts file '{path}', expected a file: {found}",
            hint=f"write one prompt a line: {FORMS}",
        ) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise _wrong(path, line, "bytes that are not UTF-8", "text", "save the file as UTF-8") from None
    # Not splitlines: JSON text may hold U+2028 and similar characters unescaped.
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise PromptError(f"{path}: received no prompts, expected one a line", hint=f"add lines such as {FORMS}")
    return [parse(line, path, number) for number, line in lines]


def _prompt(line: str, path: Path, number: int) -> str | list[int]:
    data = _json(line)
    _refuse_media(data, path, number)
    match data:
        case {"prompt": _, "token_ids": _}:
            raise _wrong(path, number, "a prompt and token ids", "one of the two", "remove one of the two keys")
        case {"prompt": str(prompt)}:
            return _checked(prompt, path, number)
        case {"token_ids": [*ids]} if all(map(_is_token_id, ids)):
            if ids:
                return ids
            raise _wrong(path, number, "no token ids", "one token id or more", "remove the line or add ids")
    hint = "write each line as one JSON object with one of the two keys"
    if isinstance(data, dict) and "turns" in data:
        hint = "questions with turns are for `speccompile bench` and `compare`: write their first turns as prompts"
    raise _wrong(path, number, _shortened(line), FORMS, hint)


def _question(line: str, path: Path, number: int) -> Question:
    data = _json(line)
    if isinstance(data, dict) and not data.keys() & _ALONE and (given := data.keys() & GIVEN.keys()):
        return _given(data, sorted(given), path, number)
    if isinstance(data, dict) and data.get(IMAGES) and "turns" not in data:
        return _shown(data, path, number)
    if not isinstance(data, dict) or "turns" not in data:
        return Question((_prompt(line, path, number),))
    _refuse_media(data, path, number)
    match data:
        case {"category": str(category), "turns": [_, *_] as turns} if (
            category and data.keys() >= _KEYS and all(isinstance(turn, str) for turn in turns)
        ):
            said = tuple(_resolved(_checked(turn, path, number), path, number) for turn in turns)
            return Question(said, category, SPEED_BENCH in data or isinstance(data["question_id"], str))
    hint = "a question has these keys, and one turn or more"
    raise _wrong(path, number, _shortened(line), QUESTION, hint)


def _given(data: dict[str, Any], keys: list[str], path: Path, number: int) -> Question:
    """Return the question of a line with a source or a sound."""
    if len(keys) > 1:
        raise _wrong(path, number, " and ".join(keys), "one of them", "write them as two lines")
    (key,) = keys
    value, options = data[key], GIVEN[key]
    if not isinstance(value, str):
        expected = "the path of a file" if key == SOUND else "text"
        raise _wrong(path, number, f"{key}: {_shortened(json.dumps(value))}", expected, f"write it as {GIVEN_FORMS}")
    value = _checked(value, path, number)
    for name in (name for name in options if not isinstance(data.get(name, ""), str)):
        received = f"{name}: {_shortened(json.dumps(data[name]))}"
        raise _wrong(path, number, received, "the name of a language", 'write a name such as "de"')
    languages = tuple((option, data[name]) for name, option in options.items() if name in data)
    return Question((str(path.parent / value) if key == SOUND else value,), given=key, languages=languages)


def _shown(data: dict[str, Any], path: Path, number: int) -> Question:
    """Return the question of a prompt with pictures."""
    images, prompt = data[IMAGES], _prompt(json.dumps({key: data[key] for key in data if key != IMAGES}), path, number)
    if not isinstance(images, list) or not all(isinstance(each, str) and each for each in images):
        received = f"{IMAGES}: {_shortened(json.dumps(images))}"
        raise _wrong(path, number, received, "a list of paths", f"write it as {IMAGE_FORM}")
    if not isinstance(prompt, str):
        raise _wrong(path, number, f"token ids and {IMAGES}", "a prompt beside them", f"write it as {IMAGE_FORM}")
    return Question((prompt,), images=tuple(str(path.parent / each) for each in images))


def _refuse_media(data: Any, path: Path, number: int) -> None:
    """Raise PromptError for a line with an image, a video or a sound: under a separate key, or as a part of a message,
    as in chat formats."""
    if isinstance(data, list):
        for each in data:
            _refuse_media(each, path, number)
    if not isinstance(data, dict):
        return
    for key, value in data.items():
        named = value if key == "type" and isinstance(value, str) else key
        if (found := _MEDIA.fullmatch(named)) and value:
            raise _wrong(
                path, number, f"'{named}'", f"text or token ids alone: no {found[1]} is read",
                "of a multimodal model the text decoder alone is compiled: give prompts of text",
            )  # fmt: skip
        _refuse_media(value, path, number)


def _json(line: str) -> Any:
    """Return the value of a line, or None if it is no JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _shortened(line: str) -> str:
    received = line.strip()
    return received if len(received) <= SHOWN else f"{received[:SHOWN]}..."


def _checked(prompt: str, path: Path, number: int) -> str:
    if not prompt:
        raise _wrong(path, number, "an empty prompt", "text", "remove the line or add text")
    try:
        prompt.encode()
    except UnicodeEncodeError:
        hint = "remove the lone surrogate (an escape from \\ud800 to \\udfff without its other half)"
        raise _wrong(path, number, "text that is not Unicode", "text that UTF-8 can hold", hint) from None
    return prompt


def _resolved(turn: str, path: Path, number: int) -> str:
    if not turn.startswith(UNRESOLVED):
        return turn
    raise _wrong(
        path, number, "a turn of SPEED-Bench that stands for another dataset's text", "that text",
        "prepare the benchmark with its own prepare_data.py, then write it as lines of JSON",
    )  # fmt: skip


def _is_token_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _wrong(path: Path, line: int, received: str, expected: str, hint: str) -> PromptError:
    return PromptError(f"{path}, line {line}: received {received}, expected {expected}", hint=hint)
