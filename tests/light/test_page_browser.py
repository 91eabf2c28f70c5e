"""The page of `speccompile serve` in Chromium, over a model that says what the test wants."""

import re
import time

import pytest

from speccompile.errors import OverloadedError, UsageError
from speccompile.serving.http.app import Settings
from speccompile.serving.http.keys import Keys
from speccompile.serving.http.model import ServedModel
from tests.light.page_example import Page, say, speaking, talking
from tests.light.serve_example import chat_bundle, serving

pytestmark = pytest.mark.sweep("starts a browser")


def gated(prompt):
    yield from ("One two ", "three. ")
    yield None
    yield from ("four ", "five.")


def waits(prompt):
    yield None


def test_an_answer_comes_piece_by_piece_with_drafts_and_numbers(driver):
    with talking(driver, gated) as (page, speaker):
        page.ask("Count **up**", wait=False)
        page.wait(lambda: page.answers() == ["One two three."])
        assert page.text(".asked") == "Count **up**"
        assert page.text("#send") == "Stop"
        speaker.go_on.set()
        page.wait_for_end()
        assert page.answers() == ["One two three. four five."]
        assert page.run("return document.querySelector('[aria-live=polite]').textContent") == page.answers()[0]
        assert [each.text for each in page.all(".answer .d")] == ["three.", "four", "five"]
        assert re.match(r"25 tokens · [\d.,]+ tokens/s · acceptance length 5.67", page.text(".stats summary"))
        page.click(".stats summary")
        assert "1 100 % 3 of 3 rounds" in page.text(".stats")
        assert speaker.asked[0]["prompt"].endswith("user:Count **up**\nassistant:")
        page.ask("Again", wait=False)
        page.wait(lambda: len(speaker.asked) == 2)
        assert "user:Count **up**\nassistant:One two three. four five.\nuser:Again\n" in speaker.asked[1]["prompt"]


def test_escape_and_the_button_stop_it_and_free_the_server(driver):
    with talking(driver, gated) as (page, speaker):
        for place, stop in enumerate((lambda: page.keys("\ue00c"), lambda: page.click("#send"))):
            page.ask("Count", wait=False)
            page.wait(lambda place=place: len(page.answers()) > place and page.answers()[place] == "One two three.")
            stop()
            page.wait_for_end()
            page.wait(lambda place=place: speaker.requests[place].cancelled)
            assert page.all("article")[place].find_element("css selector", ".end").text == "You stopped the answer."


def test_regenerate_edit_and_keys(driver):
    with talking(driver, lambda prompt: iter([f"{prompt.count('user:')} {len(prompt)}"])) as (page, speaker):
        page.one("#text").send_keys("a", "\ue008", "\ue007", "\ue000", "b")
        assert page.run("return document.getElementById('text').value") == "a\nb"
        page.keys("\ue007")
        page.wait_for_end()
        assert "user:a\nb\n" in speaker.asked[0]["prompt"]
        page.click(".doing button", "Regenerate")
        page.wait(lambda: len(speaker.asked) == 2)
        page.wait_for_end()
        assert speaker.asked[1]["prompt"] == speaker.asked[0]["prompt"]
        assert len(page.all("article")) == 1
        page.keys("\ue013")  # up
        assert page.run("return document.getElementById('text').value") == "a\nb"
        page.keys("c\ue007")
        page.wait_for_end()
        assert speaker.asked[2]["prompt"].count("user:") == 1
        assert page.text(".asked") == "a\nbc"


def test_errors_are_said_and_tried_again(driver):
    with talking(driver, say("fine")) as (page, speaker):
        speaker.error = OverloadedError("64 requests wait already", retry_after=1)
        page.ask("x")
        assert page.text(".failed strong") == "The server is busy"
        assert "64 requests wait already" in page.text(".failed p")
        assert page.text(".failed button") in ("Try again in 1 s", "Try again")
        speaker.error = UsageError("this prompt is too long", hint="shorten it")
        page.wait(lambda: page.one(".failed button").is_enabled())
        page.click(".failed button")
        page.wait(lambda: page.has(".failed") and "hint: shorten it" in page.text(".failed p"))
        assert page.text(".failed strong") == "The server cannot answer this"
        speaker.error = None
        page.click(".failed button")
        page.wait(lambda: page.answers() == ["fine"])
        page.wait_for_end()
        assert not page.has(".failed")
        assert len(page.all("article")) == 1


