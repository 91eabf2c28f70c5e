"""Devices by name: the rows of devices.toml."""

import tomllib
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from speccompile.errors import UsageError

FILE = Path(__file__).parent / "devices.toml"


@dataclass(frozen=True)
class DeviceRow:
    """Peak figures of a device, as devices.toml explains them. Those that are not known are None."""

    name: str
    title: str
    source: str
    date: str
    bandwidth: float
    bandwidth_certainty: str
    memory: float | None = None
    int8_tops: float | None = None
    int8_sparse: bool = False
    fp16_tflops: float | None = None
    fp8_tflops: float | None = None
    products_certainty: str | None = None
    npu_tops: float | None = None

    @property
    def products(self) -> float | None:
        """Peak of dense products, in operations a second: int8's, or else those of the floats that it has."""
        if self.int8_tops is not None:
            return self.int8_tops * 1e12 / (2 if self.int8_sparse else 1)
        floats = self.fp16_tflops or self.fp8_tflops
        return floats * 1e12 if floats is not None else None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@cache
def device_rows() -> dict[str, DeviceRow]:
    """Return name -> row, in the order of the file."""
    data = tomllib.loads(FILE.read_text(encoding="utf-8"))
    common = {key: data.pop(key) for key in ("source", "date")}
    return {name: DeviceRow(name=name, **(common | row)) for name, row in data.items()}


def find_device(name: str) -> DeviceRow:
    """Return a device's row. Raise UsageError, with the nearest names, for one that is not in the file."""
    rows = device_rows()
    if name not in rows:
        near = get_close_matches(name.lower().replace(" ", "-"), rows, n=3, cutoff=0.4)
        raise UsageError(
            f"--device: received '{name}', expected one of {len(rows)} known devices",
            hint=f"the nearest are {', '.join(near)}" if near else "`speccompile predict --list-devices` shows them",
        )
    return rows[name]
