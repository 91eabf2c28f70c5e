"""Pictures on the page of `speccompile serve` in Chromium: dropped, pasted, chosen, kept, and sent with a message."""

import base64
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from speccompile.runtime.images.limits import MAX_BYTES
from speccompile.runtime.images.reader import SeenPrompt
from speccompile.serving.http import images
from tests.light.page_example import Page, say, speaking, talking
from tests.light.serve_example import toy_text

pytestmark = pytest.mark.sweep("starts a browser")

BRING = """
const [kind, files] = arguments, data = new DataTransfer();
for (const [name, type, text] of files)
  data.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name, { type }));
const init = { bubbles: true, cancelable: true, [kind === "paste" ? "clipboardData" : "dataTransfer"]: data };
document.getElementById("text").dispatchEvent(new (kind === "paste" ? ClipboardEvent : DragEvent)(kind, init));
"""


class Seen:
    """Stands for a picture that is read; equal to its file."""

    image = np.zeros((1, 1, 3), np.uint8)

    def __init__(self, file: bytes) -> None:
        self.file = file

    def __eq__(self, other: object) -> bool:
        return self.file == other

    __hash__ = None  # type: ignore[assignment]


class Sight:
    """Stands for the reader of a bundle with images; the test is the model."""

    settings = SimpleNamespace(placeholders=("<image>",))

    def pictures(self, sources: Any) -> list[Seen]:
        return list(map(Seen, sources))

    def prompt(self, text: str, pictures: Any, **_: Any) -> SeenPrompt:
        return SeenPrompt(toy_text().encode(text, special_tokens=False), None)


def png(colour: str) -> bytes:
    data = BytesIO()
    Image.new("RGB", (40, 24), colour).save(data, "png")
    return data.getvalue()


def bring(page: Page, kind: str, *files: tuple[str, str, bytes]) -> None:
    page.run(BRING, kind, [(name, media, base64.b64encode(data).decode()) for name, media, data in files])


def shown(page: Page, place: str) -> list[str]:
    return [each.get_attribute("alt") for each in page.all(f"{place} img")]


def test_pictures_are_dropped_pasted_and_sent_with_the_message(driver):
    red, blue, green = map(png, ("red", "blue", "green"))
    with talking(driver, say("colours"), vision=Sight()) as (page, speaker):
        bring(page, "dragover", ("red.png", "image/png", red))
        assert page.has("body.dropping")
        bring(page, "drop", ("red.png", "image/png", red), ("blue.png", "image/png", blue))
        page.wait(lambda: shown(page, "#pictures") == ["red.png", "blue.png"])
        assert not page.has("body.dropping")
        bring(page, "paste", ("green.png", "image/png", green))
        page.wait(lambda: shown(page, "#pictures") == ["red.png", "blue.png", "green.png"])
        page.click("#pictures li:nth-child(2) button")
        page.wait(lambda: shown(page, "#pictures") == ["red.png", "green.png"])
        page.ask("Which colours?")
        assert (speaker.asked[0]["images"], shown(page, ".seen")) == ([red, green], ["red.png", "green.png"])
        assert not page.one("#pictures").is_displayed()
        page.ask("And now?")  # what was shown before stays in the conversation
        assert speaker.asked[1]["images"] == [red, green]
        driver.refresh()
        page.wait(lambda: shown(page, ".seen") == ["red.png", "green.png"])
        page.click(".doing button", "Regenerate")
        page.wait(lambda: len(speaker.asked) == 3)
        page.wait_for_end()
        assert speaker.asked[2]["images"] == [red, green]


def test_a_picture_alone_is_a_message_and_editing_brings_it_back(driver):
    with talking(driver, say("a square"), vision=Sight()) as (page, speaker):
        assert not page.one("#send").is_enabled()
        bring(page, "drop", ("one.png", "image/png", png("red")))
        page.wait(lambda: page.one("#send").is_enabled())
        page.click("#send")
        page.wait(lambda: len(speaker.asked) == 1)
        page.wait_for_end()
        page.click(".doing button", "Edit")
        page.wait(lambda: shown(page, "#pictures") == ["one.png"])
        page.ask("What is it?")
        assert len(page.all("article")) == 1
        assert speaker.asked[1]["images"] == [png("red")]


def test_what_is_no_picture_is_told_of(driver):
    with talking(driver, say("x"), vision=Sight()) as (page, _):
        bring(page, "drop", ("notes.txt", "text/plain", b"words"), ("one.png", "image/png", png("red")))
        page.wait(lambda: page.text("#notice") == "notes.txt: expected a picture.")
        assert shown(page, "#pictures") == ["one.png"]


def test_a_picture_that_the_browser_has_no_room_for_is_told_of(driver):
    noise = (b"\x89PNG" + bytes(range(256)) * (6 << 12), "image/png")  # 6 MiB: a browser keeps 5 of a site
    with talking(driver, say("much"), vision=Sight()) as (page, speaker):
        bring(page, "drop", ("big.png", noise[1], noise[0]))
        page.wait(lambda: shown(page, "#pictures") == ["big.png"])
        page.ask("What is it?")
        assert speaker.asked[0]["images"] == [noise[0]]  # more than a request of text may have
        assert page.text("#notice").startswith("This browser has no room for the pictures")
        driver.refresh()
        page.wait(lambda: page.has(".lost") and page.text(".lost").startswith("big.png: this browser has not kept it"))
        page.ask("And now?")
        assert "images" not in speaker.asked[1]


def test_a_model_that_sees_nothing_is_given_nothing(driver):
    with talking(driver, say("x")) as (page, _):
        bring(page, "drop", ("one.png", "image/png", png("red")))
        page.ask("x")
        assert not page.one("#add-pictures").is_displayed()
        assert not page.has("#pictures img")
        assert not page.has(".seen")


def test_a_request_has_room_for_the_largest_picture():
    assert images.MOST_BODY_BYTES > MAX_BYTES * 4 / 3
    with speaking(say("x"), vision=Sight()) as (running, _):
        url = "data:image/png;base64," + "A" * images.MOST_BODY_BYTES
        content = [{"type": "image_url", "image_url": {"url": url}}]
        answered = running.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": content}]})
    assert (answered.status, answered.error["code"]) == (413, "body_too_large")
