"""Hostile bodies to a server of its own process: others are answered meanwhile, and it ends when it is told to."""

import json
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.light.test_cli_serve import ended, process, ready
from tests.light.test_serve_reading import ENDLESS, body, folder

__all__ = ["folder"]

AT_ONCE = 12
PATIENCE = 5.0
"""Seconds for /health on a slow machine that others use as well; alone it takes some hundredths. Without limits each of
these bodies takes longer."""
LIMITS = {"read-seconds": 1, "read-memory": 300, "grammar-bytes": 50_000, "header-bytes": 4096, "headers": 50,
          "header-seconds": 5, "body-seconds": 20, "connections": 60, "address-connections": 50}  # fmt: skip
LARGE = 4 * 2**20 - 1000
BODIES = {
    "divisors": ("/v1/completions", lambda number: body(guided_json=ENDLESS | {"title": str(number)})),
    "choices": ("/v1/completions", lambda number: body(guided_choice=[f"{number} {each}" for each in range(60000)])),
    "blanks": ("/v1/completions", lambda number: body(prompt=" " * LARGE)),
    "ids": ("/v1/completions", lambda number: body(prompt=[number] * (LARGE // 4))),
    "objects": ("/v1/completions", lambda number: b'{"prompt": 5, "y": [' + b"{}," * (LARGE // 3) + b"0]}"),
    "text to tokens": ("/tokenize", lambda number: body(prompt="a b" * (LARGE // 3))),
    "tokens to text": ("/detokenize", lambda number: json.dumps({"tokens": [97] * (LARGE // 4)}).encode()),
}  # fmt: skip


@pytest.mark.sweep("one more server for each kind of body", but=["divisors"])
@pytest.mark.parametrize("kind", BODIES)
def test_others_are_answered_beside_hostile_bodies(folder: Path, tmp_path: Path, kind: str) -> None:
    path, made = BODIES[kind]
    given = [word for name, value in LIMITS.items() for word in (f"--{name}", value)]
    with process(tmp_path / "gate", folder, "--port", 0, "--grace", 2, *given) as (running, address):
        server = ready(address)
        sent = [made(number) for number in range(AT_ONCE)]
        answered: list[int] = []

        def send(data: bytes) -> None:
            try:
                answered.append(server.ask("POST", path, data).status)
            except OSError:  # the server has ended
                answered.append(503)

        hostile = [threading.Thread(target=send, args=(data,), daemon=True) for data in sent]
        for each in hostile:
            each.start()
        worst, until = 0.0, time.monotonic() + 2
        while time.monotonic() < until and any(each.is_alive() for each in hostile):
            start = time.monotonic()
            assert server.ask("GET", "/health").status == 200
            worst = max(worst, time.monotonic() - start)
            assert server.post("/tokenize", prompt="x").status == 200
        assert worst < PATIENCE
        start = time.monotonic()
        running.send_signal(signal.SIGTERM)
        code, talk = ended(running)
        assert (code, "Traceback" in talk) == (0, False), talk
        assert time.monotonic() - start < 2 + PATIENCE
        for each in hostile:
            each.join(10)
        assert set(answered) <= {200, 400, 429, 503}
