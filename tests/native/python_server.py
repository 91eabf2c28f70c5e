"""Python's server tests over the native server: the same functions, which find a process of it in place of theirs."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from speccompile.runtime import Bundle
from speccompile.serving.http.app import Settings
from speccompile.serving.scheduler import Limits
from tests.light.serve_example import TEMPLATE, Running
from tests.light.test_cli_serve import ready
from tests.native import toy_onnx
from tests.native.served import started
from tests.native.toy_onnx import CHUNK, DRAFTS, write_arithmetic_bundle

MAX_LENGTH = 160
"""Longest text, in tokens, of the toys of Python's tests."""
OPTIONS = {"requests": "waiting", "tokens": "waiting-tokens", "queue_seconds": "waiting-seconds",
           "seconds": "request-seconds", "sequences": "sequences", "client_rows": "client-rows"}  # fmt: skip
"""Limits of the scheduler, as options of the command."""


class NativeToys:
    """Toy bundles in folders, and native servers over them."""

    def __init__(self, folder: Path, build: Path, library: Path) -> None:
        """build: CMake's folder of the native runtime. library: ONNX Runtime's."""
        self._folder, self._build, self._library = folder, build, library
        self._made: dict[str, Path] = {}

    def folder(self, *, chat: bool = True, batch_size: int = 3, sampling: bool = False, **changes: Any) -> Path:
        """Return the folder of a bundle like `chat_bundle`'s. Of drawn drafts and trees there are none here."""
        changes = {name: value for name, value in changes.items() if name not in ("sample", "tree")}
        key = repr((chat, batch_size, sampling, sorted(changes.items())))
        if key not in self._made:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(toy_onnx, "MAX_LENGTH", MAX_LENGTH)
                patch.setattr(toy_onnx, "ROOM", MAX_LENGTH + CHUNK + DRAFTS + 1)
                self._made[key] = write_arithmetic_bundle(
                    self._folder / str(len(self._made)), samples=sampling, rows=batch_size,
                    chat=TEMPLATE if chat else None, **changes,
                )  # fmt: skip
        return self._made[key]

    def chat_bundle(self, **changes: Any) -> Bundle:
        return Bundle.open(self.folder(**changes), threads=1)

    @contextmanager
    def toy_server(
        self, settings: Settings | None = None, limits: Limits | None = None, **changes: Any
    ) -> Iterator[Running]:
        """Yield a native server over a toy bundle of the name `toy`."""
        words = ["--served-model-name", "toy", *_words(settings or Settings(), limits or Limits())]
        with started("native", self._build, self._library, self.folder(**changes), *words) as (_, address):
            yield ready(address)


def _words(settings: Settings, limits: Limits) -> list[object]:
    """Return the options of the command for settings of the application and limits of the scheduler."""
    keys = [each.decode() if isinstance(each, bytes) else each for each in settings.keys.keys]
    found: list[object] = [word for key in keys for word in ("--api-key", key)]
    found += [word for origin in settings.origins for word in ("--cors-origin", origin)]
    found += ["--body-bytes", settings.max_body_bytes]
    found += [] if settings.page else ["--no-page"]
    found += [] if settings.speculative else ["--autoregressive"]
    for field in fields(limits):
        value = getattr(limits, field.name)
        if field.name in OPTIONS and value is not None:
            found += [f"--{OPTIONS[field.name]}", value]
    return found


def borrow(namespace: dict[str, Any], module: ModuleType, without: Mapping[str, str]) -> None:
    """Put a module's tests into a namespace, all but some. without: their names, each with the reason. A name that the
    module has not is an error: the list is what the native server does not do."""
    own = [name for name, test in vars(module).items() if name.startswith("test_") and callable(test)]
    unknown = without.keys() - set(own)
    assert not unknown, f"{module.__name__} has no {sorted(unknown)}"
    for name in (name for name in own if name not in without):  # in their order, the same in every process
        assert name not in namespace, name
        namespace[name] = getattr(module, name)


@contextmanager
def replaced(toys: NativeToys, *modules: ModuleType) -> Iterator[None]:
    """Let the modules' tests and fixtures find native servers."""
    with ExitStack() as held:
        patch = held.enter_context(pytest.MonkeyPatch.context())
        for module in modules:
            for name in ("toy_server", "chat_bundle"):
                if hasattr(module, name):
                    patch.setattr(module, name, getattr(toys, name))
        yield
