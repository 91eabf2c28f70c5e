#!/usr/bin/env python3
"""Serve a bundle to random clients for a long time: no wrong answer, no stuck row, no growing memory. JSON on stdout.

    .venv/bin/python scripts/serving/soak.py build/demo --minutes 30 --threads 2 > soak.json
    .venv/bin/python scripts/serving/soak.py build/demo --program speccompile-native        the server in C++

Clients ask for whole answers and streams, read slowly, hang up in the middle, send bad JSON, bodies of random fields
and prompts that are far too long, and every minute 200 of them come at once. Every whole answer is compared with what
`Bundle.generate` gives alone; every request must be answered once, with a status that its kind may have. Memory is the
server's own (anonymous), at rest: every three minutes all clients wait until nothing is asked any more, for a prompt
that is far too long takes a hundred megabytes while it is read. What counts is what the last third has at least above
the middle one. At the end the server is killed under load and started again: what was not in flight must have been
answered, and the next answer be right.

Exit code 1 where any of that fails; `--minutes 1` tries the script.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

import httpx2
from servers import OURS, Server, serving

from speccompile.runtime import Bundle

TOKENS = 48
BURST, BURST_EVERY = 200, 60.0
REST_EVERY, REST = 180.0, 2.0
GROWTH = 1.05
MAY = {
    "whole": {200, 429}, "stream": {200, 429}, "slow": {200, 429}, "hang up": {200, 429}, "bad json": {400},
    "random": {200, 400, 404, 429}, "huge": {400}, "burst": {200, 429},
}  # fmt: skip
"""Kind of a client -> statuses that it may get."""
TAKEN = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")
WEIGHTS = {"whole": 4, "stream": 4, "slow": 1, "hang up": 2, "bad json": 1, "random": 1, "huge": 1}


class Soak:
    """Random clients of one server, and counts of their answers. wrong: descriptions of all failures."""

    def __init__(self, address: str, right: dict[str, str], seed: int) -> None:
        """right: prompt -> its expected text."""
        self.client = httpx2.AsyncClient(base_url=address, timeout=600, limits=httpx2.Limits(max_connections=None))
        self.right, self.random = right, random.Random(seed)
        self.statuses: Counter[str] = Counter()
        self.asked = self.answered = self.flying = 0
        self.going = asyncio.Event()
        self.wrong: list[str] = []

    async def ask(self, kind: str) -> None:
        """Run one client of a kind until it ends."""
        self.asked += 1
        self.flying += 1
        prompt = self.random.choice(list(self.right))
        try:
            status = await getattr(self, f"_{kind.replace(' ', '_')}")(prompt)
        except httpx2.HTTPError as error:
            self.wrong.append(f"{kind}: {type(error).__name__} {error}")
            return
        finally:
            self.flying -= 1
        self.answered += 1
        self.statuses[f"{kind}: {status}"] += 1
        if status not in MAY[kind]:
            self.wrong.append(f"{kind}: status {status}")

    async def _whole(self, prompt: str) -> int:
        answer = await self.client.post("/v1/completions", json=_body(prompt))
        if answer.status_code == 200:
            self._compare(prompt, answer.json()["choices"][0]["text"])
        return answer.status_code

    _burst = _whole

    async def _stream(self, prompt: str, pause: float = 0.0, pieces: int = 10**9) -> int:
        found = ""
        async with self.client.stream("POST", "/v1/completions", json=_body(prompt) | {"stream": True}) as answer:
            if answer.status_code != 200:
                return answer.status_code
            async for line in answer.aiter_lines():
                if line == "data: [DONE]":
                    break
                if line.startswith("data: "):
                    found += json.loads(line[6:])["choices"][0]["text"]
                    pieces -= 1
                    await asyncio.sleep(pause)
                if not pieces:
                    return answer.status_code  # and the connection is closed
        self._compare(prompt, found)
        return 200

    async def _slow(self, prompt: str) -> int:
        return await self._stream(prompt, pause=self.random.uniform(0.05, 0.5))

    async def _hang_up(self, prompt: str) -> int:
        return await self._stream(prompt, pieces=self.random.randint(1, 4))

    async def _bad_json(self, prompt: str) -> int:
        torn = json.dumps(_body(prompt))[: self.random.randint(1, 20)]
        answer = await self.client.post("/v1/completions", content=torn, headers={"Content-Type": "application/json"})
        return answer.status_code

    async def _random(self, prompt: str) -> int:
        values = [None, -1, 0, 1.5, "x", [], {}, [[1]], True, 10**30]
        fields = ["max_tokens", "stop", "n", "seed", "logprobs", "stream", "temperature", "top_p", "prompt", "echo"]
        body = _body(prompt) | {self.random.choice(fields): self.random.choice(values) for _ in range(3)}
        return (await self.client.post("/v1/completions", json=body)).status_code

    async def _huge(self, prompt: str) -> int:
        return (await self.client.post("/v1/completions", json=_body(prompt * 3000))).status_code

    def _compare(self, prompt: str, text: str) -> None:
        if text != self.right[prompt]:
            self.wrong.append(f"a wrong text behind {prompt[:40]!r}: {text[:80]!r}")

    async def run(self, seconds: float, users: int, memory: list[int], process: int) -> None:
        """Run `users` concurrent clients and bursts for some seconds. memory: gets the server's bytes at every rest."""
        end = time.monotonic() + seconds

        async def user() -> None:
            while time.monotonic() < end:
                await self.going.wait()
                (kind,) = self.random.choices(list(WEIGHTS), WEIGHTS.values())
                await self.ask(kind)

        async def bursts() -> None:
            while time.monotonic() < end:
                await self.going.wait()
                await asyncio.gather(*(self.ask("burst") for _ in range(BURST)))
                await asyncio.sleep(max(0.0, min(BURST_EVERY, end - time.monotonic())))

        async def rests() -> None:
            while time.monotonic() < end:
                self.going.set()
                await asyncio.sleep(max(0.0, min(REST_EVERY, end - time.monotonic())))
                self.going.clear()
                while self.flying:
                    await asyncio.sleep(0.1)
                await asyncio.sleep(REST)
                memory.append(anonymous(process))
                print(f"{self.answered} answered, {memory[-1] / 1e6:.1f} MB at rest", file=sys.stderr, flush=True)
            self.going.set()  # who waits to ask sees that it is over

        await asyncio.gather(rests(), bursts(), *(user() for _ in range(users)))
        await self._settled()

    async def _settled(self) -> None:
        """Check that no batch slot is taken after all clients have left."""
        counts = list[str]()
        for _ in range(100):
            lines = (await self.client.get("/metrics")).text.splitlines()
            counts = [line for line in lines if line.startswith(TAKEN)]
            if counts and all(line.endswith(" 0.0") for line in counts):
                return
            await asyncio.sleep(0.1)
        self.wrong.append(f"rows are taken, and nobody asks: {counts}")


