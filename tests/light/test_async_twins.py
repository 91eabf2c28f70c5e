"""Twins of a bundle's methods for asyncio: what they give, who waits for whom, and what cancelling leaves."""

import asyncio
import time

import pytest

from speccompile.errors import EngineError, UsageError
from tests.light.serve_example import chat_bundle
from tests.light.toy_models import autoregressive

PROMPT = [3, 1, 4, 1, 5]
HELLO = [{"role": "user", "content": "Hello"}]


async def read(stream):
    return [piece async for piece in stream]


def test_twins_give_what_the_methods_give():
    bundle = chat_bundle(tokens=4)

    async def ask():
        one = await bundle.agenerate(PROMPT, max_new_tokens=12)
        both = await bundle.agenerate_batch([PROMPT], max_new_tokens=5)
        said = await bundle.achat(HELLO, max_new_tokens=6, chat_template_kwargs={"tone": "mild"})
        async with bundle.astream(PROMPT, max_new_tokens=12) as stream:
            pieces = await read(stream)
        answer = bundle.astream_chat(HELLO, max_new_tokens=6)
        return one, both[0], said, pieces, stream.generation, await read(answer)

    one, other, said, pieces, whole, answer = asyncio.run(ask())
    assert one.token_ids == whole.token_ids == autoregressive(PROMPT, 12)
    assert other.token_ids == autoregressive(PROMPT, 5)
    assert said.token_ids == bundle.chat(HELLO, max_new_tokens=6, chat_template_kwargs={"tone": "mild"}).token_ids
    assert "".join(pieces) == one.text == bundle.generate(PROMPT, max_new_tokens=12).text
    assert "".join(answer) == bundle.chat(HELLO, max_new_tokens=6).text


def slowed(bundle, seconds=0.02):
    """Let each round of a bundle take some time, outside the event loop's thread."""
    run = bundle._loop.generate

    def slow(*arguments):
        for each in run(*arguments):
            time.sleep(seconds)
            yield each

    bundle._loop.generate = slow
    return bundle


def test_the_event_loop_goes_on_and_tasks_wait_for_each_other():
    bundle = slowed(chat_bundle(tokens=4))

    async def ask():
        tasks = [asyncio.create_task(bundle.agenerate(PROMPT, max_new_tokens=8, autoregressive=True)) for _ in range(2)]
        turns = 0
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.005)
            turns += 1
        return turns, [(await task).token_ids for task in tasks]

    turns, tokens = asyncio.run(ask())
    assert turns > 10
    assert tokens == [autoregressive(PROMPT, 8)] * 2


def test_a_cancelled_task_ends_its_generation():
    bundle = slowed(chat_bundle(tokens=4))

    async def ask():
        task = asyncio.create_task(bundle.agenerate(PROMPT, max_new_tokens=90, autoregressive=True))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        start = time.perf_counter()
        found = await bundle.agenerate(PROMPT, max_new_tokens=3)
        return found.token_ids, time.perf_counter() - start

    tokens, seconds = asyncio.run(ask())
    assert tokens == autoregressive(PROMPT, 3)
    assert seconds < 0.02 * 45  # the other 90 rounds did not run


def test_a_piece_that_came_too_late_is_not_lost():
    bundle = slowed(chat_bundle(tokens=4), 0.03)

    async def ask():
        pieces, late = [], 0
        async with bundle.astream(PROMPT, max_new_tokens=6, autoregressive=True) as stream:
            while True:
                try:
                    pieces.append(await asyncio.wait_for(anext(stream), 0.01))
                except TimeoutError:
                    late += 1
                except StopAsyncIteration:
                    return pieces, late

    pieces, late = asyncio.run(ask())
    assert late
    assert pieces == list(bundle.stream(PROMPT, max_new_tokens=6, autoregressive=True))


def test_a_stream_that_is_left_or_closed_frees_the_bundle():
    bundle = chat_bundle(tokens=4)

    async def ask():
        async with bundle.astream(PROMPT, max_new_tokens=12) as stream:
            await anext(stream)
            assert repr(stream) == "<AsyncTextStream that has begun>"
        assert await read(stream) == []
        async for _ in bundle.astream(PROMPT, max_new_tokens=12):
            break
        return stream.generation, (await bundle.agenerate(PROMPT, max_new_tokens=3)).token_ids

    closed, tokens = asyncio.run(ask())
    assert closed.finish_reason == "cancelled"
    assert tokens == autoregressive(PROMPT, 3)


def test_what_would_wait_for_itself_is_refused():
    bundle = chat_bundle(tokens=4)

    async def ask():
        async with bundle.astream(PROMPT, max_new_tokens=12) as stream:
            await anext(stream)
            with pytest.raises(EngineError, match="in the middle of another stream"):
                await bundle.agenerate(PROMPT)
            with pytest.raises(EngineError, match="in the middle of another stream"):
                bundle.generate(PROMPT)
            other = asyncio.create_task(bundle.agenerate(PROMPT, max_new_tokens=3))
            await asyncio.sleep(0.02)
            assert not other.done()
            await stream.aclose()
            return (await other).token_ids

    assert asyncio.run(ask()) == autoregressive(PROMPT, 3)


def test_wrong_options_are_errors_of_the_twin():
    bundle = chat_bundle(tokens=4)

    async def ask():
        with pytest.raises(TypeError, match=r"^Bundle.agenerate\(\) got .* 'max_token'; did you mean 'max_new_tokens'"):
            await bundle.agenerate(PROMPT, max_token=3)
        with pytest.raises(TypeError, match=r"^Bundle.astream\(\) got an unexpected keyword argument 'stops'; did you"):
            bundle.astream(PROMPT, stops="x")
        with pytest.raises(UsageError, match="max_new_tokens is 0"):
            await bundle.agenerate_batch([PROMPT], max_new_tokens=0)
        with pytest.raises(UsageError, match="num_return_sequences"):
            await bundle.achat(HELLO, num_return_sequences=2)

    asyncio.run(ask())
