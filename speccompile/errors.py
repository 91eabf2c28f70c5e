"""Everything speccompile raises on purpose.

SpeccompileError                exit 1   failed for a named reason
├── UsageError                  exit 2   the recipe or the command line is wrong
│   ├── RecipeError                      a key, a type, a value, a file or a pair in the recipe
│   └── PromptError                      a prompt or token ids that this bundle cannot take
├── CheckpointError             exit 1   a model folder that cannot be read
├── UnsupportedModelError       exit 1   an architecture that cannot be traced and proven right
├── BundleError                 exit 1   a folder that is not a bundle, or not the one that was built
├── EngineError                 exit 1   an engine library that is missing or refuses a graph
├── MissingPackageError         exit 1   a package that is not installed; an ImportError too
├── OverloadedError             exit 1   a service that cannot take a request now
├── BuildError                  exit 1   a step of the build that failed (output folder, disk, export)
├── TrainingError               exit 1   a training that cannot go on (its loss, the disk, another one in its folder)
└── ProofError                  exit 3   the compiled loop does not give the reference's tokens

A message says what was received, what was expected and where. The hint says what to change; the command line prints
it on a line of its own, and then the error's code: speccompile/cli/errors.toml has a code for every class and every
part of the package that raises it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

DEFECT_EXIT_CODE = 70


class SpeccompileError(Exception):
    """Base of all errors. `hint` is one sentence on what to change, or None."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(SpeccompileError):
    """The command line asks for something that does not exist."""

    exit_code = 2
    generations: Sequence[Any] = ()
    """Generations of the call that had ended: its session could not be written, and their tokens are not lost."""


class RecipeError(UsageError):
    """The recipe is wrong: refused before any work."""


class PromptError(UsageError):
    """A prompt that this bundle cannot take."""


class CheckpointError(SpeccompileError):
    """A model folder that cannot be read."""


class UnsupportedModelError(SpeccompileError):
    """An architecture that cannot be traced and proven right."""


class BundleError(SpeccompileError):
    """A folder that is not a bundle, or not the one that was built."""


class EngineError(SpeccompileError):
    """An engine library that is missing or refuses a graph."""


class MissingPackageError(SpeccompileError, ModuleNotFoundError):
    """A package that is not installed. `name`: its module. The hint says what installs it."""

    def __init__(self, message: str, *, name: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.name = name


class OverloadedError(SpeccompileError):
    """A service that cannot take a request now. `retry_after`: seconds after which it may, None if it never will, for
    example while it is closing."""

    def __init__(self, message: str, *, retry_after: float | None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BuildError(SpeccompileError):
    """A step of the build failed."""


class TrainingError(SpeccompileError):
    """A training that cannot go on."""


class ProofError(SpeccompileError):
    """The compiled loop does not give the reference's tokens."""

    exit_code = 3


class Kind(NamedTuple):
    """A kind of error in the C ABI (`spc_error_kind`): its number, which never changes, and a program's exit code."""

    number: int
    exit_code: int
    meaning: str


KINDS = {
    "failed": Kind(1, SpeccompileError.exit_code, "SpeccompileError: failed for a named reason"),
    "usage": Kind(2, UsageError.exit_code, "UsageError: the call or the command line is wrong"),
    "bundle": Kind(10, BundleError.exit_code, "BundleError: a folder that is no bundle, or not the one that was built"),
    "engine": Kind(11, EngineError.exit_code, "EngineError: an engine library that is missing or refuses a graph"),
    "prompt": Kind(12, PromptError.exit_code, "PromptError: a prompt that this bundle cannot take"),
    "cancelled": Kind(13, 1, "spc_session_cancel; Python has no such error"),
    "memory": Kind(14, 1, "out of memory"),
    "too_small": Kind(15, 1, "a buffer of the caller's; the size that it needs was written"),
    "overloaded": Kind(16, 1, "OverloadedError: a service that cannot take a request now"),
    "defect": Kind(70, DEFECT_EXIT_CODE, "a defect of speccompile"),
}
"""Kinds of errors of the C++ runtime, which `scripts/contract_header.py` writes into its header."""
