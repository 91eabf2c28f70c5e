"""Counts the graphs that tests trace and the builds that they start in processes of their own."""

import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

CHILD = 2
"""Graphs that a build in a process of its own counts as: most trace a draft and a verify graph."""
BUILDERS = {"build", "compare", "train", "tune"}
"""Words after `speccompile` that build bundles."""


class Counting:
    """Counts of this process, by module, or by the name of what several modules share."""

    def __init__(self) -> None:
        self.modules: Counter[str] = Counter()
        self.shared: Counter[str] = Counter()
        self.module = ""
        self._names: list[str] = []
        self._asked: set[tuple[str, str]] = set()
        self._within = 0

    def add(self, count: int) -> None:
        if self._names:
            self.shared[self._names[-1]] += count
        elif self.module:
            self.modules[self.module] += count

    def traced(self) -> None:
        if not self._within:
            self.add(1)

    @contextmanager
    def remembered(self, key: str) -> Iterator[None]:
        """Count a trace that the cache of builds may know from another module. It counts as if it were done here, once:
        so a module counts alike alone, among others, and in any order."""
        who = self._names[-1] if self._names else self.module
        if (who, key) not in self._asked:
            self._asked.add((who, key))
            self.add(1)
        self._within += 1
        try:
            yield
        finally:
            self._within -= 1

    @contextmanager
    def for_all(self, name: str) -> Iterator[None]:
        self._names.append(name)
        try:
            yield
        finally:
            self._names.pop()


COUNTS = Counting()


def shared(name: str) -> Any:
    """Count work inside a `with` block under `name` in tests/budgets.toml, not for the module that needs it first."""
    return COUNTS.for_all(name)


def _count_exports(module: ModuleType) -> None:
    export = module._export

    @wraps(export)
    def counted(*arguments: Any, **options: Any) -> Any:
        COUNTS.traced()
        return export(*arguments, **options)

    module._export = counted  # type: ignore[attr-defined]


def _count_steps(module: ModuleType) -> None:
    files = module.CachedSteps.files

    @wraps(files)
    def counted(self: Any, title: str, inputs: Any, *arguments: Any, **options: Any) -> Any:
        if self._cache is None or not title.startswith("tracing"):
            return files(self, title, inputs, *arguments, **options)
        digest = hashlib.sha256(json.dumps([title, module.cache_key(inputs)], sort_keys=True).encode()).hexdigest()
        with COUNTS.remembered(digest):
            return files(self, title, inputs, *arguments, **options)

    module.CachedSteps.files = counted


_WATCHED: dict[str, Callable[[ModuleType], None]] = {
    "speccompile.compiler.lower.export": _count_exports,
    "speccompile.compiler.build.cached_steps": _count_steps,
}


class _Finder(MetaPathFinder):
    """Changes a module when it is imported: light tests, which do not, import no torch for this."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname in _WATCHED else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def changed(module: ModuleType) -> None:
            execute(module)
            _WATCHED[fullname](module)

        spec.loader.exec_module = changed  # type: ignore[method-assign]
        return spec


def is_build(command: object) -> bool:
    """Return whether a command line builds bundles."""
    if isinstance(command, str | bytes | os.PathLike):
        words = shlex.split(os.fsdecode(command))
    elif isinstance(command, Sequence):
        words = [os.fsdecode(word) for word in command if isinstance(word, str | bytes | os.PathLike)]
    else:
        return False
    for place, word in enumerate(words):
        called = os.path.basename(word) == "speccompile" or "speccompile.cli" in word  # noqa: PTH119
        if called and BUILDERS & set(words[place + 1 :]):
            return True
        if words[place - 1 : place] == ["-c"] and "speccompile.compiler.build" in word:
            return True
    return False


def watch() -> None:
    """Count from now on, in this process."""
    sys.meta_path.insert(0, _Finder())
    for name, change in _WATCHED.items():
        if name in sys.modules:
            change(sys.modules[name])
    start = subprocess.Popen.__init__

    @wraps(start)
    def counted(self: Any, args: Any, *arguments: Any, **options: Any) -> None:
        if is_build(args):
            COUNTS.add(CHILD)
        start(self, args, *arguments, **options)

    subprocess.Popen.__init__ = counted  # type: ignore[method-assign]
