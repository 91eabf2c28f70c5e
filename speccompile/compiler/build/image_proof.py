"""The proof of pictures: prompts with two synthetic ones, against transformers' whole model.

Logits are compared at every place of a prompt, read in chunks of several sizes, and new tokens with and without drafts.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.media import PROOF_SHAPES
from speccompile.compiler.build.cache_key import GraphFiles
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.image_encoder import EncoderInputs, random_picture
from speccompile.compiler.build.image_loss import check_loss, measure_loss
from speccompile.compiler.build.image_quality import measure_quality, read_chunks
from speccompile.compiler.build.lowered_proof import ProofEngine
from speccompile.compiler.build.memory import free_memory
from speccompile.compiler.build.pictured_drafts import PicturedPrompt, check_pictured_drafts
from speccompile.compiler.models.image_encoder import load_whole
from speccompile.compiler.models.image_inputs import given_rows
from speccompile.compiler.models.load import ModelFiles
from speccompile.compiler.prove.reference import check_greedy
from speccompile.compiler.prove.tolerance import TOLERANCE
from speccompile.drafters import DRAFTING_METHODS
from speccompile.drafters.context import DraftInputs
from speccompile.errors import ProofError
from speccompile.machine.formats.image_settings import ENCODER_PRECISION, ImageSettings
from speccompile.progress import LOGGER, log_step
from speccompile.runtime import Bundle, Generation
from speccompile.runtime.images.encoder import ENCODER_FILE, open_encoder
from speccompile.runtime.images.families import FAMILIES
from speccompile.runtime.images.family import Family
from speccompile.runtime.images.reader import ImageReader, SeenPrompt

TRACED = "float32"
_TEXT, _CHUNK = 5, 5
"""Tokens of text around the pictures, and of a chunk that is no divisor of anything."""
_NEW_TOKENS = 16


@dataclass(frozen=True)
class ImageProofInputs:
    """Inputs of the proof of pictures. draft: of a drafter that reads pictures, None of others; files: of the graphs
    and the encoder; manifest: the fields on which tokens depend."""

    target: ModelFiles
    images: ImageSettings
    draft: DraftInputs | None
    files: GraphFiles
    precision: Mapping[str, str]
    manifest: Mapping[str, Any]


def prove_images(
    encoder: EncoderInputs, draft: DraftInputs | None, manifest: Manifest, engines: Sequence[ProofEngine],
    folder: Path, steps: CachedSteps, max_divergence: float,
) -> list[dict[str, Any]]:  # fmt: skip
    """Prove the pictures of all lowered graphs, and return a row for each. draft: None if no graph drafts;
    max_divergence: largest loss by the encoder's precision, in nats. Raise ProofError."""
    target, images = encoder.target, encoder.images
    draft = draft if draft is not None and DRAFTING_METHODS[draft.drafter.kind].reads_images else None
    whole: list[nn.Module] = []

    def reference() -> nn.Module:
        """Return the whole model, loaded at first use."""
        if not whole:
            whole.append(load_whole(target.folder))
        return whole[0]

    fields, rows = manifest.to_json(), []
    for engine in engines:
        decided = {name: value for name, value in fields.items() if name not in ("name", "plan", "engines")}
        files = GraphFiles(folder, (*engine.entry.files.values(), ENCODER_FILE))
        inputs = ImageProofInputs(target, images, draft, files, engine.entry.precision, decided)
        title = f"proving pictures on {engine.lowered.name}"

        def prove(engine: ProofEngine = engine, title: str = title) -> dict[str, Any]:
            with log_step(title):
                return _prove(reference(), images, manifest, engine, folder, draft)

        rows.append({"engine": engine.lowered.name} | steps.result(title, inputs, prove))
        if "encoder" in rows[-1]:
            check_loss(rows[-1]["encoder"], max_divergence, rows[-1]["prompt_tokens"] - 1)
        free_memory()
    return rows


def measure_images(
    encoder: EncoderInputs, manifest: Manifest, engines: Sequence[ProofEngine], folder: Path
) -> list[dict[str, Any]]:
    """Return a row for each of some lowered graphs with their quality behind pictures, which is not proven. Raise
    ProofError for logits that are no numbers."""
    rows = []
    with log_step("measuring quality with pictures"):
        whole = load_whole(encoder.target.folder)
        for engine in engines:
            bundle = _opened(encoder.images, manifest, engine, folder)
            prompt, _, measured = _measured(whole, bundle)
            row = {"engine": engine.lowered.name, "precision": engine.entry.precision, "pictures": len(prompt.shown)}
            rows.append(row | measured)
            free_memory()
    return rows


def _prove(
    whole: nn.Module, images: ImageSettings, manifest: Manifest, engine: ProofEngine, folder: Path,
    draft: DraftInputs | None = None,
) -> dict[str, Any]:  # fmt: skip
    bundle = _opened(images, manifest, engine, folder)
    prompt, rows, measured = _measured(whole, bundle)
    with nullcontext() if rows is None else given_rows(whole, rows):  # the rows that the target reads
        return _prove_prompt(prompt, bundle, draft) | measured


def _measured(whole: nn.Module, bundle: Bundle) -> tuple[PicturedPrompt, Tensor | None, dict[str, Any]]:
    """Return the prompt of the proof; the rows of its pictures by an encoder in fewer bits, None for one in float32;
    and the quality behind them."""
    reader = bundle.vision
    assert reader is not None, "the bundle sees pictures"
    images, family = reader.settings, FAMILIES[reader.settings.family](reader.settings)
    shown = proof_pictures(family, bundle.manifest.max_length - _NEW_TOKENS)
    pictures = reader.pictures(shown)
    ids = _prompt(images, [family.n_rows(each.grid) for each in pictures], bundle.manifest.vocabulary_size)
    prompt = PicturedPrompt(whole, family, ids, shown)
    measured = {"quality": measure_quality(bundle, reader.of_ids(ids, pictures), prompt.logits())}
    if images.precision == ENCODER_PRECISION:
        return prompt, None, measured
    rows = torch.from_numpy(np.concatenate([reader.encoder.rows(each) for each in pictures]))
    return prompt, rows, measured | {"encoder": {"precision": images.precision, **measure_loss(prompt, rows)}}