def _body(prompt: str) -> dict[str, object]:
    return {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0}


def anonymous(process: int) -> int:
    """Return the bytes of a process's anonymous memory."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


async def soak(server: Server, right: dict[str, str], arguments: argparse.Namespace) -> dict[str, object]:
    """Return the figures of one run on a server."""
    run, memory = Soak(server.address, right, arguments.seed), list[int]()
    await run.run(60 * arguments.minutes, arguments.users, memory, server.process.pid)
    third = len(memory) // 3
    warm, last = min(memory[third : 2 * third or None]), min(memory[2 * third :])
    if last > warm * GROWTH:
        run.wrong.append(f"memory grew from {warm} bytes in the middle third to {last} in the last")
    if run.asked != run.answered:
        run.wrong.append(f"{run.asked} requests, {run.answered} answers")
    return {
        "minutes": arguments.minutes, "asked": run.asked, "answered": run.answered,
        "statuses": dict(sorted(run.statuses.items())), "memory": memory, "wrong": run.wrong,
    }  # fmt: skip


async def killed(server: Server, right: dict[str, str], seed: int) -> dict[str, object]:
    """Kill a server under load. Check that its answers so far are right, and that other clients get an error."""
    run = Soak(server.address, right, seed)
    clients = [asyncio.create_task(run.ask(kind)) for kind in ("whole", "stream") * 20]
    while run.answered < len(clients) // 4:
        await asyncio.sleep(0.01)
    server.process.kill()
    await asyncio.gather(*clients)
    lost = run.asked - run.answered
    return {"asked": run.asked, "answered": run.answered, "lost": lost, "wrong": run.wrong[lost:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--prompts", type=Path, default=Path("recipes/demo/prompts.jsonl"))
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--users", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--program", help="of the server; by default that in Python")
    arguments = parser.parse_args()
    prompts = [json.loads(line)["prompt"] for line in arguments.prompts.read_text(encoding="utf-8").splitlines()]
    bundle = Bundle.open(arguments.bundle, threads=1)
    right = {prompt: str(bundle.generate(prompt, max_new_tokens=TOKENS).text) for prompt in prompts}
    del bundle
    options, program = ["--threads", str(arguments.threads)], (arguments.program,) if arguments.program else OURS
    with serving(arguments.bundle, options, program) as server:
        found = asyncio.run(soak(server, right, arguments))
    with serving(arguments.bundle, options, program) as server:
        found["killed"] = died = asyncio.run(killed(server, right, arguments.seed))
    with serving(arguments.bundle, options, program) as server:
        again = Soak(server.address, right, arguments.seed)
        asyncio.run(again.ask("whole"))
    print(json.dumps(found, indent=2))
    sys.exit(bool(found["wrong"] or died["wrong"] or again.wrong))


if __name__ == "__main__":
    main()
