"""Prepare files as a training set and a held-out set."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from speccompile.bundle.hashes import hash_file, new_hasher
from speccompile.errors import RecipeError
from speccompile.plan.training_plan import CONVERSATIONS, GIVEN, TrainingPlan
from speccompile.progress import LOGGER, log_step
from speccompile.recipe.training_files import Files, find_files
from speccompile.train.data.corpus import Dataset
from speccompile.train.data.data_cache import about, cached_folder, key_for
from speccompile.train.data.documents import Document, Prompt, Sound, document_name, read_documents, read_name
from speccompile.train.data.rows import hub_stamp, read_rows, shortened, wrong
from speccompile.train.data.shards import SampleTable, write_texts
from speccompile.train.data.sounds import Sounds
from speccompile.train.data.tokens import (
    NO_ANSWER,
    NOTHING_LEARNT,
    DataStatistics,
    Tokenization,
    TokenizedSample,
    check_template,
)

_FORMAT = 1
"""Version of the cached data, part of its key."""


class Prompts(Sequence[Prompt]):
    """Memory-mapped prompts for the target."""

    def __init__(self, texts: SampleTable) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[each] for each in range(len(self))[number]]
        number = range(len(self))[number]
        name = document_name(int(self._texts.documents[number]), bool(self._texts.held[number]))
        return Prompt(name, self._texts.tokens(number).tolist())


def prepare(plan: TrainingPlan, tokenizer: Any, folder: Path, answers: Path | None = None) -> tuple[Dataset, Dataset]:
    """Return the training set and the held-out set, tokenized once into `folder`.

    tokenizer: the target's, of transformers, with the chat template to use. answers: file of generated responses to
    `prepare_prompts`, if the plan generates them: lines {"document", "prompt_ids", "answer_ids"}, or with "failed" or
    "skipped" instead of both.

    Raise RecipeError, naming file and line, for data of another kind, for tokens that the target does not have, for a
    chat template that does not mark responses, and for an empty training set or held-out set.
    """
    if plan.data.packing != "buckets":
        raise RecipeError(
            f"train.data.packing: received {plan.data.packing!r}, expected 'buckets': texts that share a row would see "
            "each other in the target's pass",
            hint="leave packing out: texts of like lengths are put together, which leaves little padding",
        )
    assert (answers is None) == (plan.data.answers == GIVEN), "answers are those that the plan has made"
    data, held = _files(plan)
    key = _key(plan, tokenizer, data, held, answers)
    write = partial(_write_texts, plan, tokenizer, data, held, answers)
    kept = cached_folder(folder, "texts", key, write)
    LOGGER.info("%s", DataStatistics.from_json(about(kept)))
    return _split(SampleTable(kept), plan, key)


def prepare_prompts(plan: TrainingPlan, tokenizer: Any, folder: Path) -> Prompts:
    """Return the prompts for the target, held-out ones included, tokenized once into `folder`. Raise the errors of
    `prepare`."""
    data, held = _files(plan)
    key = _key(plan, tokenizer, data, held, None)
    kept = cached_folder(folder, "prompts", key, partial(_write_prompts, plan, tokenizer, data, held))
    LOGGER.info("prompts: %s", DataStatistics.from_json(about(kept)))
    return Prompts(SampleTable(kept))


def check_sides(plan: TrainingPlan, prompts: Sequence[Prompt]) -> None:
    """Raise RecipeError if the training set or held-out set would be empty even if all prompts are answered."""
    named = [read_name(prompt.document, "prompts") for prompt in prompts]
    keys, held = zip(*named, strict=True)
    _sides(np.asarray(keys, np.uint64), np.asarray(held, bool), plan)


def _files(plan: TrainingPlan) -> tuple[Files, Files]:
    """Return the files of the data, and those of the held-out file, if any."""
    held = plan.data.held_out
    data = find_files(plan.data.files, plan.data.kind)
    return data, find_files([str(held)], plan.data.kind) if isinstance(held, Path) else Files()


def _key(plan: TrainingPlan, tokenizer: Any, data: Files, held: Files, answers: Path | None) -> str:
    settings = plan.data
    return key_for([
        _FORMAT, settings.kind, settings.answers == GIVEN, settings.length, settings.max_new_tokens,
        settings.last_turn, plan.target.facts.vocabulary_size, _tokenizer_stamp(tokenizer),
        [data.stamp() if data.hub is None else hub_stamp(data.hub), held.stamp()],
        None if answers is None else hash_file(answers),
    ])  # fmt: skip


def _tokenizer_stamp(tokenizer: Any) -> str:
    """Return the digest of everything that decides the tokens of a text."""
    if tokenizer is None:
        return "none"
    backend = getattr(tokenizer, "backend_tokenizer", None)
    content = backend.to_str() if backend is not None else json.dumps(tokenizer.get_vocab(), sort_keys=True)
    said = json.dumps([tokenizer.chat_template, tokenizer.special_tokens_map, content], default=str)
    return new_hasher().update(said.encode()).hexdigest()


def _documents(plan: TrainingPlan, data: Files, held: Files) -> Iterator[Document]:
    answered = plan.data.answers == GIVEN
    yield from read_documents(read_rows(data), plan.data.kind, answered=answered)
    yield from read_documents(read_rows(held), plan.data.kind, answered=answered, held=True)


def _write_texts(
    plan: TrainingPlan, tokenizer: Any, data: Files, held: Files, answers: Path | None, folder: Path
) -> dict[str, Any]:
    made = _tokenization(plan, tokenizer)
    if answers is None and plan.data.kind == CONVERSATIONS and tokenizer is not None:
        check_template(tokenizer, marks=True)
    with log_step("read and tokenise the data"):
        if answers is None:
            write_texts(made.texts(_documents(plan, data, held)), folder)
        else:
            write_texts(_answered(made, answers), folder)
    if not made.counts.texts:
        raise _nothing(made.counts, plan)
    return made.counts.to_json()


def _tokenization(plan: TrainingPlan, tokenizer: Any) -> Tokenization:
    facts = plan.target.facts
    return Tokenization(tokenizer, plan.data, facts.vocabulary_size, facts.source)


def find_sounds(plan: TrainingPlan) -> Sounds | None:
    """Return the sounds of the data of a target that hears, None for another one."""
    source = plan.target.facts.source
    if source is None or source.audio is None:
        return None
    contents = (document.content for document in _documents(plan, *_files(plan)))
    return Sounds(plan.target, (each for each in contents if isinstance(each, Sound)))


def _answered(made: Tokenization, answers: Path) -> Iterator[TokenizedSample]:
    before = None
    for row in read_rows(Files((answers,))):
        match row.value:
            case {"document": name, **found} if "failed" in found or "skipped" in found:
                made.counts.skipped[NO_ANSWER] += 1
            case {"document": name, "prompt_ids": list(prompt), "answer_ids": list(answer)}:
                key, held = read_name(name, row.where)
                document = Document(row.where, key, "", is_first_part=name != before, is_held_out=held)
                yield from made.answered(document, prompt, answer)
                before = name
            case _:
                raise wrong(
                    row.where, shortened(row.value), '{"document": "..", "prompt_ids": [..], "answer_ids": [..]}',
                    "have the answers made again",
                )  # fmt: skip


def _write_prompts(plan: TrainingPlan, tokenizer: Any, data: Files, held: Files, folder: Path) -> dict[str, Any]:
    made = _tokenization(plan, tokenizer)
    with log_step("read and tokenise the prompts"):
        write_texts(made.prompts(_documents(plan, data, held)), folder)
    if not made.counts.texts:
        raise _nothing(made.counts, plan)
    return made.counts.to_json()


def _nothing(counts: DataStatistics, plan: TrainingPlan) -> RecipeError:
    hint = "give other data, or a larger train.data.length"
    if counts.skipped[NOTHING_LEARNT] and plan.data.kind == CONVERSATIONS:
        hint = "check that the chat template marks what the assistant says with {% generation %}, and train.data.length"
    return RecipeError(f"train.data: nothing is left to learn: {counts}", hint=hint)


def _split(texts: SampleTable, plan: TrainingPlan, key: str) -> tuple[Dataset, Dataset]:
    """Split by documents. Held out are documents of the held-out file, or those whose key lies below the share of all
    keys, at least the one with the smallest key."""
    learnt, held = _sides(texts.documents, texts.held, plan)
    if left := len(texts) - int(learnt.sum() + held.sum()):
        LOGGER.warning("note: %d texts are held out as well, and not learnt from", left)
    LOGGER.info("%d texts to learn from, %d held out", learnt.sum(), held.sum())
    return Dataset(texts, np.flatnonzero(learnt), key), Dataset(texts, np.flatnonzero(held), key)


def _sides(keys: np.ndarray, held: np.ndarray, plan: TrainingPlan) -> tuple[np.ndarray, np.ndarray]:
    """Return two masks bool [n]: samples to train on, and held-out samples. keys uint64 [n]: keys of their documents;
    held bool [n]: samples of a held-out file. Raise RecipeError if either is empty."""
    share = plan.data.held_out
    if isinstance(share, Path):
        learnt = ~held & ~np.isin(keys, keys[held])
    else:
        held = keys <= max(np.uint64(min(int(share * 2**64), 2**64 - 1)), keys.min())
        learnt = ~held
    for side, name in ((learnt, "learnt from"), (held, "held out")):
        if not side.any():
            more = " or more train.data.answers.prompts," if plan.data.prompts else ""
            raise RecipeError(
                f"train.data.held_out: of {len(keys)} texts of {len(np.unique(keys))} documents none is left to be "
                f"{name}, received {share}",
                hint=f"give more documents,{more} or a file of other ones under held_out",
            )
    return learnt, held
