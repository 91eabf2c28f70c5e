"""A server whose model says what a test wants, and a browser that looks at its page."""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

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
    says: Callable[[str], Said], settings: Settings | None = None, vision: Any = None, **changes: Any
) -> Iterator[tuple[Running, Speaker]]:
    """Yield a server of a model that answers with what `says` gives for the prompt. vision: its `ImageReader`."""
    bundle, speaker, model = chat_bundle(**{"max_length": 200_000} | changes), Speaker(says), ServedModel("toy")
    bundle.vision = vision
    bundle.serve = lambda limits, observer, sessions: speaker
    model.start(bundle)
    with serving(model, settings) as running:
        yield running, speaker


@contextmanager
def chromium(*arguments: str) -> Iterator[Any]:
    """Yield a browser without a window, with the log of its console. Skips where there is none."""
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


class Page:
    """The page in a browser."""

    def __init__(self, driver, address: str) -> None:
        self.driver, self.address = driver, address
        driver.get(address)
        self.wait(lambda: self.run("return document.title") != "speccompile" or self.has("dialog[open]"))

    def run(self, script: str, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.text("body")
            time.sleep(0.02)

    def all(self, selector: str) -> list:
        return self.driver.find_elements("css selector", selector)

    def has(self, selector: str) -> bool:
        return bool(self.all(selector))

    def one(self, selector: str):
        (found,) = self.all(selector)
        return found

    def text(self, selector: str) -> str:
        return self.one(selector).text

    def click(self, selector: str, text: str | None = None) -> None:
        found = [each for each in self.all(selector) if text is None or each.text == text]
        found[-1].click()

    def keys(self, *keys: str) -> None:
        """Send keys to what has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def ask(self, text: str, *, wait: bool = True) -> None:
        self.one("#text").send_keys(text, "\ue007")
        if wait:
            self.wait_for_end()

    def wait_for_end(self) -> None:
        self.wait(lambda: self.text("#send") == "Send" and not self.has(".writing"))

    def answers(self) -> list[str]:
        return [each.text for each in self.all(".answer")]


@contextmanager
def talking(driver, says, settings=None, **changes) -> Iterator[tuple[Page, object]]:
    """Yield the page of a server, in an empty browser. At the end: no error on the console, no request to elsewhere."""
    with speaking(says, settings, **changes) as (running, speaker):
        driver.get_log("browser"), driver.get_log("performance")
        yield Page(driver, running.address), speaker
        driver.execute_script("localStorage.clear(); sessionStorage.clear()")
        noise = [entry["message"] for entry in driver.get_log("browser")]
        assert [each for each in noise if "the server responded with a status of" not in each] == []
        assert asked_hosts(driver) <= {urlsplit(running.address).netloc}
        driver.get("about:blank")


def asked_hosts(driver) -> set[str]:
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    return {urlsplit(url).netloc for url in sent if not url.startswith(("data:", "chrome"))}


def say(*texts):
    return lambda prompt: iter(texts)
