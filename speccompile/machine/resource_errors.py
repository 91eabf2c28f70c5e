"""Recognize out-of-memory and disk-full errors, from any library and behind any chain of exceptions."""

import errno
from collections.abc import Iterator

from speccompile.machine.system import MemoryLimit, memory_limits

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_DISK_WORDS = ("No space left on device", "Disk quota exceeded", "File too large")
"""The C library's words for these errors, which a library may raise without the number."""

_MEMORY = (
    "can't allocate memory",  # torch
    "not enough memory",  # torch on Windows
    "std::bad_alloc",  # ONNX Runtime, and most of C++
    "bad allocation",  # the same on Windows
    "Failed to allocate memory",  # ONNX Runtime's arena
    "Cannot allocate memory",  # the C library's word for ENOMEM
    "failed to map segment from shared object",  # a library that is imported
    "can't start new thread",  # Python: there is no room for a stack
    "ThreadPoolBuildError",  # tokenizers: the same
)
"""Messages of out-of-memory errors that are no MemoryError."""


def out_of_memory_message(error: BaseException) -> str | None:
    """Return the one-line message of an out-of-memory error, or None for other errors."""
    for each in _chain(error):
        text = str(each).strip()
        is_known = isinstance(each, OSError | RuntimeError | ImportError | ValueError) or _is_native_error(each)
        if isinstance(each, MemoryError) or (is_known and any(words in text for words in _MEMORY)):
            return next((line for line in text.splitlines() if any(words in line for words in _MEMORY)), text[:200])
    return None


def is_disk_full(error: BaseException) -> bool:
    """Return whether a write failed because a quota or the disk is full."""
    return any(_is_full_disk(each) for each in _chain(error))


def tightest_memory_limit() -> MemoryLimit:
    """Return the smallest memory limit, which is the most likely cause."""
    return min(memory_limits(), key=lambda limit: limit.size)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and its causes and contexts."""
    seen: set[int] = set()
    left: BaseException | None = error
    while left is not None and id(left) not in seen:
        seen.add(id(left))
        yield left
        left = left.__cause__ or left.__context__


def _is_full_disk(error: BaseException) -> bool:
    if isinstance(error, OSError):
        # numpy's error of a failed write has only the number of items, no errno
        return error.errno in _DISK or (error.errno is None and "requested and" in str(error))
    return _is_native_error(error) and any(words in str(error) for words in _DISK_WORDS)


def _is_native_error(error: BaseException) -> bool:
    """Return whether a C++ or Rust library raised the error: these have their own exception classes."""
    return type(error).__module__.partition(".")[0] in (
        "onnxruntime", "pyo3_runtime", "safetensors", "safetensors_rust", "torch",
    )  # fmt: skip
