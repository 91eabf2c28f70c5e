"""Bundles of tiny models, each built once a session, when it is first asked for."""

from collections.abc import Callable
from functools import cache

import pytest

from tests.compile import tiny_bundles
from tests.compile.tiny_bundles import Built


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Callable[[str], Built]:
    """The bundle of a name in `tiny_bundles.RECIPES`."""
    return cache(lambda name: tiny_bundles.make(name, tmp_path_factory.mktemp(name)))
