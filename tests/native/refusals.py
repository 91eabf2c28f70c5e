"""Refusals of both runtimes, compared: kind, message and hint; and bundles to refuse."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from speccompile import errors
from speccompile.runtime import Bundle
from tests.native.native_api import NativeBundle
from tests.native.native_errors import KINDS, NativeError
from tests.native.toy_onnx import write_arithmetic_bundle

KIND_OF = {
    errors.SpeccompileError: "FAILED",
    errors.UsageError: "USAGE",
    errors.PromptError: "PROMPT",
    errors.BundleError: "BUNDLE",
    errors.EngineError: "ENGINE",
}
Refused = tuple[str, str, str | None]
"""Kind, message, hint."""


def cases(test: Any) -> list[tuple[Any, ...]]:
    """Return the parameters of a parametrized test."""
    (mark,) = (mark for mark in test.pytestmark if mark.name == "parametrize")
    return [each if isinstance(each, tuple) else (each,) for each in mark.args[1]]


def in_python(call: Callable[[], Any]) -> Refused:
    with pytest.raises(errors.SpeccompileError) as caught:
        call()
    return KIND_OF[type(caught.value)], str(caught.value), caught.value.hint


@pytest.fixture
def in_native(capfd) -> Callable[..., Refused]:
    """Return what the library refuses, without a word on stdout and stderr."""

    def refused(call: Callable[[], Any]) -> Refused:
        capfd.readouterr()
        with pytest.raises(NativeError) as caught:
            call()
        assert tuple(capfd.readouterr()) == ("", "")
        assert caught.value.exit_code == (2 if caught.value.kind in (KINDS["USAGE"], KINDS["PROMPT"]) else 1)
        (kind,) = (name for name, number in KINDS.items() if number == caught.value.kind and name != "ABI")
        return kind, caught.value.message, caught.value.hint

    return refused


class Two:
    """Both runtimes, which must refuse to open a folder, or to generate, in the same words."""

    def __init__(self, library: Path, onnxruntime: Path, in_native: Callable[..., Refused]) -> None:
        self.library, self.onnxruntime, self.in_native = library, onnxruntime, in_native

    def native(self, folder: Path, **options: Any) -> NativeBundle:
        return NativeBundle(folder, library=self.library, onnxruntime=self.onnxruntime, **options)

    def refuse_to_open(self, folder: Path, **options: Any) -> Refused:
        ours = self.in_native(lambda: self.native(folder, **options))
        assert ours == in_python(lambda: Bundle.open(folder, **options))
        return ours

    def refuse(self, folder: Path, prompts: list[Any], **options: Any) -> tuple[Refused, Refused]:
        """Return the refusals of both, C++'s first. It gets texts as bytes."""
        python, session = Bundle.open(folder, threads=1), self.native(folder, threads=1).session()
        given = [each.encode(errors="surrogateescape") if isinstance(each, str) else each for each in prompts]
        ours = self.in_native(lambda: session.start(given, **options))
        theirs = in_python(lambda: python.generate_batch(prompts, **options))
        assert (ours[0], ours[2]) == (theirs[0], theirs[2])
        return ours, theirs


@pytest.fixture
def two(native_library, onnxruntime_library, in_native) -> Two:
    return Two(native_library, onnxruntime_library, in_native)


@pytest.fixture(scope="module")
def sampling(tmp_path_factory) -> Path:
    """Return a bundle that samples."""
    return write_arithmetic_bundle(tmp_path_factory.mktemp("sampling") / "bundle", samples=True)


@pytest.fixture
def copied(lookup, tmp_path) -> Path:
    return shutil.copytree(lookup, tmp_path / "bundle")
