"""The page of `speccompile serve` in Chromium, over a model that says what the test wants."""

import json
import re
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from speccompile.errors import OverloadedError, UsageError
from speccompile.serving.http.app import Settings
from speccompile.serving.http.keys import Keys
from speccompile.serving.http.model import ServedModel
from tests.light.page_example import chromium, speaking
from tests.light.serve_example import chat_bundle, serving

pytestmark = pytest.mark.sweep("starts a browser")

HOSTILE = [
    "<img src=x onerror=\"window.hacked='img'\">",
    "<script>window.hacked='script'</script></script><script>window.hacked=1</script>",
    "<svg/onload=window.hacked=2><iframe srcdoc='<script>parent.hacked=3</script>'></iframe>",
    "[a](javascript:window.hacked=4) [b](JaVaScRiPt:window.hacked=4) <javascript:window.hacked=4>",
    "[c](data:text/html,<script>window.hacked=5</script>) [d](/v1/models) [e](//evil.example/x) [f](file:///etc/passwd)",
    '[g](https://ok.example/"onmouseover="window.hacked=6) ![h](https://evil.example/pixel.png)',
    '```html\n<script>window.hacked=7</script>\n```\n``` "><img src=x onerror=window.hacked=8>\nx\n```',
    "| <b onclick=window.hacked=9>x</b> | y |\n|---|---|\n| `<i>` | <style>*{display:none}</style> |",
    "# <h1 style=position:fixed>big</h1>\n> - **<a href=javascript:window.hacked=10>z</a>**",
    "\u202etxet desrever\u202c \x00\x07 &lt;b&gt; &#60;script&#62; {{constructor.constructor('window.hacked=11')()}}",
]


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


@pytest.fixture(scope="module")
def driver():
    with chromium("--window-size=1000,800") as found:
        yield found


@contextmanager
def talking(driver, says, settings=None, **changes) -> Iterator[tuple[Page, object]]:
    """The page of a server, in an empty browser. At the end: no error on the console, no request to elsewhere."""
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


def gated(prompt):
    yield from ("One two ", "three. ")
    yield None
    yield from ("four ", "five.")


def test_an_answer_comes_piece_by_piece_with_drafts_and_numbers(driver):
    with talking(driver, gated) as (page, speaker):
        page.ask("Count **up**", wait=False)
        page.wait(lambda: page.answers() == ["One two three."])
        assert page.text(".asked") == "Count **up**"
        assert page.text("#send") == "Stop"
        speaker.go_on.set()
        page.wait_for_end()
        assert page.answers() == ["One two three. four five."]
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


def test_every_control_can_be_reached_by_tab_and_shows_it(driver):
    with talking(driver, say("`x` [link](https://ok.example/)\n\n```py\ny\n```")) as (page, _):
        page.ask("x")
        page.run("document.activeElement.blur()")
        page.keys("\ue004")  # from nowhere to the page
        reached = []
        for _step in range(20):
            page.keys("\ue004")
            name = page.run("const e = document.activeElement; return e.id || e.textContent.trim().slice(0, 12)")
            if name == "Skip to the " and reached:
                break
            assert page.run(
                "const e = document.activeElement, s = getComputedStyle(e);"
                "return e.id === 'text' || s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 1"
            ), name
            reached.append(name)
        names = ["Skip to the ", "clear", "theme", "open-settings", "link", "Copy", "y", "Copy", "Regenerate", "Edit"]
        assert reached == [*names, reached[-2], "text"]  # a button that sends nothing takes no focus
        assert "tokens" in reached[-2]


def test_hostile_texts_stay_texts(driver):
    with talking(driver, lambda prompt: iter([text + "\n\n" for text in HOSTILE])) as (page, _):
        page.ask(HOSTILE[0] + HOSTILE[1])
        for _again in range(2):
            assert page.run("return window.hacked ?? null") is None
            made = set(page.run("return [...document.querySelectorAll('article *')].map((e) => e.localName)"))
            assert made <= {
                *("a", "article", "b", "blockquote", "br", "button", "code", "del", "details", "div", "em", "h2", "h3"),
                *("hr", "i", "li", "ol", "p", "pre", "span", "strong", "summary", "table", "tbody", "td", "th"),
                *("thead", "tr", "ul"),
            }
            links = page.run("return [...document.querySelectorAll('article a')].map((a) => [a.protocol, a.rel])")
            assert links == [["https:", "noopener noreferrer nofollow"]] * 2
            names = page.run(
                "return [...new Set([...document.querySelectorAll('.answer *')].flatMap((e) => e.getAttributeNames()))]"
            )
            assert not [name for name in names if name.startswith("on") or name in ("src", "style", "srcdoc")]
            shown = page.run("return document.querySelector('.answer').textContent")
            for text in ("<img src=x onerror=", "<script>window.hacked='script'</script>", "](javascript:", "{{constr"):
                assert text in shown
            assert page.text(".asked") == HOSTILE[0] + HOSTILE[1]
            page.driver.refresh()  # what was kept is as harmless
            page.wait(lambda: page.has(".answer"))


