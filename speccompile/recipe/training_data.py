"""Decide the training data from the section `train.data`, and check files, tokens and chat template before any work."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.facts import CHAT_TEMPLATE, TOKENIZER_CONFIG
from speccompile.compiler.checkpoints.json_files import read_json_object
from speccompile.drafters.target import NORM
from speccompile.errors import RecipeError
from speccompile.plan.plan import ModelPlan
from speccompile.plan.recipe_source import RecipeSource, format_value, one_of
from speccompile.plan.training_plan import (
    BUNDLE,
    CONVERSATIONS,
    ENDPOINT,
    GIVEN,
    KINDS,
    MAKERS,
    PROMPTS,
    TEXT,
    DataPlan,
)
from speccompile.recipe.training_files import JSON_LINES, TABLES, find_files, is_hub_name
from speccompile.recipe.training_schema import Answers, Data

_RECORDS = {"messages": CONVERSATIONS, "conversations": CONVERSATIONS, "prompt": PROMPTS, "text": TEXT}
"""Key of a record -> its kind of data."""
_LOOKED_AT = 1000
"""Number of first lines of a file whose token ids are checked before any work; the rest is checked when read."""
_GENERATION = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
"""Start of the assistant's tokens in a chat template, as transformers matches it."""
_ANSWER_KEYS = ("prompts", "temperature", "sampled", "max_new_tokens", "batch_size")
_ENDPOINT_KEYS = ("endpoint", "model", "key")

HELD_OUT = 0.02

_BYTES = {"float32": 4, "bfloat16": 2}


