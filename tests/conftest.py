"""What all tests share."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests keep nothing on this machine, and find nothing that others have kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield
