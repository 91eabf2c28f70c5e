"""The encoder of a bundle: tiles of pictures -> rows, kept by content for pictures that come again."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from blake3 import blake3

from speccompile.bundle.manifest import EngineEntry
from speccompile.bundle.media import ENCODE_IMAGE, IMAGES_FOLDER, PIXELS, ROWS
from speccompile.errors import EngineError
from speccompile.machine.formats.image_settings import ImageSettings
from speccompile.runtime.images.family import EncoderRun, Family, Grid, Rows
from speccompile.runtime.images.limits import ENCODER_BYTES
from speccompile.runtime.images.resize import Pixels

Run = Callable[[EncoderRun], Rows]

ENCODER_FILE = f"{IMAGES_FOLDER}/{ENCODE_IMAGE}.onnx"


@dataclass(frozen=True)
class Picture:
    """A picture of a prompt. key: hash of its pixels and its detail; grid: its tiles; is_low: it has less detail."""

    image: Pixels
    key: bytes
    grid: Grid
    is_low: bool = False

    @classmethod
    def of(cls, image: Pixels, family: Family, *, is_low: bool = False) -> "Picture":
        """Return the picture of these pixels."""
        hashed = blake3(np.array([*image.shape, is_low], np.int64).tobytes())
        hashed.update(np.ascontiguousarray(image).data)
        grid = (family.low if is_low else family).grid(*image.shape[:2])
        return cls(image, hashed.digest(), grid, is_low)


@dataclass(frozen=True)
class LowDetail:
    """A path, bytes or an array of a picture that is read with less detail."""

    source: Any


def open_encoder(folder: Path, threads: int) -> Run:
    """Return a function that runs the encoder's graph in a bundle folder. Raise EngineError."""
    import onnxruntime as ort

    from speccompile.runtime.devices.sessions import ERRORS, engine_error, session_options

    try:
        session = ort.InferenceSession(
            folder / ENCODER_FILE, session_options(threads), providers=["CPUExecutionProvider"]
        )
    except ERRORS as error:
        raise engine_error(f"{ENCODER_FILE}: ONNX Runtime does not open it", error) from error
    named = [each.name for each in session.get_inputs()], [each.name for each in session.get_outputs()]
    if PIXELS not in named[0] or named[1] != [ROWS]:
        raise EngineError(f"{ENCODER_FILE}: received inputs and outputs {named}, expected {PIXELS} and {ROWS}")

    def run(given: EncoderRun) -> Rows:
        try:
            rows: Rows = session.run(None, given)[0]
        except ERRORS as error:
            raise engine_error(f"{ENCODER_FILE}: ONNX Runtime cannot run it", error) from error
        return rows

    return run


def open_tensorrt_encoder(folder: Path, entry: EngineEntry, settings: ImageSettings) -> Run:
    """Return a function that runs the encoder's engine of a bundle folder on the GPU, on a stream of its own: rounds
    run meanwhile. Raise EngineError."""
    from speccompile.runtime.devices.cuda import open_device
    from speccompile.runtime.devices.tensorrt_encoder import TensorRTEncoder
    from speccompile.runtime.devices.tensorrt_program import load

    patches = int(settings.settings.get("merge", 1)) ** 2
    return TensorRTEncoder(folder, entry, open_device(), load(entry.backend), patches).run


class Encoder:
    """Rows of pictures. Safe for several threads; the graph is opened at the first picture."""

    def __init__(self, family: Family, open_run: Callable[[], Run], limit: int = ENCODER_BYTES) -> None:
        """limit: bytes of rows that are kept."""
        self.family, self.seconds, self.runs = family, 0.0, 0
        """seconds, runs: time of all encoding so far, and number of runs."""
        self.queries, self.hits, self.kept_bytes = 0, 0, 0
        """queries, hits: pictures that were asked for so far, and those of them whose rows were kept."""
        self.ahead = ThreadPoolExecutor(1, "speccompile-encoder")
        """Thread that encodes while rounds run."""
        self._open_run, self._limit = open_run, limit
        self._run: Run | None = None
        self._kept = OrderedDict[bytes, Rows]()
        self._lock = threading.Lock()

    def rows(self, picture: Picture) -> Rows:
        """Return the rows of a picture, kept ones if its pixels came before. Raise EngineError."""
        with self._lock:
            self.queries += 1
            if picture.key in self._kept:
                self.hits += 1
                self._kept.move_to_end(picture.key)
                return self._kept[picture.key]
            start = perf_counter()
            found = self._encode(picture)
            self.seconds += perf_counter() - start
            self._keep(picture.key, found)
            return found

    def forget(self) -> None:
        """Drop the rows that are kept."""
        with self._lock:
            self._kept.clear()
            self.kept_bytes = 0

    def _encode(self, picture: Picture) -> Rows:
        if self._run is None:
            self._run = self._open_run()
        given = (self.family.low if picture.is_low else self.family).runs(picture.image)
        self.runs += len(given)
        return self.family.joined([self._run(each) for each in given], picture.grid)

    def _keep(self, key: bytes, rows: Rows) -> None:
        if rows.nbytes > self._limit:
            return
        self._kept[key] = rows
        self.kept_bytes += rows.nbytes
        while self.kept_bytes > self._limit:
            self.kept_bytes -= self._kept.popitem(last=False)[1].nbytes