def test_an_error_in_the_middle_keeps_what_came(driver):
    def fails(prompt):
        yield "half an "
        raise RuntimeError("secret detail")

    with talking(driver, fails) as (page, _):
        page.ask("x")
        assert page.answers() == ["half an"]
        assert page.text(".failed strong") == "The server ended the answer"
        assert "secret" not in page.text("body")


def test_an_answer_is_kept_until_another_begins(driver):
    def fails(prompt):
        yield "half **an** "
        raise RuntimeError

    with talking(driver, fails) as (page, speaker):
        page.ask("x")
        speaker.error = UsageError("this prompt is too long")
        page.click(".failed button")
        page.wait(lambda: page.has(".failed") and "too long" in page.text(".failed p"))
        assert page.answers() == ["half an"]
        speaker.error, speaker.says = None, gated
        page.click(".failed button")
        page.wait(lambda: page.answers() == ["One two three."])
        speaker.go_on.set()
        page.wait_for_end()
        speaker.error = UsageError("no")
        page.click(".doing button", "Regenerate")
        page.wait(lambda: page.has(".failed"))
        assert page.answers() == ["One two three. four five."]
        assert page.has(".answer .d")
        speaker.error, speaker.says = None, waits
        page.click(".failed button")
        page.wait(lambda: page.text("#send") == "Stop" and page.answers() == [""])
        driver.refresh()
        page.wait(lambda: page.answers() == ["One two three. four five."])
        page.click(".failed button")
        page.wait(lambda: page.text("#send") == "Stop")
        page.click("#send")
        page.wait_for_end()
        assert page.answers() == ["One two three. four five."]
        assert page.text(".failed p") == "no"


def test_a_server_that_goes_away_is_told_of(driver):
    with speaking(gated) as (running, speaker):
        page = Page(driver, running.address)
        page.ask("x", wait=False)
        page.wait(lambda: page.answers() == ["One two three."])
        page.run("window.stop()")  # the network ends, and nobody has asked for it
        page.wait_for_end()
        assert page.text(".failed strong") == "The connection broke"
        assert page.answers() == ["One two three."]
        speaker.go_on.set()
    page.click(".failed button")
    page.wait(lambda: page.has(".failed") and page.text(".failed strong") == "The server cannot be reached")
    assert page.answers() == ["One two three."]
    driver.get("about:blank")


def test_a_conversation_survives_a_reload_until_it_is_cleared(driver):
    with talking(driver, gated) as (page, speaker):
        speaker.go_on.set()
        page.ask("first")
        page.ask("second", wait=False)
        page.wait(lambda: len(page.answers()) == 2 and page.answers()[1] == "One two three.")
        driver.refresh()
        page.wait(lambda: len(page.all("article")) == 2)
        assert [each.text for each in page.all(".asked")] == ["first", "second"]
        assert page.answers() == ["One two three. four five.", "One two three."]
        assert page.text("p.end") == "The page was closed before the answer had ended."
        assert page.has(".answer .d")
        page.click("#clear")
        assert not page.has("article")
        page.click("#notice button", "Undo")
        assert len(page.all("article")) == 2
        page.click("#clear")
        driver.refresh()
        page.wait(lambda: page.one("#empty").is_displayed())
        assert page.run("return Object.keys(localStorage).filter((name) => name.includes('conversation'))") == []


