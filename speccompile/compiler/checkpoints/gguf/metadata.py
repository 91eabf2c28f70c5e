"""Typed access to the metadata of a GGUF file. It records the keys that were asked for: those left over would change
the model in an unknown way, so that the file is refused by their names."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from speccompile.errors import CheckpointError, UnsupportedModelError

INFORMATION = ("general.", "quantize.", "split.", "mradermacher.")
"""Prefixes of keys that say where a file comes from, and nothing about its model."""


class Metadata:
    """Metadata of the file at `path`."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path, self._values = path, values
        self._claimed: set[str] = set()

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text. Raise CheckpointError for another value, and for none without a default."""
        return str(self._typed(key, str, "text", default))

    def count(self, key: str, default: int | None = None) -> int:
        """Return a whole number above 0; of a list, one for each layer, the value that all have. Raise CheckpointError
        for other values, UnsupportedModelError for a list of several."""
        value = self._values.get(key)
        if isinstance(value, list) and value and all(type(each) is int for each in value):
            if len(set(value)) > 1:
                raise UnsupportedModelError(
                    f"{self.path}: {key}: received {shown(value)}, expected one number for all layers",
                    hint="layers of several sizes are not compiled from GGUF; use the model's safetensors",
                )
            self._values[key] = value[0]
        found = self._typed(key, int, "a whole number above 0", default)
        if found <= 0:
            raise self.wrong(key, found, "a whole number above 0")
        return int(found)

    def whole(self, key: str, default: int) -> int:
        """Return a whole number from 0 on."""
        found = self._typed(key, int, "a whole number from 0 on", default)
        if found < 0:
            raise self.wrong(key, found, "a whole number from 0 on")
        return int(found)

    def number(self, key: str, default: float | None = None) -> float:
        """Return a finite number. A float32 of the file is returned as the shortest decimal that rounds to it."""
        found = float(self._typed(key, (int, float), "a number", default))
        if found != found or abs(found) == float("inf"):
            raise self.wrong(key, found, "a finite number")
        return shortest(found)

    def flag(self, key: str, default: bool) -> bool:
        return bool(self._typed(key, bool, "true or false", default))

    def id(self, key: str, size: int) -> int | None:
        """Return a token id below `size`, None if there is none."""
        if key not in self:
            return None
        found = self._typed(key, int, "a token id", None)
        if not 0 <= found < size:
            raise self.wrong(key, found, f"a token id below {size}")
        return int(found)

    def items(self, key: str, kind: type, length: int | None = None, each_of: str = "token") -> list[Any] | None:
        """Return a list of values of one type, None if there is none. length: of the list, one for each `each_of`."""
        found = self.optional(key)
        if found is None:
            return None
        if not isinstance(found, list) or not all(isinstance(each, kind) for each in found):
            raise self.wrong(key, found, f"a list of {kind.__name__}")
        if length is not None and len(found) != length:
            raise self.wrong(key, f"{len(found)} values", f"{length}, one for each {each_of}")
        return found

    def optional(self, key: str) -> Any:
        """Return any value, None if there is none."""
        self._claimed.add(key)
        return self._values.get(key)

    def require(self, key: str, *expected: Any) -> None:
        """Raise UnsupportedModelError for a key with another value than these; it may be absent."""
        found = self.optional(key)
        if found is not None and found not in expected:
            wanted = " or ".join(repr(each) for each in expected)
            raise UnsupportedModelError(
                f"{self.path}: {key}: received {shown(found)}, expected {wanted}",
                hint="this kind of model is not compiled from GGUF; use the model's safetensors",
            )

    def claim(self, keys: Iterable[str]) -> None:
        """Mark keys as without effect on the compiled graphs."""
        self._claimed.update(keys)

    def claim_tokenizer(self) -> None:
        """Mark all keys of the tokenizer as without effect."""
        self.claim(key for key in self._values if key.startswith("tokenizer."))

    def refuse_unclaimed(self) -> None:
        """Raise UnsupportedModelError for keys that nothing has asked for."""
        left = [key for key in self._values if key not in self._claimed and not key.startswith(INFORMATION)]
        if left:
            others = f" and {len(left) - 1} others" if len(left) > 1 else ""
            raise UnsupportedModelError(
                f"{self.path}: received the key '{left[0]}' ({shown(self._values[left[0]])}){others}, expected keys "
                "whose effect on the model is known",
                hint="use the model's safetensors, or report the key: without it the model might be computed wrongly",
            )

    def wrong(self, key: str, received: Any, expected: str) -> CheckpointError:
        """Return the error for the value of a key."""
        return CheckpointError(
            f"{self.path}: {key}: received {shown(received)}, expected {expected}",
            hint="convert the model again with a current llama.cpp",
        )

    def __contains__(self, key: str) -> bool:
        self._claimed.add(key)
        return key in self._values

    def _typed(self, key: str, kind: Any, expected: str, default: Any) -> Any:
        found = self.optional(key)
        if found is None:
            found = default
        is_bool = isinstance(found, bool) and kind is not bool
        if found is None or not isinstance(found, kind) or is_bool:
            raise self.wrong(key, found, expected)
        return found


def shortest(number: float) -> float:
    """Return the shortest decimal number that rounds to the same float32, as a config has it: 1e-06, not
    9.999999974752427e-07."""
    import numpy as np

    narrow = np.float32(number)
    return float(str(narrow)) if float(narrow) == number else number


def shown(value: Any) -> str:
    """Return a value of the file as messages have it, on one line and not long."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
