"""Texts of models, however hostile or long, on the page of `speccompile serve`, in Chromium."""

import pytest

from tests.light.page_example import say, talking

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


LEFT_EDGE = """
const walker = document.createTreeWalker(document.querySelector(".answer"), NodeFilter.SHOW_TEXT);
for (let node; (node = walker.nextNode()); ) {
  const at = node.data.indexOf(arguments[0]);
  if (at < 0) continue;
  const range = document.createRange();
  range.setStart(node, at), range.setEnd(node, at + 1);
  return range.getBoundingClientRect().left;
}
"""


def test_what_turns_a_text_around_ends_with_its_element(driver):
    """Override the direction in a link, which must not turn what follows it; a paragraph has its own direction."""
    text = "see [\u202emoc.live](https://ok.example/) done\n\nnever \u202eends\n\nlast\n\n\u05e9\u05dc\u05d5\u05dd"
    with talking(driver, lambda prompt: iter(["", text])) as (page, _):
        page.ask("x")
        places = [page.run(LEFT_EDGE, part) for part in ("see", "moc", "done", "one")]
        assert places == sorted(places)
        assert page.run(LEFT_EDGE, "last") < page.run(LEFT_EDGE, "ast")
        assert page.run(LEFT_EDGE, "\u05e9") > page.run("return document.querySelector('.answer').clientWidth") / 2


def test_code_does_not_read_as_another_one(driver):
    """Override directions as in CVE-2021-42574: what stands behind them stays behind them, and they are shown."""
    line = "if (level != 'user\u202e \u2066// ask an admin\u2069 \u2066') {"
    with talking(driver, lambda prompt: iter(["", f"```js\n{line}\n```\n\nand `{line}`"])) as (page, _):
        page.ask("x")
        for code in ("pre code", "p code"):
            assert page.run("return document.querySelector(arguments[0]).textContent", f".answer {code}") == line
            shown = "return [...document.querySelectorAll(arguments[0])].map((each) => each.dataset.name)"
            assert page.run(shown, f".answer {code} .turn") == ["U+202E", "U+2066", "U+2069", "U+2066"]
        places = [page.run(LEFT_EDGE, part) for part in ("level", "user", "// ask", "') {")]
        assert places == sorted(places)


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
    """Compare elements of a text in one piece, letter by letter, and with marks at any place."""
    with talking(driver, say("x")) as (page, _):
        found = page.driver.execute_async_script(DRAW, list(MARKDOWN))
        assert isinstance(found, list), found
        for (text, expected), results in zip(MARKDOWN.items(), found, strict=True):
            assert results == [expected] * 3, text
