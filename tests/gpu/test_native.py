"""The runtime in C++ on a real GPU: ONNX Runtime's engines give the tokens that they give Python; others are refused.

Skipped, with the reason, where there is no GPU; scripts/gpu/check runs it.
"""

import pytest

from speccompile import native
from speccompile.bundle.prompts import read_prompts
from speccompile.errors import EngineError
from tests.gpu.machine import ROOT
from tests.native.native_api import NativeBundle

NEW_TOKENS = 48


@pytest.fixture(scope="module")
def libraries():
    found = native.locations()
    if found.library is None or found.onnxruntime is None:
        pytest.skip("the runtime in C++ is not compiled: python -m speccompile.native.packaging")
    return {"library": found.library, "onnxruntime": found.onnxruntime}


def test_tokens(opened, libraries):
    folder = opened.folder
    if opened.engine.backend != "onnxruntime":
        with pytest.raises(EngineError, match="this runtime has no backend"):
            NativeBundle(folder, engine="gpu", **libraries)
        return
    session = NativeBundle(folder, engine="gpu", **libraries).session()
    for prompt in list(read_prompts(ROOT / "recipes/demo/prompts.jsonl"))[:4]:
        for autoregressive in (False, True):
            options = {"max_new_tokens": NEW_TOKENS, "adaptive": False, "autoregressive": autoregressive}
            (ours,) = session.generate([prompt], **options)
            theirs = opened.bundle.generate(prompt, **options)
            assert ours["token_ids"] == theirs.token_ids
            assert ours["path_lengths"] == theirs.path_lengths
