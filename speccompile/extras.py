"""Optional packages: the extra or the package that installs each, and one error that says so.

In: names of modules that cannot be imported. Out: MissingPackageError, or the hint alone.
Imported by every room with an optional package, and by `cli`; imports `errors` alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from speccompile.errors import MissingPackageError

EXTRAS = {
    "compile": (
        "huggingface_hub",
        "ml_dtypes",
        "onnx",
        "onnx_graphsurgeon",
        "onnx_ir",
        "onnxscript",
        "polygraphy",
        "pydantic",
        "safetensors",
        "torch",
        "transformers",
        "yaml",
    ),
    "train": ("accelerate", "datasets", "pyarrow"),
    "serve": ("anyio", "h11", "prometheus_client", "starlette", "uvicorn"),
    "constraints": ("llguidance",),
    "ray": ("ray",),
    "images": ("PIL",),
    "sounds": ("soundfile",),
    "sign": ("cryptography",),
    "gpu": ("cuda",),
    "tensorrt-rtx": ("tensorrt_rtx",),
}
"""Extra -> modules that it installs. A module of several extras stands in the one that most people want it for."""

PACKAGES = {
    "onnxruntime_ep_nv_tensorrt_rtx": "onnxruntime-ep-nv-tensorrt-rtx",
    "tensorboard": "tensorboard",
    "tensorrt": "tensorrt",
    **{name: name for name in ("blake3", "jinja2", "numpy", "onnxruntime", "packaging", "rich", "tokenizers")},
}
"""Module -> package, for modules of no extra: those that speccompile always needs, and those for one purpose."""

_EXTRA_OF = {module: extra for extra, modules in EXTRAS.items() for module in modules}


def install_hint(*modules: str) -> str | None:
    """Return the command that installs modules of extras, or a single one, given by their full names; None for an
    unknown one."""
    tops = [module.partition(".")[0] for module in modules]
    extras = dict.fromkeys(_EXTRA_OF[top] for top in tops if top in _EXTRA_OF)
    if extras:
        return f"pip install 'speccompile[{','.join(extras)}]'"
    return f"pip install {PACKAGES[tops[0]]}" if tops[0] in PACKAGES else None


def missing_package(*modules: str, purpose: str, instead: str | None = None) -> MissingPackageError:
    """Return the error about modules of extras, or a single one, that are not installed.

    purpose: what needs them, as in "training". instead: another way out, appended to the hint.
    """
    hint = install_hint(*modules)
    tops = [module.partition(".")[0] for module in modules]
    extras = [f"'{extra}'" for extra in dict.fromkeys(_EXTRA_OF[top] for top in tops if top in _EXTRA_OF)]
    named = f"the extra{'s' if len(extras) > 1 else ''} {' and '.join(extras)}"
    expected = named if extras else f"the package {PACKAGES.get(tops[0], tops[0])}"
    return MissingPackageError(
        f"received an installation without {', '.join(modules)}, expected {expected}, which {purpose} needs",
        name=modules[0],
        hint=f"{hint}, or {instead}" if instead else hint,
    )


def require(*extras: str, purpose: str) -> None:
    """Raise MissingPackageError, before any work, if a module of these extras is not installed. Imports none."""
    missing = [module for extra in extras for module in EXTRAS[extra] if find_spec(module) is None]
    if missing:
        raise missing_package(*missing, purpose=purpose)


@contextmanager
def naming_extra(purpose: str, instead: str | None = None) -> Iterator[None]:
    """Raise MissingPackageError instead of the block's ModuleNotFoundError of a known module. instead: see
    `missing_package`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if isinstance(error, MissingPackageError) or install_hint(error.name or "") is None:
            raise
        raise missing_package(error.name or "", purpose=purpose, instead=instead) from error
