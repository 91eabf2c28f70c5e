"""Requests to a service by tasks of asyncio."""

import asyncio
import threading
from unittest.mock import patch

import pytest

from speccompile.errors import EngineError, PromptError
from speccompile.runtime import GenerationOptions
from speccompile.serving.scheduler import Limits, Service
from tests.light.serve_example import chat_bundle
from tests.light.toy_models import autoregressive

PROMPT = [3, 1, 4, 1, 5]


def test_requests_are_awaited_and_iterated_by_tasks():
    bundle = chat_bundle(batch_size=2)

    async def text_of(service, prompt):
        return "".join([delta.text async for delta in service.submit(prompt, max_new_tokens=20)])

    async def main():
        async with Service(bundle) as service:
            texts = await asyncio.gather(*(text_of(service, prompt) for prompt in (PROMPT, [9], [7, 7])))
            both = await service.submit(PROMPT, GenerationOptions(max_new_tokens=6), num_return_sequences=1)
            with pytest.raises(PromptError, match="the prompt is empty"):
                await service.submit([])
            return texts, both

    texts, both = asyncio.run(main())
    alone = chat_bundle()
    assert texts == [alone.generate(prompt, max_new_tokens=20).text for prompt in (PROMPT, [9], [7, 7])]
    assert [each.token_ids for each in both] == [autoregressive(PROMPT, 6)]
    assert bundle.generate(PROMPT, max_new_tokens=2).token_ids == autoregressive(PROMPT, 2)  # the service is closed


def test_a_task_that_leaves_cancels_its_request():
    bundle, gate = chat_bundle(), threading.Event()
    decode = bundle._loop.decode

    def gated():
        gate.wait(10)
        decode()

    async def main():
        async with Service(bundle, Limits()) as service:
            with patch.object(bundle._loop, "decode", gated):
                async with service.submit(PROMPT, max_new_tokens=100) as request:
                    async for _delta in request:
                        break
                waiting = service.submit(PROMPT, max_new_tokens=100)
                task = asyncio.ensure_future(waiting)
                await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                gate.set()
                assert (request.cancelled, waiting.cancelled) == (True, True)
                with service.submit(PROMPT, max_new_tokens=3) as ended:
                    assert (await ended)[0].finish_reason == "length"
                assert not ended.cancelled

    asyncio.run(asyncio.wait_for(main(), 30))


def test_an_error_of_the_engine_reaches_the_task():
    bundle = chat_bundle()

    async def main():
        async with Service(bundle) as service:
            with patch.object(bundle._loop, "decode", side_effect=EngineError("the GPU is gone")):
                await service.submit(PROMPT)

    with pytest.raises(EngineError, match="the GPU is gone"):
        asyncio.run(main())
