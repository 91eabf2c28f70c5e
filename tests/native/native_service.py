"""A scheduler of the C ABI, one request after the other."""

import ctypes
import json
from typing import Any

from tests.native.native_api import NativeBundle, NativeRequest, Prompt


class NativeService:
    """spc_scheduler. Requests share what was read."""

    def __init__(self, bundle: NativeBundle) -> None:
        self._bundle, self.library, self._handle = bundle, bundle.library, ctypes.c_void_p()
        self.library.spc_scheduler_create(bundle.handle, None, ctypes.byref(self._handle))

    def generate(self, prompt: Prompt, images: list[Any], **options: Any) -> dict[str, Any]:
        """Return the object of `generate --json` of a request, and cached_tokens."""
        found = self.finish(taken := self.submit(prompt, images, **options))
        self.library.spc_submission_free(taken)
        return found

    def submit(self, prompt: str, images: list[Any], **options: Any) -> ctypes.c_void_p:
        """Return the handle of a submission, which the caller frees."""
        request, taken = NativeRequest(self.library, [prompt], [], {"images": [images], **options}), ctypes.c_void_p()
        self.library.spc_scheduler_submit(self._handle, request.handle, None, ctypes.byref(taken))
        return taken

    def cancel(self, taken: ctypes.c_void_p) -> None:
        self.library.spc_submission_cancel(taken)

    def is_silent(self, taken: ctypes.c_void_p) -> bool:
        """Return whether a submission has nothing to tell yet; what it tells is dropped."""
        delta, done = ctypes.c_void_p(), ctypes.c_int()
        self.library.spc_submission_next(taken, 0.0, ctypes.byref(delta), ctypes.byref(done))
        self.library.spc_delta_free(delta)
        return not delta.value and not done.value

    def finish(self, taken: ctypes.c_void_p) -> dict[str, Any]:
        """Return the object of a submission's only sequence."""
        delta, done, found = ctypes.c_void_p(), ctypes.c_int(), dict[str, Any]()
        while not done.value:
            self.library.spc_submission_next(taken, -1.0, ctypes.byref(delta), ctypes.byref(done))
            if not delta.value:
                continue
            result = ctypes.c_void_p()
            self.library.spc_delta_result(delta, ctypes.byref(result))
            if result.value:
                found = json.loads(self.library.spc_result_json(result))
                self.library.spc_result_free(result)
            self.library.spc_delta_free(delta)
        return found

    def close(self) -> None:
        self.library.spc_scheduler_free(self._handle)
