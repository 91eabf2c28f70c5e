"""Measure a server with a minimal client, which needs no environment and little processor time."""

import asyncio
import json
import time
from pathlib import Path
from statistics import mean, quantiles

import httpx2
from figures import Figures, Job


def measure(environment: Path, job: Job) -> Figures:
    """Measure by httpx2. Raise httpx2.HTTPError where a request fails."""
    return asyncio.run(_measure(job))


async def _measure(job: Job) -> Figures:
    lines = [json.loads(line) for line in job.prompts.read_text(encoding="utf-8").splitlines()]
    left = iter(range(job.requests))
    firsts, gaps, counts = list[float](), list[float](), list[int]()
    async with httpx2.AsyncClient(base_url=job.address, timeout=600) as client:

        async def user() -> None:
            for number in left:
                first, gap, count = await _ask(client, lines[number % len(lines)]["prompt"], job.tokens)
                firsts.append(first)
                gaps.append(gap)
                counts.append(count)

        start = time.perf_counter()
        await asyncio.gather(*(user() for _ in range(job.users)))
        seconds = time.perf_counter() - start
    first, gap = (quantiles(values, n=20, method="inclusive") for values in (firsts, gaps))
    return Figures(job.requests / seconds, first[9], first[18], gap[9], gap[18], mean(counts))


async def _ask(client: httpx2.AsyncClient, prompt: str, tokens: int) -> tuple[float, float, int]:
    """Return the milliseconds to the first token, those for each token behind it, and the number of tokens."""
    body = {"prompt": prompt, "max_tokens": tokens, "stream": True, "stream_options": {"include_usage": True},
            "ignore_eos": True}  # fmt: skip
    start, times, count = time.perf_counter(), list[float](), 0
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line[6:])
            if event["choices"]:
                times.append(time.perf_counter())
            if event.get("usage"):
                count = event["usage"]["completion_tokens"]
    first, last = times[0] - start, times[-1] - times[0]
    return 1000 * first, 1000 * last / max(1, count - 1), count
