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
        request = NativeRequest(self.library, [prompt], [], {"images": [images], **options})
        taken, delta, done = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
        self.library.spc_scheduler_submit(self._handle, request.handle, None, ctypes.byref(taken))
        found = {}
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
        self.library.spc_submission_free(taken)
        return found

    def close(self) -> None:
        self.library.spc_scheduler_free(self._handle)
