"""Recognise the drafter in a folder: a head's kind and dialect, or a language model. Name heads without support."""

from pathlib import Path

from speccompile.compiler.checkpoints.gguf.conversion import GGUF_INDEX
from speccompile.compiler.checkpoints.json_files import CONFIG
from speccompile.drafters import DRAFTING_METHODS, TARGET_SPECIFIC_KINDS
from speccompile.drafters.dialects import Dialect, find_dialect
from speccompile.drafters.folder import has_weights, read_folder
from speccompile.errors import CheckpointError
from speccompile.plan.head import HeadFolder, HeadPlan, HeadRequest

MODEL, PARD = "model", "pard"
AUTO = "auto"
"""Value of drafter.kind for a drafter whose folder tells its kind."""

LATER = (
    Dialect("JetSpec", keys=("jetspec_config",), refused="trees from one pass of a causal block come later"),
    Dialect("JetSpec", keys=("causal_head",), refused="trees from one pass of a causal block come later"),
    Dialect("XPress", keys=("xpress_config",), refused="its Jacobi refiner is not compiled"),
    Dialect("XPress", ("*XPress*",), refused="its Jacobi refiner is not compiled"),
    Dialect("Laguna DFlash", ("*Laguna*",), refused="its fused projections and gates are not compiled"),
    Dialect("DeepSeek-V4 MTP", ("DeepseekV4*",), refused="its hyper-connections are not compiled"),
)
"""Dialects that are recognised but not compiled, each with the reason."""

Found = tuple[str, Dialect, str]
"""Kind, dialect, evidence."""


def find_head(folder: HeadFolder) -> Found | None:
    """Return the head in a folder, or None if no dialect matches. Raise CheckpointError if it is not compiled."""
    _refuse_gguf(folder.path)
    later = find_dialect(LATER, folder)
    if later is not None:
        raise _refused(folder, *later)
    for kind in TARGET_SPECIFIC_KINDS:
        found = find_dialect([each for each in DRAFTING_METHODS[kind].dialects if not each.within], folder)
        if found is not None:
            if found[0].refused:
                raise _refused(folder, *found)
            return kind, *found
    return None


def find_carried(path: Path) -> Found | None:
    """Return the draft layers that lie among the tensors of a target's folder, or None. The dialect may be one that is
    not compiled."""
    folder = read_folder(path)
    for kind in TARGET_SPECIFIC_KINDS:
        found = find_dialect([each for each in DRAFTING_METHODS[kind].dialects if each.within], folder)
        if found is not None:
            return kind, *found
    return None


def read_head(path: Path, request: HeadRequest) -> HeadPlan:
    """Return the head in a folder. Raise CheckpointError if it is not of `request.kind`, naming the kind found."""
    _refuse_gguf(path)
    folder = read_folder(path)
    method = DRAFTING_METHODS[request.kind]
    own = find_dialect(method.dialects, folder)
    if own is None or own[0].refused:
        other = find_head(folder)
        if other is None and own is None and method.not_found_error is not None:
            raise method.not_found_error(folder, request)
        received = (
            f"a folder of drafter.kind {other[0]} (dialect {other[1].name}: {other[2]})" if other else _shown(folder)
        )
        names = ", ".join(dict.fromkeys(dialect.name for dialect in method.dialects if not dialect.refused))
        raise CheckpointError(
            f"{path}: received {received}, expected a head of drafter.kind {request.kind} in one of its dialects "
            f"({names})",
            hint=f"set drafter.kind to {other[0]}, or to auto" if other else "check config.json and the tensors' names",
        )
    assert method.read is not None, "methods with heads read them"
    return method.read(folder, request, *own)


def _shown(folder: HeadFolder) -> str:
    """Describe the content of a folder that matches no dialect, for messages."""
    names = ", ".join(sorted(folder.tensors)[:2])
    return f"a folder with architectures {folder.config.get('architectures')} and tensors such as {names}"


def find_kind(path: Path) -> str:
    """Return the kind of the drafter in a folder: a head's, "pard" or "model". Raise CheckpointError as `find_head`
    does, and for a folder without config or weights."""
    _refuse_gguf(path)
    folder = read_folder(path)
    found = find_head(folder)
    if found is not None:
        return found[0]
    return PARD if folder.value("pard_token") is not None else MODEL


def refuse_head(path: Path, kind: str) -> None:
    """Raise CheckpointError if a folder holds a head instead of the expected language model."""
    if not (path / CONFIG).is_file() or not has_weights(path):
        return  # loading the model reports it
    found = find_head(read_folder(path))
    if found is not None and not found[1].is_model:
        raise CheckpointError(
            f"{path}: received a head of drafter.kind {found[0]} (dialect {found[1].name}: {found[2]}), expected a "
            f"whole language model, which drafter.kind {kind} drafts with",
            hint=f"set drafter.kind to {found[0]}, or to auto",
        )


def _refused(folder: HeadFolder, dialect: Dialect, evidence: str) -> CheckpointError:
    return CheckpointError(
        f"{folder.path}: received {dialect.name} ({evidence}), which this version does not compile: {dialect.refused}",
        hint="use a head of another kind for this target; docs/reference/support.md lists them",
    )


def _refuse_gguf(path: Path) -> None:
    found = next(iter(sorted(path.glob("*.gguf"))), None) if path.is_dir() else None
    if found is not None and not (path / GGUF_INDEX).is_file():
        raise CheckpointError(
            f"{found}: received a GGUF file, expected safetensors or a .bin or .pt beside a config.json",
            hint="use the checkpoint that the GGUF file was converted from",
        )
