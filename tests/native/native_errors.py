"""Errors of the C ABI as exceptions, by the kinds that include/speccompile.h declares."""

import runpy
from pathlib import Path

from speccompile import errors

ROOT = Path(__file__).resolve().parents[2]
HEADER = runpy.run_path(str(ROOT / "scripts" / "abi.py"))["read_header"]()
KINDS = {name.removeprefix("SPC_"): int(value) for name, value in HEADER.constants.items() if value.isdigit()}


class NativeError(errors.SpeccompileError):
    """An error of the C ABI. Where Python's runtime has a class for its kind, it is one of these as well."""

    def __init__(self, kind: int, message: str, hint: str, exit_code: int) -> None:
        super().__init__(message, hint=hint or None)
        self.kind, self.message, self.exit_code = kind, message, exit_code


class NativeUsageError(NativeError, errors.UsageError):
    pass


class NativePromptError(NativeError, errors.PromptError):
    pass


class NativeBundleError(NativeError, errors.BundleError):
    pass


class NativeEngineError(NativeError, errors.EngineError):
    pass


CLASSES = {
    KINDS["USAGE"]: NativeUsageError,
    KINDS["PROMPT"]: NativePromptError,
    KINDS["BUNDLE"]: NativeBundleError,
    KINDS["ENGINE"]: NativeEngineError,
}
