"""A server whose model says what a test wants, and a browser that looks at its page."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from speccompile.serving.http.app import Settings
from speccompile.serving.http.model import ServedModel
from speccompile.serving.scheduler import OutputDelta, Request
from tests.light.serve_example import Running, chat_bundle, serving, toy_text
from tests.light.test_serve_lives import generation

Said = Iterator[str | None]
"""Texts of rounds; None is a place where the model waits until the test lets it go on."""


class Speaker:
    """A service that says texts round by round: of each, all bytes but the last are accepted draft tokens."""

    def __init__(self, says: Callable[[str], Said]) -> None:
        self.says, self.failure, self.error = says, None, None  # says: prompt -> texts
        self.asked: list[dict[str, Any]] = []
        self.requests: list[Request] = []
        self.go_on = threading.Event()

    def submit(self, prompt: list[int], **options: Any) -> Request:
        if self.error is not None:
            raise self.error
        request = Request(1)
        self.requests.append(request)
        self.asked.append(options | {"prompt": toy_text().decode(prompt)})
        threading.Thread(target=self._speak, args=(request, self.says(self.asked[-1]["prompt"])), daemon=True).start()
        return request

    def close(self, *, drain: bool = True, timeout: float | None = None) -> None:
        self.go_on.set()

    def _speak(self, request: Request, said: Said) -> None:
        whole, paths, drafts, tokens = "", [], [], []
        try:
            for text in said:
                while text is None and not self.go_on.wait(0.01) and not request.cancelled:
                    pass
                if text is None or request.cancelled:
                    self.go_on.clear()
                    continue
                ids = toy_text().encode(text, special_tokens=False)
                drafted = len(ids) if whole else 0  # the first text is the prefill's
                request.deliver(OutputDelta(0, text, ids, draft_tokens=drafted, accepted=max(0, drafted - 1)))
                whole, tokens = whole + text, tokens + ids
                paths, drafts = [*paths, len(ids)], [*drafts, drafted]
        except Exception as error:  # noqa: BLE001 -- a test may raise anything there
            request.deliver(error)
            return
        given = {"path_lengths": paths[1:], "draft_lengths": drafts[1:], "round_seconds": [0.01] * (len(paths) - 1)}
        reason = "cancelled" if request.cancelled else "stop"
        request.deliver(OutputDelta(0, "", [], generation=generation(whole, tokens, reason, **given)))


@contextmanager
def speaking(
    says: Callable[[str], Said], settings: Settings | None = None, **changes: Any
) -> Iterator[tuple[Running, Speaker]]:
    """A server of a model that answers with what `says` gives for the prompt."""
    bundle, speaker, model = chat_bundle(**{"max_length": 200_000} | changes), Speaker(says), ServedModel("toy")
    bundle.serve = lambda limits, observer: speaker
    model.start(bundle)
    with serving(model, settings) as running:
        yield running, speaker


@contextmanager
def chromium(*arguments: str) -> Iterator[Any]:
    """A browser without a window, with the log of its console. Skips where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install 'speccompile[dev]'")
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("needs Chromium and its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", *arguments):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield running
    finally:
        running.quit()
