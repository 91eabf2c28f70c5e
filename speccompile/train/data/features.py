"""Target features of every sample on the disk: the taps, and the hidden state that its head reads. Logits, which have
the width of the vocabulary, are recomputed from the hidden state."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from speccompile.bundle.file_hashes import cached_file_hash
from speccompile.bundle.folders import sync
from speccompile.bundle.hashes import new_hasher
from speccompile.compiler.step.monkeypatch import patched_attribute
from speccompile.compiler.step.taps import Taps
from speccompile.drafters.target import NORM
from speccompile.drafters.trainable import TeacherBatch
from speccompile.errors import BuildError, UnsupportedModelError
from speccompile.machine.resource_errors import is_disk_full
from speccompile.plan.training_plan import TrainingPlan
from speccompile.progress import LOGGER, progress_counter
from speccompile.recipe.resources import gigabytes
from speccompile.recipe.training_data import feature_bytes
from speccompile.train.data.corpus import Batch, Dataset
from speccompile.train.data.data_cache import key_for, remove_stale

FEATURES, HIDDEN = "features", "hidden"

SHARD = 1 << 28
"""Approximate bytes of a file, the most work that an interrupted run loses."""

_TOKENS = 1 << 13
"""Tokens of a batch of the target, padding included."""

_TOLERANCE = 1e-3
"""Tolerated change of a logit by rounding, relative to the standard deviation of the logits."""

_FORMAT = 1


def write_features(
    plan: TrainingPlan, model: nn.Module, corpus: Dataset, folder: Path, name: str, part: int = 0, parts: int = 1
) -> Path:
    """Write the features of a dataset by `model`, the plan's target, to `folder`/`name`-<key>, in the precision of the
    plan's activations. Existing files stay. Each of several processes writes a part of the files.

    Raise BuildError without enough disk space; UnsupportedModelError if the target's logits are not a function of
    its last hidden state alone.
    """
    dtype = getattr(torch, plan.schedule.precision)
    output = folder / f"{name}-{_key(plan, corpus)}"
    output.mkdir(parents=True, exist_ok=True)
    if part == 0:
        remove_stale(folder, name, output)
    shards = _shards(corpus, _of(plan, model, 1))
    missing = [number for number in range(len(shards)) if not _file(output, number).is_file()]
    tokens = sum(int(corpus.lengths[shards[number]].sum()) for number in missing)
    _check_room(_of(plan, model, tokens), output)
    source = _Source(model, plan.taps)
    mine = [number for number in missing if number % parts == part]
    with progress_counter("features", len(mine), "files") as advance:
        for number in mine:
            _write(source, corpus, shards[number], _file(output, number), dtype)
            advance(1)
    return output


def _of(plan: TrainingPlan, model: Any, tokens: int) -> int:
    return feature_bytes(tokens, plan.taps, model.config.hidden_size, plan.schedule.precision)


class CachedFeatureTeacher:
    """Reader of the files of `write_features`, which replaces `Teacher`."""

    def __init__(self, plan: TrainingPlan, model: nn.Module, corpus: Dataset, folder: Path) -> None:
        """folder: result of `write_features`. model: the target, whose head is needed."""
        shards = _shards(corpus, _of(plan, model, 1))
        self._source, self._folder = _Source(model, plan.taps), folder
        self._files: dict[int, Any] = {}
        self._places: list[tuple[int, int, int]] = []
        for number, shard in enumerate(shards):
            ends = np.cumsum(corpus.lengths[shard])
            starts = ends - corpus.lengths[shard]
            self._places += [(number, int(start), int(end)) for start, end in zip(starts, ends, strict=True)]

    @torch.no_grad()
    def read(self, batch: Batch) -> TeacherBatch:
        """Return the outputs of `Teacher.forward` for a batch, up to the rounding on the disk. Raise BuildError for a
        file that cannot be read."""
        columns = [self._text(sample) for sample in batch.samples]
        features, hidden = (_padded(each, batch.tokens.shape[1]) for each in zip(*columns, strict=True))
        device = batch.tokens.device
        logits = self._source.logits(batch.tokens, hidden.to(device))
        taps = self._source.beside(features.float(), hidden.float()).to(device)
        return TeacherBatch(batch.tokens, batch.attention_mask, batch.loss_mask, taps, logits)

    def _text(self, sample: int) -> tuple[Tensor, Tensor]:
        number, start, end = self._places[sample]
        path = _file(self._folder, number)
        try:
            if number not in self._files:
                self._files[number] = safe_open(path, framework="pt")
            opened = self._files[number]
            return opened.get_slice(FEATURES)[start:end], opened.get_slice(HIDDEN)[start:end]
        except (OSError, SafetensorError) as error:
            raise BuildError(
                f"{path}: cannot be read: {error}", hint="remove the file, and it is written again"
            ) from error


class _Given(BaseModelOutput):
    """Stored hidden state that replaces the output of the layers. Every other attribute is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _Source:
    """Target with hooks at its taps and before its head."""

    def __init__(self, model: Any, taps: Sequence[str]) -> None:
        self.model, self.names = model.eval().requires_grad_(False), tuple(taps)
        self.taps = Taps(model, [name for name in taps if name != NORM])
        self._checked = False

    @torch.no_grad()
    def look(self, tokens: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """Return features [B, T, F] of all taps but the final norm, and hidden [B, T, H], the head's input."""
        with self.taps.open(), _hidden(self.model) as found:
            logits = self.model(tokens, attention_mask=real.long(), use_cache=False).logits
        hidden = found[-1]
        if not self._checked:
            self._check(tokens, real, logits.float(), hidden)
        features = self.taps.features() if self.taps.names else hidden.new_zeros((*tokens.shape, 0))
        return features, hidden

    def logits(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """Return logits float32 [B, T, V] by the model's own forward after its layers, with its scale and soft cap."""
        given = _Given(last_hidden_state=hidden.to(self.model.dtype))
        with ExitStack() as stack:
            for layers in _layers(self.model):
                stack.enter_context(patched_attribute(layers, "forward", lambda *args, **options: given))
            return self.model(tokens, use_cache=False).logits.float()

    def beside(self, features: Tensor, hidden: Tensor) -> Tensor:
        """Return all taps in the order of their names, including the final norm."""
        width = features.shape[2] // max(len(self.taps.names), 1)
        others = iter(features.split(width, 2) if self.taps.names else ())
        columns = [hidden if name == NORM else next(others) for name in self.names]
        return torch.cat([hidden[..., :0], *columns], 2)

    def _check(self, tokens: Tensor, real: Tensor, logits: Tensor, hidden: Tensor) -> None:
        """Raise UnsupportedModelError unless the hidden state gives the model's logits and equals the final norm."""
        self._checked = True
        again = self.logits(tokens, hidden)
        expected = [(again, logits)]
        if NORM in self.names:
            norm = Taps(self.model, [NORM])
            with norm.open():
                self.model(tokens, attention_mask=real.long(), use_cache=False)
            expected.append((norm.features(), hidden.float()))
        for found, wanted in expected:
            if found.shape != wanted.shape or (found - wanted)[real].abs().max() > _TOLERANCE * wanted[real].std():
                raise UnsupportedModelError(
                    f"{type(self.model).__name__}: its logits are not what its head makes of its last hidden state",
                    hint="set train.data.features to online",
                )


def _layers(model: Any) -> list[nn.Module]:
    """Return the modules that hold the layers: a causal LM's forward calls one of its children, or its decoder."""
    head = model.get_output_embeddings()
    found = {
        id(child): child
        for child in (*model.children(), model.get_decoder())
        if child is not model
        and not any(each is head for each in child.modules())
        and any(isinstance(each, nn.ModuleList) for each in child.modules())
    }
    return list(found.values())


@contextmanager
def _hidden(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the outputs of the modules that hold the layers; the last one is the outermost module's."""
    found: list[Tensor] = []
    with ExitStack() as stack:
        for layers in _layers(model):
            keep = layers.register_forward_hook(lambda module, inputs, output: found.append(output[0]))
            stack.callback(keep.remove)
        yield found


def _key(plan: TrainingPlan, corpus: Dataset) -> str:
    """Return the key of everything that the features depend on."""
    weights = [cached_file_hash(plan.target.folder / file) for file in plan.target.files]
    return key_for([
        _FORMAT, corpus.key, new_hasher().update(corpus.rows.tobytes()).hexdigest(), list(plan.taps),
        plan.schedule.precision, plan.target.precision, weights,
    ])  # fmt: skip


def _shards(corpus: Dataset, bytes_of_token: int) -> list[np.ndarray]:
    """Return the numbers of the samples in each file, in order."""
    ends = np.cumsum(corpus.lengths)
    numbers = (ends - corpus.lengths) // max(SHARD // bytes_of_token, 1)
    return np.split(np.arange(len(corpus)), np.flatnonzero(np.diff(numbers)) + 1)


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number:05}.safetensors"


def _check_room(size: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    LOGGER.info("features: %s to write, %s are free", gigabytes(size), gigabytes(free))
    if size > free:
        raise BuildError(
            f"{folder}: not enough disk space for the features: received {gigabytes(free)} free, expected "
            f"{gigabytes(size)}",
            hint="set train.data.features to online, give fewer texts, or a --work on another disk",
        )


def _write(source: _Source, corpus: Dataset, samples: np.ndarray, path: Path, dtype: torch.dtype) -> None:
    """Write the concatenated samples: features [tokens, F], hidden [tokens, H]."""
    found: dict[int, tuple[Tensor, Tensor]] = {}
    for some in _batches(corpus, samples):
        batch = corpus.gather(some)
        device = next(source.model.parameters()).device
        columns = source.look(batch.tokens.to(device), batch.attention_mask.to(device))
        for row, sample in enumerate(some):
            length = int(corpus.lengths[sample])
            found[int(sample)] = columns[0][row, :length].to("cpu", dtype), columns[1][row, :length].to("cpu", dtype)
    features, hidden = (torch.cat(each) for each in zip(*(found[int(sample)] for sample in samples), strict=True))
    part = path.with_name(f".{path.name}.part")
    try:
        save_file({FEATURES: features, HIDDEN: hidden}, part, {"format": "pt"})
        sync(part)
        part.replace(path)
    except (OSError, SafetensorError) as error:
        part.unlink(missing_ok=True)
        if not is_disk_full(error):
            raise
        raise BuildError(
            f"{path}: the disk is full",
            hint="free some disk space and run it again: it goes on after the written samples",
        ) from error


def _batches(corpus: Dataset, samples: np.ndarray) -> Iterator[np.ndarray]:
    """Yield batches of similar lengths, the longest first: memory runs out at once or never."""
    ordered = samples[np.argsort(-corpus.lengths[samples], kind="stable")]
    while len(ordered):
        count = max(_TOKENS // int(corpus.lengths[ordered[0]]), 1)
        yield ordered[:count]
        ordered = ordered[count:]


def _padded(texts: Sequence[Tensor], length: int) -> Tensor:
    """Return samples [tokens, F] as one tensor [B, T, F], padded with zeros."""
    padded = texts[0].new_zeros((len(texts), length, texts[0].shape[1]))
    for row, text in enumerate(texts):
        padded[row, : len(text)] = text
    return padded