@pytest.mark.parametrize("huge", [
    "word " * 30_000, "[" * 50_000, "*a " * 20_000, "> " * 5_000, "a `" + "`" * 9_999 + "a", "|" * 40_000 + "\n|-",
    "- x\n" * 4_000, "```\n" + "x = 1\n" * 10_000, "**_" * 20_000, "<" * 40_000, "https://a.example/" * 3_000,
    "x" * 150_000, "\\" * 30_000, "1. a\n   " * 4_000,
], ids=lambda text: f"{text[:4]!r}")  # fmt: skip
def test_huge_texts_are_shown_in_time(driver, huge):
    parts = [huge[start : start + 4096] for start in range(0, len(huge), 4096)]
    with talking(driver, lambda prompt: iter(parts)) as (page, _):
        page.run(
            "window.longest = 0; new PerformanceObserver((list) => list.getEntries().forEach((entry) => "
            "window.longest = Math.max(window.longest, entry.duration))).observe({entryTypes: ['longtask']})"
        )
        page.ask("x", wait=False)
        page.wait(lambda: page.run("return document.getElementById('send').textContent") == "Send", 30)
        assert page.run("return document.querySelector('.answer').textContent.length") > 2000
        assert page.run("return window.longest") < 5000
        assert not page.run("return document.documentElement.scrollWidth > innerWidth")


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