def decide_data(
    written: Data | None, target: ModelPlan, length: int, new_tokens: int, passages: int, origin: RecipeSource
) -> DataPlan:
    """Return the plan of the data. length, new_tokens: default lengths of a text and of an answer, at most the target's
    positions. passages: default number of prompts from plain texts, in which any passage can be a prompt.

    Raise RecipeError for missing files, and for data that the target's tokenizer or chat template cannot process.
    """
    if written is None or not written.files:
        key = "train.data" if written is None else "train.data.files"
        raise origin.refusal(key, "nothing", "training data", "for example `data: {kind: text, files: [docs]}`")
    names = _names(written.files, origin)
    kind = _kind(written, names, origin)
    found = find_files(names, kind)
    length = _length(written, target, length, origin)
    by, answers = _answers(written, kind, origin)
    new_tokens = _new_tokens(answers, min(new_tokens, length // 2), length, origin)
    template = _template(written, kind, by, target, origin)
    held_out = _held_out(written, origin)
    if kind != CONVERSATIONS and written.last_turn is not None:
        raise origin.refusal("train.data.last_turn", "a value", "it with kind conversations alone", "remove it")
    _check_tokens(kind, found.paths, target, origin)
    return DataPlan(
        kind=kind,
        files=names,
        answers=by,
        temperature=answers.temperature or 0.0,
        max_new_tokens=new_tokens,
        batch_size=answers.batch_size or 8,
        endpoint=answers.endpoint,
        endpoint_model=answers.model,
        endpoint_key=answers.key,
        length=length,
        held_out=held_out,
        features=_word("features", written.features, ("online", "disk"), origin),
        packing=_packing(written.packing, origin),
        last_turn=bool(written.last_turn),
        template=template,
        prompts=answers.prompts or (passages if kind == TEXT and by != GIVEN else None),
        sampled=answers.sampled or 1.0,
    )


def feature_bytes(tokens: int, taps: Sequence[str], hidden: int, precision: str) -> int:
    """Return the bytes of stored features of `tokens` tokens. precision: of activations. hidden: numbers of a tap. The
    output of the final norm is always stored, once."""
    return tokens * len({*taps, NORM}) * hidden * _BYTES[precision]


def _word(name: str, written: str | None, words: tuple[str, ...], origin: RecipeSource) -> str:
    """Return the value of a key under `train.data`, by default the first of the words. Raise RecipeError."""
    if written is None or written in words:
        return written or words[0]
    raise origin.refusal(
        f"train.data.{name}", format_value(written), one_of(words), f"set it to {words[0]}, or remove it"
    )


def _packing(written: str | None, origin: RecipeSource) -> str:
    if written == "packed":
        expected = "buckets: texts that share a row would see each other in the target's pass"
        hint = "remove it: texts of like lengths are put together, which leaves little padding"
        raise origin.refusal("train.data.packing", "'packed'", expected, hint)
    return _word("packing", written, ("buckets",), origin)


def _names(written: list[str], origin: RecipeSource) -> tuple[str, ...]:
    """Return absolute paths of files, folders and patterns, resolved from the recipe's folder; a Hub name unchanged."""
    paths = [origin.resolve(text).absolute() for text in written]
    if len(written) == 1 and is_hub_name(written[0]) and not paths[0].exists():
        return tuple(written)
    return tuple(map(str, paths))


def _kind(written: Data, names: tuple[str, ...], origin: RecipeSource) -> str:
    """Return the kind of data: as written, or by the keys of the first record; files without records are text."""
    if written.kind is not None:
        return _word("kind", written.kind, KINDS, origin)
    found = find_files(names, TEXT)
    if found.paths and not any(path.suffix.lower() in TABLES for path in found.paths):
        return TEXT
    first = next((path for path in found.paths if path.suffix.lower() in JSON_LINES), None)
    record = next(_records(first), (0, {}))[1] if first else {}
    kinds = {kind for key, kind in _RECORDS.items() if key in record}
    if len(kinds) == 1:
        return kinds.pop()
    hint = "for example `kind: conversations`"
    raise origin.refusal("train.data.kind", "nothing", f"{one_of(KINDS)}, which {names[0]} does not tell", hint)


def _length(written: Data, target: ModelPlan, default: int, origin: RecipeSource) -> int:
    positions = target.facts.positions
    if written.length is not None and positions is not None and written.length > positions:
        expected = f"at most {positions}, the positions of the target '{target.reference}'"
        raise origin.refusal("train.data.length", str(written.length), expected, f"set it to {positions} or less")
    return written.length or min(default, positions or default)


def _answers(written: Data, kind: str, origin: RecipeSource) -> tuple[str, Answers]:
    """Return the source of the answers and its section. By default, the data has the answers, except for prompts."""
    answers = written.answers or Answers()
    by = answers.by or (BUNDLE if kind == PROMPTS else GIVEN)
    if by not in MAKERS:
        raise origin.refusal("train.data.answers.by", format_value(by), one_of(MAKERS), f"set it to {BUNDLE}")
    if by == ENDPOINT and answers.endpoint is None:
        hint = "add it, for example `endpoint: http://localhost:8000/v1`"
        raise origin.refusal("train.data.answers.endpoint", "nothing", "the address of the endpoint", hint)
    known = {GIVEN: (), ENDPOINT: (*_ANSWER_KEYS, *_ENDPOINT_KEYS)}.get(by, _ANSWER_KEYS)
    for name in (*_ANSWER_KEYS, *_ENDPOINT_KEYS):
        if name not in known and getattr(answers, name) is not None:
            key = f"train.data.answers.{name}"
            expected = f"it only with answers that are {'made' if name in _ANSWER_KEYS else 'asked for at an endpoint'}"
            raise origin.refusal(key, f"a key that means nothing where answers are by {by}", expected, f"remove {key}")
    if answers.sampled is not None and not answers.temperature:
        key, expected = "train.data.answers.sampled", "a temperature above 0 beside it: nothing is drawn at 0"
        hint = f"set train.data.answers.temperature, for example to 0.8, or remove {key}"
        raise origin.refusal(key, format_value(answers.sampled), expected, hint)
    return by, answers


def _new_tokens(answers: Answers, default: int, length: int, origin: RecipeSource) -> int:
    """Return the maximum length of an answer. It is less than the text's, which is a prompt and its answer."""
    if answers.max_new_tokens is not None and answers.max_new_tokens >= length:
        expected = f"less than train.data.length, which is {length}: a text is a prompt and its answer"
        hint = "lower it, or raise train.data.length"
        raise origin.refusal("train.data.answers.max_new_tokens", str(answers.max_new_tokens), expected, hint)
    return answers.max_new_tokens or default


def _held_out(written: Data, origin: RecipeSource) -> float | Path:
    if not isinstance(written.held_out, str):
        return written.held_out or HELD_OUT
    path = origin.resolve(written.held_out)
    if not path.is_file():
        received = f"'{written.held_out}' (no file lies at {path})"
        raise origin.refusal("train.data.held_out", received, "a share, or a file of the same kind", "correct it")
    return path


def _template(written: Data, kind: str, by: str, target: ModelPlan, origin: RecipeSource) -> Path | None:
    """Return the recipe's chat template file, or None. Raise RecipeError for conversations without a template, and for
    given answers that the template does not mark: the loss mask would be empty (EAGLE#286)."""
    key = "train.data.template"
    path = None if written.template is None else origin.resolve(written.template)
    if path is not None and not path.is_file():
        raise origin.refusal(key, f"'{written.template}' (no file lies at {path})", "a chat template", "correct it")
    if kind == TEXT:
        if path is not None:
            raise origin.refusal(key, "a value", "it with prompts and conversations alone", f"remove {key}")
        return None
    try:
        text = chat_template(target.folder) if path is None else path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        received = f"a file that is no UTF-8 in {path or target.folder}"
        raise origin.refusal(key, received, "a chat template", "save it as UTF-8") from None
    if kind == PROMPTS:
        return path
    marks = "{% generation %} and {% endgeneration %} around what the assistant says"
    where = path or f"the target's folder {target.folder}"
    if text is None:
        problem = f"received no chat template in {where}, expected one for conversations"
        raise origin.error(key, problem, f"give {key} a file with the template that the target was trained with")
    if by == GIVEN and not marks_answers(text):
        problem = f"received a chat template without an answer mask in {where}, expected {marks}: that is learnt"
        hint = f"give {key} a copy with these marks, or let the target answer: train.data.answers: {BUNDLE}"
        raise origin.error(key, problem, hint)
    return path


def marks_answers(template: str) -> bool:
    """Return whether a chat template marks the assistant's tokens."""
    return _GENERATION.search(template) is not None


def chat_template(folder: Path) -> str | None:
    """Return the chat template of a model's folder, or None: the separate file, or the tokenizer config's entry, where
    named templates use "default"."""
    if (folder / CHAT_TEMPLATE).is_file():
        return (folder / CHAT_TEMPLATE).read_text(encoding="utf-8")
    found = (read_json_object(folder / TOKENIZER_CONFIG) or {}).get("chat_template")
    if isinstance(found, list):
        named = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _check_tokens(kind: str, files: tuple[Path, ...], target: ModelPlan, origin: RecipeSource) -> None:
    """Raise RecipeError for text without a tokenizer, and for token ids out of the target's vocabulary. A sound is no
    text. Other tables than JSON lines are checked when read."""
    size = target.facts.vocabulary_size
    for file in files:
        has_ids = kind != CONVERSATIONS and file.suffix.lower() in TABLES and file.suffix.lower() not in JSON_LINES
        for number, record in _records(file) if file.suffix.lower() in JSON_LINES else ():
            ids = record.get("token_ids")
            has_ids = has_ids or ids is not None or ("audio" in record and not {"answer", "completion"} & record.keys())
            wrong = next(
                (
                    each
                    for each in (ids if isinstance(ids, list) else ())
                    if not (type(each) is int and 0 <= each < size)
                ),
                None,
            )
            if wrong is not None:
                raise _foreign(file, number, wrong, target, origin)
        if not has_ids and not target.facts.tokenizer:
            received = f"{kind} in {file}, but the target has no tokenizer.json"
            hint = 'write records as {"token_ids": [1, 2, 3]}, or add the tokenizer to the target\'s folder'
            raise origin.refusal("train.data.files", received, "token ids", hint)


def _foreign(file: Path, number: int, found: Any, target: ModelPlan, origin: RecipeSource) -> RecipeError:
    received = f"token {found!r} in {file}, line {number}"
    expected = f"ids from 0 to {target.facts.vocabulary_size - 1}, the vocabulary of the target '{target.reference}'"
    return origin.refusal("train.data.files", received, expected, "tokenize the data with the target's tokenizer")


def _records(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number and object of the first lines that are objects; reading the data reports other lines."""
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        for number, line in zip(range(1, _LOOKED_AT + 1), lines, strict=False):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                yield number, record