def test_a_tab_that_was_only_open_does_not_undo_what_another_keeps(driver):
    with talking(driver, lambda prompt: iter(["to " + prompt[-13:-11]])) as (page, _):
        first = driver.current_window_handle
        driver.switch_to.new_window("tab")
        other = Page(driver, page.address)
        other.ask("q1")
        driver.switch_to.window(first)
        driver.refresh()  # nothing was said in it: it shows what the other tab has kept
        page.wait(lambda: page.answers() == ["to q1"])
        page.ask("q2")
        driver.switch_to.window(driver.window_handles[-1])
        driver.refresh()  # its own conversation, whatever the first tab has kept since
        other.wait(lambda: other.answers() == ["to q1"])
        driver.close()
        driver.switch_to.window(first)
        driver.refresh()
        page.wait(lambda: page.answers() == ["to q1", "to q2"])


def test_a_key_is_asked_for_and_kept_in_this_tab_alone(driver):
    with talking(driver, say("in"), Settings(Keys(("right",)))) as (page, _):
        page.one("#key-text").send_keys("wrong\ue007")
        page.wait(lambda: "does not know this key" in page.text("#key-says"))
        page.one("#key-text").send_keys("right\ue007")
        page.wait(lambda: page.one("#empty").is_displayed())
        page.ask("x")
        assert page.answers() == ["in"]
        assert "right" not in page.run("return JSON.stringify(localStorage)")
        assert page.run("return Object.values(sessionStorage)") == ["right"]
        driver.refresh()
        page.wait(lambda: page.answers() == ["in"])
        page.run("sessionStorage.setItem('speccompile:key', 'old')")
        page.ask("y", wait=False)
        page.wait(lambda: page.has("#key[open]"))
        page.one("#key-text").send_keys("right\ue007")
        page.wait(lambda: page.answers() == ["in", "in"])


def test_settings_are_those_of_the_bundle(driver):
    with talking(driver, say("x"), text=True, chat=False) as (page, speaker):
        page.click("#open-settings")
        shown = [each.text for each in page.all("#settings label") if each.is_displayed()]
        assert shown == [
            "New tokens at most", "Stop before", "Show answers as Markdown", "Speculative decoding",
            "Colour accepted draft tokens",
        ]  # fmt: skip
        page.keys("\ue00c")
        page.ask("def f():")
        assert speaker.asked[0]["prompt"] == "def f():"
        assert speaker.asked[0]["max_new_tokens"] == 256
        assert page.text(".plain.text") == "def f():x"
    sampling = {"sampling": True, "sample": True, "tree": "static", "batch_size": 2}
    with talking(driver, say("x"), **sampling) as (page, speaker):
        page.click("#open-settings")
        for name, value in {"temperature": "0.5", "top_p": "0.9", "seed": "7", "max_tokens": "12"}.items():
            page.one(f"#{name}").send_keys(value)
        page.one("#system").send_keys("Be brief.")
        page.one("#stop").send_keys("END\n\\n\\n")
        page.click("#settings [name=speculative]")
        page.click("#close-settings")
        driver.refresh()
        page.wait(lambda: page.one("#empty").is_displayed())
        page.ask("hello")
        asked = speaker.asked[0]
        assert {name: asked[name] for name in ("temperature", "top_p", "seed", "max_new_tokens", "stop")} == {
            "temperature": 0.5, "top_p": 0.9, "seed": 7, "max_new_tokens": 12, "stop": ["END", "\n\n"],
        }  # fmt: skip
        assert asked["autoregressive"] is True
        assert asked["prompt"].startswith("system:Be brief.\nuser:hello")
        page.click("#open-settings")
        page.one("#temperature").clear()
        page.one("#temperature").send_keys("9\t")
        assert page.text("#settings-error") == "Temperature: expected a number from 0 to 2."
        page.click("#reset")
        assert not page.one("#settings-error").is_displayed()


def test_it_waits_for_the_model_and_says_so(driver):
    model = ServedModel("late")
    with serving(model) as running:
        driver.get(running.address)
        end = time.monotonic() + 10
        while "being opened" not in driver.find_element("id", "notice").text:
            assert time.monotonic() < end
        model.start(chat_bundle())
        Page(driver, running.address).wait(lambda: driver.find_element("id", "empty").is_displayed())
    driver.get("about:blank")