def luminance(pixel) -> float:
    """Relative luminance of a colour, by WCAG 2."""
    parts = [part / 255 for part in pixel[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


CONTRASTS = """
const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
const read = (colour) => {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const ground = (e) => { for (; e; e = e.parentElement) {
  const c = read(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255, 255]; };
return [...document.querySelectorAll("body *")]
  .filter((e) => e.checkVisibility() && !e.disabled && !e.closest("svg") &&
    [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
  .map((e) => [e.textContent.slice(0, 40), read(getComputedStyle(e).color), ground(e)]);
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_both_themes_can_be_read(driver, theme):
    answer = (
        "# Title\nText with `code`, a [link](https://ok.example/).\n\n> quote\n\n```py\nx\n```\n\n|a|b|\n|-|-|\n|1|2|"
    )
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    )
    with talking(driver, say("It. ", answer)) as (page, speaker):
        page.ask("x")
        speaker.error = UsageError("refused")
        page.ask("y")
        for chosen in ("auto", theme):
            while page.run("return document.documentElement.dataset.theme ?? 'auto'") != chosen:
                page.click("#theme")
            for text, colour, ground in page.run(CONTRASTS):
                one, other = sorted((luminance(colour), luminance(ground)))
                assert (other + 0.05) / (one + 0.05) >= 4.5, (text, colour, ground)
        ground = page.run("return getComputedStyle(document.body).backgroundColor")
        assert (max(map(int, re.findall(r"\d+", ground))) < 60) == (theme == "dark")
        assert colours(driver.get_screenshot_as_png()) > 20
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def colours(png: bytes) -> int:
    """Number of different bytes in a screenshot's data, which are few where nothing is drawn."""
    parts, place = [], 8
    while place < len(png):
        length = int.from_bytes(png[place : place + 4], "big")
        if png[place + 4 : place + 8] == b"IDAT":
            parts.append(png[place + 8 : place + 8 + length])
        place += length + 12
    return len(set(zlib.decompress(b"".join(parts))))


@pytest.mark.parametrize("width", [320, 360])
def test_a_phone_shows_it_without_scrolling_sideways(driver, width):
    metrics = {"width": width, "height": 640, "deviceScaleFactor": 2, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    answer = "x" * 300 + "\n\n```\n" + "y" * 300 + "\n```\n\n|" + "z" * 80 + "|b|\n|-|-|\n|1|2|\n\n- " + "w" * 200
    with talking(driver, say("It. ", answer), sampling=True, sample=True, tree="static", batch_size=2) as (
        page,
        speaker,
    ):
        page.ask("q" * 200)
        speaker.error = UsageError("refused " + "r" * 300)
        page.ask("y")

        def wide():
            return page.run(
                "return [...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() &&"
                "!e.closest('pre, .table, .hidden, svg') && e.getBoundingClientRect().right > innerWidth + 0.5)"
                ".map((e) => e.outerHTML.slice(0, 80)).concat("
                "document.documentElement.scrollWidth > innerWidth ? ['page'] : [])"
            )

        assert wide() == []
        page.click("#open-settings")
        assert wide() == []
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


MARKDOWN = {
    "a *b* **c** ***d*** ~~e~~ _f_ snake_case_name 2*3*4": (
        "<p>a <em>b</em> <strong>c</strong> <strong><em>d</em></strong> <del>e</del> <em>f</em> snake_case_name "
        "2<em>3</em>4</p>"
    ),
    "`a*b*` ``c`d`` `open": "<p><code>a*b*</code> <code>c`d</code> `open</p>",
    "\\*a\\* **open": "<p>*a* **open</p>",
    "1. a\n2. b\n   - c\n   - d\n\n   e\n3. f": (
        "<ol><li><p>a</p></li><li><p>b</p><ul><li><p>c</p></li><li><p>d</p></li></ul><p>e</p></li><li><p>f</p></li></ol>"
    ),
    "3. a\n4. b": '<ol start="3"><li><p>a</p></li><li><p>b</p></li></ol>',
    "* a\n  * b\n* c": "<ul><li><p>a</p><ul><li><p>b</p></li></ul></li><li><p>c</p></li></ul>",
    "## A #\ntext\n***\nmore\nlines": "<h4>A</h4><p>text</p><hr><p>more<br>lines</p>",
    "#hashtag\n#": "<p>#hashtag</p><h3></h3>",
    "> a\n> b\n\nc": "<blockquote><p>a<br>b</p></blockquote><p>c</p>",
    "a | b\n--|:-:\n1 | `x\\|y`": (
        "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td><code>x\\|y</code></td></tr>"
        "</tbody></table>"
    ),
    "<b>x</b> &amp; 1 < 2": "<p>&lt;b&gt;x&lt;/b&gt; &amp;amp; 1 &lt; 2</p>",
    "- a\n\n```\nb\n```": "<ul><li><p>a</p></li></ul><pre><code>b</code></pre>",
    "- a\n  ```py\n  b\n    c\n  ```\n- d": (
        "<ul><li><p>a</p><pre><code>b\n  c</code></pre></li><li><p>d</p></li></ul>"
    ),
    "~~~\nopen\n```": "<pre><code>open\n```</code></pre>",
    '[a *b*](https://x.example/a_(b) "t"), <https://y.example> https://z.example/?q=1.': (
        '<p><a href="https://x.example/a_(b)">a <em>b</em></a>, <a href="https://y.example/">https://y.example</a> '
        '<a href="https://z.example/?q=1">https://z.example/?q=1</a>.</p>'
    ),
    "[a](ftp://x.example) [b] (c)": "<p>[a](ftp://x.example) [b] (c)</p>",
}

DRAW = """
const [texts, done] = arguments;
const at = (name) => new URL(`page/${name}`, location.href).href;
const simple = (element) => {
  for (const e of element.querySelectorAll(".bar")) e.remove();
  for (const e of element.querySelectorAll(".d, .code, .table")) e.replaceWith(...e.childNodes);
  for (const e of element.querySelectorAll("*"))
    for (const name of e.getAttributeNames()) if (!["href", "start"].includes(name)) e.removeAttribute(name);
  element.normalize();
  return element.innerHTML;
};
const draw = ({ MarkdownView }, { Marks }, text, step) => {
  const element = document.createElement("div");
  const marks = new Marks();
  for (let at = 1; step === 3 && at < text.length; at += 3) marks.add(at, Math.min(at + 2, text.length));
  const view = new MarkdownView(element, marks, () => document.createElement("button"));
  for (let end = step; end < text.length; end += step) view.draw(text.slice(0, end));
  view.draw(text, true);
  return simple(element);
};
Promise.all([import(at("markdown.js")), import(at("lines.js"))])
  .then(([md, lines]) => texts.map((text) => [text.length, 1, 3].map((step) => draw(md, lines, text, step))))
  .then(done, (error) => done(String(error)));
"""


def test_markdown_is_what_people_mean_by_it(driver):
    """In one piece, letter by letter, and with marks at any place: the elements are the same."""
    with talking(driver, say("x")) as (page, _):
        found = page.driver.execute_async_script(DRAW, list(MARKDOWN))
        assert isinstance(found, list), found
        for (text, expected), results in zip(MARKDOWN.items(), found, strict=True):
            assert results == [expected] * 3, text
