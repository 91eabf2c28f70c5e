"""native/tests/images.cpp, which Python's tests of pictures ask."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.native.bundle_lines import Lines


class ImageLines(Lines):
    """native/tests/images.cpp: arrays go through files of a folder."""

    program = "image_lines"

    def __init__(self, build: Path, folder: Path) -> None:
        super().__init__(build)
        self._folder = folder

    def peak_memory(self) -> int:
        """Return the most bytes that the program has held."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

    def image(self, image: np.ndarray) -> list[Any]:
        path = self._folder / f"{len(list(self._folder.iterdir()))}.rgb"
        path.write_bytes(image.tobytes())
        return [str(path), *image.shape[:2]]

    def bytes_of(self, name: str, value: Any, **more: Any) -> tuple[Any, bytes]:
        """Return the answer, and what was written."""
        out = self._folder / "out"
        found = self.ask(name, value, out=str(out), **more)
        return found, out.read_bytes()


@pytest.fixture(scope="module")
def native(native_build: Path, tmp_path_factory: pytest.TempPathFactory):
    started = ImageLines(native_build, tmp_path_factory.mktemp("pictures"))
    yield started
    started.close()
