"""Models of the zoo, quantized by the published layouts of GPTQ, AWQ, compressed-tensors, fp8 and MXFP4."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests import zoo
from tests.json_files import merge_json

GROUP = 32
CONFIGS = {
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": False, "desc_act": False},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True},
    "compressed-tensors": {
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
            "num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP}}},
    },
    "fp8": {"quant_method": "fp8", "weight_block_size": [32, 32], "activation_scheme": "dynamic"},
}  # fmt: skip


def save(name: str, folder: Path, method: str) -> dict[str, Tensor]:
    """Write a checkpoint whose layers, but for the head, are quantized. Return its weights as floats."""
    zoo.save(name, folder)
    return quantize(folder, method)


def quantize(folder: Path, method: str) -> dict[str, Tensor]:
    """Quantize a float checkpoint in place, as `save` does. Return its weights as floats."""
    floats, stored = load_file(folder / "model.safetensors"), {}
    for key, weight in floats.items():
        if not key.endswith("_proj.weight"):
            stored[key] = weight
            continue
        tensors, floats[key] = QUANTIZED[method](weight.float())
        stored |= {key.removesuffix("weight") + end: tensor.contiguous() for end, tensor in tensors.items()}
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    _write_config(folder, CONFIGS[method])
    return floats


def pack_experts(folder: Path) -> None:
    """Replace the experts of a GPT-OSS checkpoint by random ones in MXFP4."""
    tensors, stored, random = load_file(folder / "model.safetensors"), {}, torch.Generator().manual_seed(0)
    for name, weight in tensors.items():
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, depth, columns = weight.shape
            shape = (experts, columns, depth // 32)
            stored[f"{name}_blocks"] = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8, generator=random)
            stored[f"{name}_scales"] = torch.randint(120, 125, shape, dtype=torch.uint8, generator=random)
        else:
            stored[name] = weight
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    _write_config(folder, {"quant_method": "mxfp4"})


def _write_config(folder: Path, quantization: dict) -> None:
    merge_json(folder / "config.json", {"quantization_config": quantization})


def _grouped(weight: Tensor, *, symmetric: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return codes int32 [N, K], scales float16 and zero points int32 [N, groups]; and the dequantized weight."""
    blocks = weight.reshape(len(weight), -1, GROUP)
    # The codes' range is wider than the weights': quantizing them again would give other scales.
    low, high = 1.3 * blocks.amin(2).clamp(max=0), 1.3 * blocks.amax(2).clamp(min=0)
    scales = (torch.maximum(-low, high) / 7.5 if symmetric else (high - low) / 15).half()
    zeros = torch.full_like(low, 8) if symmetric else (-low / scales).round().clamp(0, 15)
    codes = (blocks / scales[..., None] + zeros[..., None]).round().clamp(0, 15)
    dequantized = (codes - zeros[..., None]) * scales[..., None].float()
    return codes.reshape(weight.shape).int(), scales, zeros.int(), dequantized.reshape(weight.shape)


def _packed(codes: Tensor, order: tuple[int, ...] = tuple(range(8))) -> Tensor:
    """Return int32 [.., n / 8] of [.., n], the lowest bits of a word first."""
    eight = codes.reshape(*codes.shape[:-1], -1, 8)[..., list(order)].long()
    words = sum(eight[..., index] << 4 * index for index in range(8))
    return torch.where(words >= 1 << 31, words - (1 << 32), words).int()


def _gptq(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    codes, scales, zeros, dequantized = _grouped(weight, symmetric=False)
    less_one = _packed(zeros.T) - 0x11111111
    return {"qweight": _packed(codes).T, "qzeros": less_one, "scales": scales.T}, dequantized


def _awq(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    codes, scales, zeros, dequantized = _grouped(weight, symmetric=False)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    return {"qweight": _packed(codes.T, order), "qzeros": _packed(zeros.T, order), "scales": scales.T}, dequantized


def _compressed(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    codes, scales, _, dequantized = _grouped(weight, symmetric=True)
    shape = torch.tensor(weight.shape)
    return {"weight_packed": _packed(codes), "weight_scale": scales, "weight_shape": shape}, dequantized


def _fp8(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    rows, columns = weight.shape
    blocks = weight.reshape(rows // 32, 32, columns // 32, 32)
    scales = blocks.abs().amax((1, 3)) / 448
    codes = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn)
    dequantized = (codes.float() * scales[:, None, :, None]).reshape(weight.shape)
    return {"weight": codes.reshape(weight.shape), "weight_scale_inv": scales}, dequantized


QUANTIZED = {"gptq": _gptq, "awq": _awq, "compressed-tensors": _compressed, "fp8": _fp8}
