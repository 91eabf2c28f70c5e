"""Errors that mean that memory or the disk ran out, whoever raised them and whatever they were turned into."""

import errno
from collections.abc import Iterator

from speccompile.machine.system import MemoryLimit, memory_limits

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_DISK_WORDS = ("No space left on device", "Disk quota exceeded", "File too large")
"""The C library's words for them, which a library may have alone."""

_MEMORY = (
    "can't allocate memory",  # torch
    "not enough memory",  # torch on Windows
    "std::bad_alloc",  # ONNX Runtime, and most of C++
    "bad allocation",  # the same on Windows
    "Failed to allocate memory",  # ONNX Runtime's arena
    "Cannot allocate memory",  # the C library's word for ENOMEM
    "failed to map segment from shared object",  # a library that is imported
    "can't start new thread",  # Python: there is no room for a stack
)
"""What libraries say in errors that are no MemoryError."""


def out_of_memory_message(error: BaseException) -> str | None:
    """What the library said that had no memory left, in one line; None for any other error."""
    for each in _chain(error):
        text = str(each).strip()
        is_known = isinstance(each, OSError | RuntimeError | ImportError | ValueError) or _is_native_error(each)
        if isinstance(each, MemoryError) or (is_known and any(words in text for words in _MEMORY)):
            return next((line for line in text.splitlines() if any(words in line for words in _MEMORY)), text[:200])
    return None


def is_disk_full(error: BaseException) -> bool:
    """Whether a file could not be written for want of room, in a quota or on the disk."""
    return any(_is_full_disk(each) for each in _chain(error))


def tightest_memory_limit() -> MemoryLimit:
    """The limit of memory that is most likely the reason."""
    return min(memory_limits(), key=lambda limit: limit.size)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error, and what it was raised from or while handling."""
    seen: set[int] = set()
    left: BaseException | None = error
    while left is not None and id(left) not in seen:
        seen.add(id(left))
        yield left
        left = left.__cause__ or left.__context__


def _is_full_disk(error: BaseException) -> bool:
    if isinstance(error, OSError):
        # numpy knows of a failed write only how much was written
        return error.errno in _DISK or (error.errno is None and "requested and" in str(error))
    return _is_native_error(error) and any(words in str(error) for words in _DISK_WORDS)


def _is_native_error(error: BaseException) -> bool:
    """Whether a library in C++ or Rust raised it, whose errors have classes of their own."""
    return type(error).__module__.partition(".")[0] in ("onnxruntime", "safetensors", "safetensors_rust", "torch")
