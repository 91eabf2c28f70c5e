"""Load the weights of heads: the head's tensors by normalised names, and the target's embedding and head."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn import functional

from speccompile.compiler.models.load import first_line
from speccompile.compiler.step.draft.vocabulary import ListedTokens
from speccompile.compiler.step.layers import find_norm
from speccompile.compiler.weights.gguf.sources import head_codes, read_head_tensors
from speccompile.compiler.weights.tensor import WeightTensor
from speccompile.errors import CheckpointError, UnsupportedModelError
from speccompile.plan.head import OFFSETS, VOCABULARY_MAPS, HeadPlan, TensorSource

Network = TypeVar("Network", bound=nn.Module)

IDS = (*VOCABULARY_MAPS, "t2d")
"""Names of the tensors that hold token ids or masks instead of weights."""


class Embedding(nn.Module):
    """The target's embedding table without a scale that the target's own module may apply: heads do not apply it."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the rows float32 [.., H] of tokens int64 [..]."""
        return functional.embedding(tokens, self.table)


class Head(nn.Module):
    """The target's output embeddings: hidden [.., H] -> logits [.., V]."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("bias", bias, persistent=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return functional.linear(hidden, self.weight, self.bias)


class TargetEmbeddings:
    """The target's embedding and head, which drafters share. They are loaded at first access, because many heads bring
    their own."""

    def __init__(self, load: Callable[[], nn.Module]) -> None:
        """load: returns the target; no reference to the model stays."""
        self._load = load

    @property
    def embed(self) -> Embedding:
        return self._both[0]

    @property
    def head(self) -> Head:
        return self._both[1]

    def norm(self) -> Tensor | None:
        """Return the scale float32 [H] of the final norm if it is an RMS norm; None for other norms."""
        return norm_scale(self._load())

    @cached_property
    def _both(self) -> tuple[Embedding, Head]:
        model = self._load()
        head = model.get_output_embeddings()
        bias = getattr(head, "bias", None)
        embed = Embedding(model.get_input_embeddings().weight.data)
        return embed, Head(head.weight.data, None if bias is None else bias.data)


@torch.no_grad()
def norm_scale(model: nn.Module) -> Tensor | None:
    """Return the scale of a model's final norm, as `TargetEmbeddings.norm`. Some norms store scale - 1, which only
    their code shows: so the norm is applied to ones. A norm that subtracts the mean returns zeros for ones."""
    try:
        norm = find_norm(model)
    except UnsupportedModelError:
        return None
    weight = next(norm.parameters(recurse=False), None)
    if weight is None:
        return None
    ones = torch.ones(1, 1, weight.shape[-1], dtype=weight.dtype, device=weight.device)
    scale = norm(ones)[0, 0]
    if not scale.any() or not torch.allclose(norm(-ones)[0, 0], -scale):
        return None
    found = weight.data if torch.allclose(scale, weight.data, rtol=1e-3) else scale  # `scale` is rounded
    return found.detach().float().cpu().clone()


def load_head(network: Network, head: HeadPlan) -> Network:
    """Load the head's tensors into a network whose parameters have the normalised names.

    Raise CheckpointError that names folder or file and tensor, for NaN or infinite values, and for missing or
    unexpected tensors, although the plan has compared them already.
    """
    found = {name: tensor for name, tensor in read_tensors(head).items() if name not in IDS}
    lacking = network.load_state_dict({name: tensor.float() for name, tensor in found.items()}, strict=False)
    if lacking.missing_keys or lacking.unexpected_keys:
        name = [*lacking.missing_keys, *lacking.unexpected_keys][0]
        raise CheckpointError(f"{head.folder}: tensor '{name}' of {head.kind} is on one side alone", hint="report it")
    if head.has_codes:
        _keep_codes(network, head)
    return network.eval().requires_grad_(False)


def _keep_codes(network: nn.Module, head: HeadPlan) -> None:
    """Replace the parameters that lie in blocks of a GGUF file by weights that stay there, for graphs that keep their
    codes."""
    published = {source.name: name for name, source in head.tensors.items()}
    for name, source in head_codes(head.folder, published).items():
        owner, _, own = published[name].rpartition(".")
        network.get_submodule(owner).register_parameter(own, nn.Parameter(WeightTensor(source), requires_grad=False))


def read_tensors(head: HeadPlan) -> dict[str, Tensor]:
    """Return all tensors of a head by normalised names, in the dtypes of their files. Raise CheckpointError."""
    found = read_sources(head.folder, head.tensors)
    for name, source in head.tensors.items():
        tensor = found[name]
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise CheckpointError(
                f"{head.folder / source.file}: received tensor '{source.name}' with NaN or infinite values, expected "
                "numbers",
                hint="copy or download the file again; a head that was trained with NaN drafts nothing",
            )
    return found


def read_sources(folder: Path, sources: Mapping[str, TensorSource]) -> dict[str, Tensor]:
    """Return tensors of a folder's files, unchanged. Raise CheckpointError if a file cannot be loaded."""
    names: dict[str, set[str]] = {}
    for source in sources.values():
        names.setdefault(source.file, set()).add(source.name)
    opened = {file: _open(folder / file, wanted) for file, wanted in sorted(names.items())}
    return {name: opened[source.file][source.name] for name, source in sources.items()}


def _open(path: Path, names: Iterable[str]) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                return {name: file.get_tensor(name) for name in names}
        if path.suffix == ".gguf":
            return {name: torch.from_numpy(each) for name, each in read_head_tensors(path.parent, names).items()}
        return dict(torch.load(path, map_location="cpu", weights_only=True))
    except (OSError, RuntimeError, SafetensorError, ValueError, EOFError) as error:
        raise CheckpointError(
            f"{path}: the weights cannot be loaded: {first_line(error)}", hint="copy or download the file again"
        ) from error


def draft_vocabulary(head: HeadPlan) -> ListedTokens | None:
    """Return the head's draft vocabulary, or None if it is the target's.

    Raise CheckpointError if it has a token outside of the target's vocabulary, or a token twice.
    """
    name = next((each for each in VOCABULARY_MAPS if each in head.tensors), None)
    if name is None:
        return None
    source, is_offset = head.tensors[name], name == OFFSETS
    ids = _open(head.folder / source.file, [source.name])[source.name].long()
    ids = ids + torch.arange(len(ids)) if is_offset else ids
    wrong = ids[(ids < 0) | (ids >= head.vocabulary_size)]
    where = f"{head.folder / source.file}: {source.name}"
    if len(wrong):
        other = "absolute ids instead of offsets look like this as well" if is_offset else "these are ids, not offsets"
        raise CheckpointError(
            f"{where}: received {'offsets that lead to token' if is_offset else 'token'} {int(wrong[0])}, expected "
            f"tokens from 0 to {head.vocabulary_size - 1}, the target's",
            hint=f"check that the head was made for this target; {other}",
        )
    if len(ids.unique()) < len(ids):
        raise CheckpointError(
            f"{where}: received a token of the target twice, expected each draft token to be another",
            hint="copy or download the file again",
        )
    return ListedTokens(ids, head.vocabulary_size)
