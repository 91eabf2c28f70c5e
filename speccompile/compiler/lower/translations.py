"""ONNX translations of operators that torch's exporter lacks: our own to neutral ops, and one of transformers."""

from typing import Any

import onnxscript
import torch

from speccompile.compiler.lower import neutral


def translation() -> dict[Any, Any]:
    """Return the custom translation table of `torch.onnx.export`."""
    neutral.register_schemas()
    domain = onnxscript.values.Opset(neutral.DOMAIN, 1)

    def attend(query, key_rows, value_rows, key_cache, value_cache, length, positions, bias, scale, softcap, window,
               sinks=None, is_latent=False, is_ring=False):  # fmt: skip
        inputs = [query, key_rows, value_rows, key_cache, value_cache, length, positions, bias]
        op = getattr(domain, neutral.attend_name(is_latent=is_latent, has_sinks=sinks is not None))
        settings = {"scale": scale, "softcap": softcap, "window": window, "ring": int(is_ring)}
        return op(*inputs, *([] if sinks is None else [sinks]), **settings)

    def commit(buffer, rows, length, axis, is_ring=False):
        return domain.Commit(buffer, rows, length, axis=axis, mode=neutral.CIRCULAR if is_ring else neutral.LINEAR)

    def quantize(rows, bits=8):
        return getattr(domain, f"DecodeInt{bits}")(*getattr(domain, f"EncodeInt{bits}")(rows))

    def round_fp8(rows):
        return domain.RoundFp8(rows)

    return {
        torch.ops.speccompile.attend.default: attend,
        torch.ops.speccompile.commit.default: commit,
        torch.ops.speccompile.quantize.default: quantize,
        torch.ops.speccompile.round_fp8.default: round_fp8,
        **_states(domain),
        **_logits(domain),
        torch.ops.transformers.grouped_mm_fallback.default: _grouped_matmul,
    }


def _logits(domain: onnxscript.values.Opset) -> dict[Any, Any]:
    """Return translations of the operators of adapters, of logits and of sampling."""

    def low_rank(y, x, a, b, adapter):
        return domain.LowRank(y, x, a, b, adapter)

    def adjust(logits, tokens, values):
        return domain.Adjust(logits, tokens, values)

    def allow(logits, allowed):
        return domain.Allow(logits, allowed)

    def nucleus(probs, top_k, top_p, min_p):
        return domain.Nucleus(probs, top_k, top_p, min_p)

    def draw(weights, threshold, uniforms):
        return domain.Draw(weights, threshold, uniforms)

    return {
        torch.ops.speccompile.low_rank.default: low_rank,
        torch.ops.speccompile.adjust.default: adjust,
        torch.ops.speccompile.allow.default: allow,
        torch.ops.speccompile.nucleus.default: nucleus,
        torch.ops.speccompile.draw.default: draw,
    }


def _states(domain: onnxscript.values.Opset) -> dict[Any, Any]:
    """Return translations of the operators of layers with recurrent states."""

    def convolve(rows, state, weight):
        return domain.Convolve(rows, state, weight)

    def shift(rows, state, length, count):
        return domain.Shift(rows, state, length, count)

    def recur(query, key, value, decay, beta, state, length):
        if beta is None:
            return domain.Recur(query, key, value, decay, state, length)
        return domain.RecurDelta(query, key, value, decay, beta, state, length)

    def advance(key, value, decay, beta, state, length, count):
        if beta is None:
            return domain.Advance(key, value, decay, state, length, count)
        return domain.AdvanceDelta(key, value, decay, beta, state, length, count)

    return {
        torch.ops.speccompile.convolve.default: convolve,
        torch.ops.speccompile.shift.default: shift,
        torch.ops.speccompile.recur.default: recur,
        torch.ops.speccompile.advance.default: advance,
    }


def _grouped_matmul(rows: Any, weights: Any, ends: Any) -> Any:
    """Multiply rows [M, K], sorted by expert, by weights [E, K, N], ends int [E] -> [M, N]: expert e takes rows
    ends[e-1]:ends[e].

    One MatMul per expert, over no rows if no token chose it: no weight is copied, for any window width.
    """
    op, results = onnxscript.values.Opset("", neutral.OPSET), []
    start, axis = op.Constant(value_ints=[0]), op.Constant(value_ints=[0])
    for expert in range(weights.shape[0]):
        end = op.Cast(op.Slice(ends, op.Constant(value_ints=[expert]), op.Constant(value_ints=[expert + 1])), to=7)
        weight = op.Gather(weights, op.Constant(value_int=expert), axis=0)
        results.append(op.MatMul(op.Slice(rows, start, end, axis), weight))
        start = end
    return op.Concat(*results, axis=0)