def _opened(images: ImageSettings, manifest: Manifest, engine: ProofEngine, folder: Path) -> Bundle:
    """Open the graphs of an engine beside the encoder."""
    opened = engine.open(folder, *(graph.name for graph in engine.entry.graphs), batch_size=manifest.batch_size)
    bundle = Bundle(manifest, opened, engine.entry, None, None)
    bundle.vision = ImageReader(images, partial(open_encoder, folder, 1), None)
    return bundle


def _prove_prompt(prompt: PicturedPrompt, bundle: Bundle, draft: DraftInputs | None) -> dict[str, Any]:
    """Prove logits and tokens of a prompt, and drafts if `draft` is given."""
    ids, shown = prompt.ids, prompt.shown
    manifest, precision = bundle.manifest, bundle.entry.precision
    is_exact = precision["target"] == TRACED
    row: dict[str, Any] = {"precision": precision, "pictures": len(shown), "prompt_tokens": len(ids)}
    if is_exact:
        assert bundle.vision is not None, "the bundle sees pictures"
        expected, seen = prompt.logits(), bundle.vision.of_ids(ids, bundle.vision.pictures(shown))
        sizes = sorted({1, min(_CHUNK, manifest.prefill_chunk), manifest.prefill_chunk})
        row |= {"chunks": sizes, "tolerance": TOLERANCE[TRACED]}
        row["values"] = sum(_check_chunks(bundle, seen, expected, size) for size in sizes)
    token_id = prompt.family.images.token_id
    found = [_generate(bundle, ids, shown, autoregressive=each) for each in (True, False)]
    if found[0].token_ids != found[1].token_ids and manifest.exact and is_exact:
        raise ProofError(
            f"pictures: speculative decoding gives {found[1].token_ids}, autoregressive {found[0].token_ids}",
            hint="speculation changed the output: please report it with the recipe",
        )
    if is_exact:
        # up to a placeholder that the model itself writes: transformers would want another picture for it
        tokens = found[0].token_ids[: [*found[0].token_ids, token_id].index(token_id) + 1]
        logits = prompt.logits(tokens[:-1])[len(ids) - 1 :]
        check_greedy(logits, tokens, TRACED, "pictures", "autoregressive decoding")
    if is_exact and draft is not None and precision["drafter"] == TRACED:
        drafted = check_pictured_drafts(bundle, prompt, draft, _NEW_TOKENS)
        row |= {"drafts": drafted.tokens, "unseen": list(drafted.unseen)}
        for name in drafted.unseen:
            LOGGER.warning("note: no draft of the proof depends on the %s of the pictures, which the head reads", name)
    return row | {"new_tokens": len(found[0].token_ids), "equal": found[0].token_ids == found[1].token_ids}


def proof_pictures(family: Family, room: int) -> list[NDArray[np.uint8]]:
    """Return up to two pictures of different shapes whose rows, with some text, fit into `room` tokens."""
    left, found = room - 3 * _TEXT, list[NDArray[np.uint8]]()
    for shape in sorted(PROOF_SHAPES, key=lambda shape: family.n_rows(family.grid(*shape))):
        needed = family.n_rows(family.grid(*shape))
        if len(found) < 2 and needed <= left:
            found.append(random_picture(*shape))
            left -= needed
    return found


def _prompt(images: ImageSettings, rows: Sequence[int], vocabulary: int) -> list[int]:
    """Return random tokens with the placeholders of some pictures, of so many rows each, among them."""
    random = np.random.default_rng(0)
    text = [int(token) for token in random.integers(0, vocabulary, _TEXT * (len(rows) + 1)) if token != images.token_id]
    found = text[:_TEXT]
    for number, count in enumerate(rows, 1):
        found += [images.token_id] * count + text[number * _TEXT : (number + 1) * _TEXT]
    return found


def _generate(bundle: Bundle, ids: list[int], shown: Sequence[Any], *, autoregressive: bool) -> Generation:
    return bundle.generate(
        ids,
        images=list(shown),
        max_new_tokens=_NEW_TOKENS,
        autoregressive=autoregressive,
        adaptive=False,
        ignore_eos=True,
    )


def _check_chunks(bundle: Bundle, seen: SeenPrompt, expected: NDArray[np.float32], size: int) -> int:
    """Compare the logits of a prompt that is read in chunks. Return the number of compared values. Raise ProofError."""
    places = set[int]()
    for start, logits in read_chunks(bundle, seen, size):
        stop = start + len(logits)
        _check_close(logits, expected[start:stop], f"of tokens {start} to {stop - 1}, in chunks of {size}")
        places.update(range(start, stop))
    return len(places) * expected.shape[1]


def _check_close(got: NDArray[np.float32], expected: NDArray[np.float32], where: str) -> None:
    largest, difference = float(np.abs(expected).max()), float(np.abs(got - expected).max())
    if not difference <= TOLERANCE[TRACED] * max(largest, 1.0):
        raise ProofError(
            f"pictures: the logits {where}, differ from transformers' by {difference:.3g}, more than "
            f"{TOLERANCE[TRACED]} of the largest {largest:.3g}",
            hint="the graph computes something else than the model: please report it with the recipe",
        )
