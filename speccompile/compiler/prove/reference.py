"""The reference: transformers eager, without our windows, caches and drafts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionCacheLayerMixin

from speccompile.bundle.manifest import EngineEntry
from speccompile.compiler.models.eager import attend_eagerly
from speccompile.compiler.models.sourced import SourcedModel, read_source
from speccompile.compiler.prove.tokens import Case, GeneratedTokens
from speccompile.compiler.prove.tolerance import QUANTIZATION_TOLERANCE, rounding
from speccompile.compiler.step.layers import counting_layers
from speccompile.compiler.weights.source import DTYPES
from speccompile.compiler.weights.tensor import WeightTensor
from speccompile.errors import ProofError

Logits = NDArray[np.float32]


@dataclass(frozen=True)
class NearTie:
    """Two tokens whose logits lie within rounding, so that either is correct."""

    index: int
    token: int
    other: int
    margin: float

    def to_json(self) -> dict[str, Any]:
        # Margins are noise: they are rounded to one digit, so that equal builds give equal proofs.
        return {"index": self.index, "token": self.token, "other": self.other, "margin": f"{self.margin:.0e}"}


def whole_caches(model: PreTrainedModel) -> DynamicCache:
    """Return transformers' caches for a whole model: with recurrent states, which they hold if they know its config
    alone; but no sliding-window caches, which would drop rows that a compiled target keeps."""
    caches = DynamicCache(config=model.config)
    if not carries_states(caches):
        return DynamicCache()
    windows = [isinstance(each, DynamicSlidingWindowLayer) for each in caches.layers]
    caches.layers = [
        DynamicLayer() if is_window else each for each, is_window in zip(caches.layers, windows, strict=True)
    ]
    return caches


def carries_states(caches: Cache) -> bool:
    """Return whether some caches hold recurrent states: a model then continues one token at a time, or loses them."""
    own = caches.self_attention_cache if isinstance(caches, EncoderDecoderCache) else caches
    return any(isinstance(each, LinearAttentionCacheLayerMixin) for each in own.layers)


@torch.no_grad()
def sequence_logits(model: nn.Module, tokens: list[int], longest: int | None = None) -> Logits:
    """Return float32 [n, V]: the logits after each of n tokens, in one eager forward without a cache. longest: number
    of positions, if tokens after those have the last one."""
    attend_eagerly(model)
    ids, places = torch.tensor([tokens]), {}
    if longest is not None and len(tokens) > longest:
        # The mask says that it is one text: without it transformers would see a new one where a position repeats.
        places = {"position_ids": torch.arange(len(tokens)).clamp(max=longest - 1)[None]}
        places["attention_mask"] = torch.ones_like(ids)
    logits = model(input_ids=ids, use_cache=False, **places).logits
    return np.asarray(logits[0].float().numpy())


def check_greedy(logits: Logits, tokens: list[int], precision: str, where: str, who: str) -> list[NearTie]:
    """Check that each token is the argmax of its logits; return the near-ties among those that are not.

    logits float32 [n, V] before each of n tokens. Teacher forcing: as long as every token is the reference's argmax
    given those before it, greedy decoding with the reference gives exactly these tokens. Raise ProofError, which says
    `where`, the position, both tokens and the margin, for a difference beyond noise.
    """
    ties = []
    for index, (row, token) in enumerate(zip(logits, tokens, strict=True)):
        best = int(row.argmax())
        if best != token:
            margin = float(row[best] - row[token])
            largest = float(np.abs(row[np.isfinite(row)]).max())  # the others are of tokens that no text has
            if not margin <= QUANTIZATION_TOLERANCE[precision] * max(largest, 1.0):
                raise ProofError(
                    f"{where}: at new token {index} {who} gives {token}, transformers' greedy gives {best}; "
                    f"the reference's margin between the two is {margin:.3g} "
                    f"(its top-two margin {top_two_margin(row):.3g})",
                    hint="the compiled graph computes something else than the model: please report it with the recipe",
                )
            ties.append(NearTie(index, token, best, margin))
    return ties


def judging_precision(model: nn.Module, entry: EngineEntry) -> str:
    """Return the precision as which `check_cases` judges an engine: that of its arithmetic, if its weights are the
    model's, as those of a bfloat16 checkpoint in bfloat16, which ONNX Runtime computes in float32."""
    word, arithmetic = entry.precision["target"], rounding(entry)
    return arithmetic if word in DTYPES and word != arithmetic and _is_lossless(model, word) else word


def check_cases(model: nn.Module, cases: Sequence[Case], precision: str) -> dict[str, Any]:
    """Check a bundle's tokens against the eager float32 model. Raise ProofError; return the proof's entry.

    For an approximate method, the tokens of autoregressive decoding are checked.

    For precisions with fewer bits, tokens that are the reference's choice are counted.
    """
    return check_tokens(model, [case.written for case in cases], precision)


def check_tokens(model: nn.Module, cases: Sequence[GeneratedTokens], precision: str) -> dict[str, Any]:
    """Check tokens as `check_cases` does, without the generations."""
    if precision not in QUANTIZATION_TOLERANCE:
        return _agreement(model, cases)
    ties: list[dict[str, Any]] = []
    for case, logits in _forced(model, cases):
        found = check_greedy(logits, case.token_ids, precision, case.where, f"{case.mode} decoding")
        ties += [{"prompt": case.number, **tie.to_json()} for tie in found]
    return {"prompts": len(cases), "equal": len(cases) - len({tie["prompt"] for tie in ties}), "near_ties": ties}


def _is_lossless(model: nn.Module, precision: str) -> bool:
    """Return whether the model's matrices are unchanged in a precision that is a dtype."""
    return all(_fits(parameter, precision) for parameter in model.parameters() if parameter.dim() > 1)


def _fits(matrix: Tensor, precision: str) -> bool:
    if isinstance(matrix, WeightTensor):
        source, kind = matrix.source, DTYPES[precision]
        parts = () if source.dtype == precision else source.parts()
        return all((rows == rows.astype(kind).astype(np.float32)).all() for rows in map(source.rows, parts))
    return torch.equal(matrix, matrix.to(getattr(torch, precision)).to(matrix.dtype))


def _agreement(model: nn.Module, cases: Sequence[GeneratedTokens]) -> dict[str, Any]:
    tokens = same = 0
    for case, logits in _forced(model, cases):
        tokens += len(logits)
        same += int((logits.argmax(-1) == np.array(case.token_ids)).sum())
    return {"prompts": len(cases), "tokens": tokens, "same_tokens": same}


def _forced(model: nn.Module, cases: Sequence[GeneratedTokens]) -> Iterator[tuple[GeneratedTokens, Logits]]:
    """Yield each case that has new tokens, with the reference's logits [n, V] before each of them."""
    judged = [case for case in cases if case.token_ids]
    with counting_layers(model, "running transformers", len(judged)):
        for case in judged:
            read_source(model, case.source)
            logits = sequence_logits(model, case.prompt_ids + case.token_ids[:-1])[len(case.prompt_ids) - 1 :]
            yield case, model.suppress(torch.from_numpy(logits)).numpy() if isinstance(model, SourcedModel) else logits


def top_two_margin(row: Logits) -> float:
    """Return the difference of the two largest logits."""
    second, first = np.partition(row, -2)[-2:]
    return float(first - second)
