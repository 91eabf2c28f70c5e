"""Writes libraries.safetensors beside it: one layer of 32 outputs and 64 inputs, packed by the formats' own libraries,
and as they unpack it. Run once, with gptqmodel 7.7.0, compressed-tensors 0.20.0 and torch 2.13.0 (CPU).

    NAME:layer.TENSOR     the tensors of a checkpoint
    NAME:unpacked         what the library makes of them, [32, 64] in the dtype of the scales
"""

from pathlib import Path
from types import SimpleNamespace

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from gptqmodel.nn_modules.qlinear.torch import TorchLinear
from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm, pack_awq
from gptqmodel.utils.model import convert_gptq_v2_to_v1_format_module
from safetensors.torch import save_file
from torch import nn

N, K = 32, 64
torch.manual_seed(0)
WEIGHT = torch.randn(N, K) * torch.rand(N, 1) * 0.1
WEIGHT[:, :32] = WEIGHT[:, :32].abs()  # so that some zero points are 0
REACH = 1.3
"""Of the numbers, beyond the weights: those that are quantized anew would get other scales."""
FOUND: dict[str, torch.Tensor] = {}


def grouped(size: int, bits: int, symmetric: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scales and zero points [N, groups]."""
    blocks, top = REACH * WEIGHT.reshape(N, -1, size), 2**bits - 1
    if symmetric:
        scales = blocks.abs().amax(2) * 2 / top
        return scales.half().float(), torch.full_like(scales, (top + 1) // 2)
    low, high = blocks.amin(2).clamp(max=0), blocks.amax(2).clamp(min=0)
    scales = ((high - low) / top).half().float()
    return scales, (-low / scales).round().clamp(0, top)


def keep(name: str, tensors: dict[str, torch.Tensor], unpacked: torch.Tensor) -> None:
    FOUND.update({f"{name}:layer.{key}": value.contiguous() for key, value in tensors.items()})
    FOUND[f"{name}:unpacked"] = unpacked.contiguous()


def gptq(name: str, size: int, *, bits: int = 4, symmetric: bool, order: bool = False, first: bool = True) -> None:
    scales, zeros = grouped(size, bits, symmetric)
    layer = TorchLinear(bits=bits, group_size=size, sym=symmetric, desc_act=order, in_features=K, out_features=N)
    linear = nn.Linear(K, N, bias=False)
    linear.weight.data = WEIGHT.clone()
    index = torch.arange(K, dtype=torch.int32) // size
    if order:
        index = index[torch.randperm(K)]
    layer.pack_original(linear, scales, zeros, index)
    unpacked = layer.dequantize_weight().T
    if first:
        convert_gptq_v2_to_v1_format_module(layer, SimpleNamespace(bits=bits, pack_dtype=torch.int32))
    keep(name, {key: getattr(layer, key) for key in ("qweight", "qzeros", "scales", "g_idx")}, unpacked)


def awq(name: str, size: int) -> None:
    scales, zeros = (each.T for each in grouped(size, 4, False))
    index = torch.arange(K) // size
    numbers = (WEIGHT.T / scales[index] + zeros[index]).round().clamp(0, 15)
    packed, packed_zeros = pack_awq(numbers.int(), zeros.int(), 4)
    tensors = {"qweight": packed, "qzeros": packed_zeros, "scales": scales.half()}
    keep(name, tensors, dequantize_gemm(packed, packed_zeros, scales.half(), 4, size).T)


def compressed(name: str, layout: str, dtype: torch.dtype, **settings: object) -> None:
    weights = QuantizationArgs(**settings)
    scheme = QuantizationScheme(targets=["Linear"], weights=weights)
    rows, columns = weights.block_structure or (1, weights.group_size or K)
    if weights.strategy == "tensor":
        rows = N
    blocks = WEIGHT.reshape(N // rows, rows, K // columns, columns)
    scale, zero = calculate_qparams(REACH * blocks.amin((1, 3)), REACH * blocks.amax((1, 3)), weights)
    if weights.strategy == "tensor":
        scale, zero = scale.reshape(1), zero.reshape(1)
    scale = scale.to(dtype)
    state = {"weight": WEIGHT.to(dtype), "weight_scale": scale, "weight_zero_point": zero}
    compressor = BaseCompressor.get_value_from_registry(layout)
    state = compressor.compress(state, scheme)
    keep(name, state, compressor.decompress(state, scheme)["weight"])


gptq("gptq-symmetric", 32, symmetric=True)
gptq("gptq", 32, symmetric=False)
gptq("gptq-v2", 32, symmetric=False, first=False)
gptq("gptq-channel", K, symmetric=True)
gptq("gptq-order", 32, symmetric=False, order=True)
gptq("gptq-8", 32, bits=8, symmetric=False)
awq("awq", 32)
INT = {"type": "int", "num_bits": 4, "strategy": "group", "group_size": 32}
compressed("ct-symmetric", "pack-quantized", torch.bfloat16, symmetric=True, **INT)
compressed("ct", "pack-quantized", torch.float16, symmetric=False, **INT)
compressed("ct-channel", "pack-quantized", torch.bfloat16, symmetric=True, type="int", num_bits=4, strategy="channel")
compressed("ct-packed-8", "pack-quantized", torch.bfloat16, symmetric=False, **INT | {"num_bits": 8})
compressed("ct-int8", "int-quantized", torch.bfloat16, symmetric=True, type="int", num_bits=8, strategy="channel")
compressed("ct-int8-zeros", "int-quantized", torch.float16, symmetric=False, type="int", num_bits=8, strategy="channel")
FLOAT = {"type": "float", "num_bits": 8, "symmetric": True}
compressed("ct-fp8", "float-quantized", torch.bfloat16, strategy="channel", **FLOAT)
compressed("ct-fp8-tensor", "float-quantized", torch.bfloat16, strategy="tensor", **FLOAT)
compressed("ct-fp8-block", "float-quantized", torch.bfloat16, strategy="block", block_structure=[16, 32], **FLOAT)
save_file(FOUND, Path(__file__).with_name("libraries.safetensors"))
