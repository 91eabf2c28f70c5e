"""Who can use the page of `speccompile serve`: contrast, keyboard, phones, in Chromium."""

import re
import zlib

import pytest

from speccompile.errors import UsageError
from tests.light.page_example import say, talking

pytestmark = pytest.mark.sweep("starts a browser")


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


def luminance(pixel) -> float:
    """Return the relative luminance of a colour, by WCAG 2."""
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
    """Return the number of different bytes in a screenshot's data, which are few where nothing is drawn."""
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


def test_a_wide_table_scrolls_and_breaks_no_word(driver):
    heads = [f"heading{number}" for number in range(30)]
    rows = "".join(f"|{'|'.join([str(10_000 + row)] * 30)}|\n" for row in range(3))
    answer = f"|{'|'.join(heads)}|\n|:-:|-:|{'-|' * 28}\n{rows}"
    with talking(driver, say(answer)) as (page, _):
        page.ask("x")
        high = "return [...document.querySelectorAll('.answer tr')].map((row) => row.getBoundingClientRect().height)"
        assert max(page.run(high)) < 50  # one line
        assert page.run("const e = document.querySelector('.table'); return e.scrollWidth > e.clientWidth")
        sides = (
            "return [...document.querySelectorAll('.answer td')].slice(0, 3).map((e) => getComputedStyle(e).textAlign)"
        )
        assert page.run(sides) == ["center", "end", "start"]
