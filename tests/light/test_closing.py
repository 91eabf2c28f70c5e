"""Bundles and streams that are closed: what they release, and what is refused then."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import pytest

from speccompile.errors import EngineError
from speccompile.runtime.rounds.decode_loop import DecodeLoop
from tests.light.serve_example import chat_bundle
from tests.light.toy_models import autoregressive

PROMPT = [3, 1, 4, 1, 5]
CHAT = [{"role": "user", "content": "ab"}]


USES = {
    "generate": lambda bundle: bundle.generate(PROMPT),
    "generate_batch": lambda bundle: bundle.generate_batch([PROMPT]),
    "stream": lambda bundle: bundle.stream(PROMPT),
    "chat": lambda bundle: bundle.chat(CHAT),
    "stream_chat": lambda bundle: bundle.stream_chat(CHAT),
    "serve": lambda bundle: bundle.serve(),
    "reset": lambda bundle: bundle.reset(),
    "save_kept": lambda bundle: bundle.save_kept("nowhere"),
    "load_kept": lambda bundle: bundle.load_kept("nowhere"),
    "with": lambda bundle: bundle.__enter__(),
    "engine": lambda bundle: bundle.engine.memory(),
    "speculative": lambda bundle: bundle.speculative,
}


@pytest.mark.parametrize("use", USES)
def test_a_closed_bundle_refuses(use):
    bundle = chat_bundle()
    begun, later = bundle.generate(PROMPT, max_new_tokens=3), bundle.stream(PROMPT)
    bundle.close()
    bundle.close()
    for each in (USES[use], lambda _: next(later)):
        with pytest.raises(EngineError, match=r"^this bundle is closed$") as caught:
            each(bundle)
        assert caught.value.hint == "open it again: load(folder)"
    assert repr(bundle).endswith(", closed>")
    assert (bundle.token_ids(PROMPT), begun.token_ids) == (PROMPT, autoregressive(PROMPT, 3))


def test_a_closed_bundle_releases_its_engine_whatever_is_left_of_it():
    with chat_bundle(batch_size=2) as bundle:
        engine = weakref.ref(bundle.engine)
        bundle.engine.itself = bundle.engine  # a cycle, as in engines on a GPU
        stream = bundle.stream(PROMPT)
        next(stream)
        stream.close()
        with bundle.serve() as service:
            service.submit(PROMPT).generations()
        left = (bundle, stream, service, bundle.generate(PROMPT))
    assert (engine(), len(left)) == (None, 4)


def test_the_end_of_a_block_ends_its_stream_and_raises_its_error():
    bundle = chat_bundle()
    stream = bundle.stream(PROMPT, max_new_tokens=100)
    with pytest.raises(ZeroDivisionError), bundle:
        _ = next(stream) + str(1 / 0)
    assert stream.generation.finish_reason == "cancelled"
    assert list(stream) == []


def test_a_generation_of_another_thread_goes_on_to_its_end():
    bundle, begun, closed = chat_bundle(), threading.Event(), threading.Event()
    engine, whole = weakref.ref(bundle.engine), DecodeLoop.decode

    def slow(loop):
        begun.set()
        closed.wait(10)
        whole(loop)

    with patch.object(DecodeLoop, "decode", slow), ThreadPoolExecutor(1) as other:
        running = other.submit(bundle.generate, PROMPT, max_new_tokens=20)
        begun.wait(10)
        bundle.close()
        with pytest.raises(EngineError, match="this bundle is closed"):
            bundle.generate(PROMPT)
        assert engine() is not None
        closed.set()
        assert running.result(10).token_ids == autoregressive(PROMPT, 20)
    gc.collect()
    assert engine() is None


def test_a_bundle_that_serves_is_not_closed():
    bundle = chat_bundle()
    with bundle.serve() as service:
        with pytest.raises(EngineError, match="this bundle serves requests"):
            bundle.close()
        assert service.submit(PROMPT, max_new_tokens=3).generations()[0].token_ids == autoregressive(PROMPT, 3)
    bundle.close()


def test_a_stream_that_nobody_refers_to_frees_the_bundle():
    bundle = chat_bundle()
    gc.disable()  # by counting references alone, at once
    try:
        for _piece in bundle.stream(PROMPT):
            break
        assert bundle.generate(PROMPT, max_new_tokens=3).token_ids == autoregressive(PROMPT, 3)
    finally:
        gc.enable()


def test_a_stream_is_closed_by_its_block():
    bundle = chat_bundle()
    with bundle.stream(PROMPT, max_new_tokens=50, adaptive=False) as stream:
        assert iter(stream) is stream
        first = next(stream)
        assert stream.generation is None
    begun = stream.generation
    assert begun.text.startswith(first)
    assert begun.token_ids == autoregressive(PROMPT, 50)[: len(begun.token_ids)]
    assert (begun.finish_reason, list(stream), stream.generation) == ("cancelled", [], begun)
    with bundle.stream(PROMPT, max_new_tokens=5) as stream:
        whole = "".join(stream)
    assert (stream.generation.text, stream.generation.finish_reason) == (whole, "length")
    untouched = bundle.stream(PROMPT)
    untouched.close()
    assert untouched.generation is None


def test_a_stream_that_fails_has_no_generation():
    bundle = chat_bundle()
    stream = bundle.stream(PROMPT)
    next(stream)
    with patch.object(bundle._loop, "decode", side_effect=EngineError("the GPU is gone")), pytest.raises(EngineError):
        list(stream)
    assert (list(stream), stream.generation) == ([], None)
    stream.close()
    assert stream.generation is None
