"""The page of a benchmark: all in one file, well-formed, with the report's numbers in it."""

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from speccompile.errors import EngineError, SpeccompileError, UsageError
from speccompile.measure.bench import check_page, make_report, write_page
from speccompile.measure.bench.costs import GraphCosts
from speccompile.measure.bench.measure import PromptRuns
from speccompile.measure.bench.page import make_page
from speccompile.measure.bench.plots import CHARACTER, bar_chart, bar_rows, heat_map, line_chart
from speccompile.measure.bench.report import Measurements
from speccompile.measure.bench.roofline import Bandwidth, MemoryReads
from speccompile.measure.bench.weights import WeightReads
from tests.light.bench_example import AUTOREGRESSIVE, SPECULATIVE, timed
from tests.light.fake_bundle import toy_bundle

VOID = {"meta", "br"}


class Page(HTMLParser):
    """Tags and attributes of a page; fails where one is not closed."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.attributes = [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def report(bundle=None, groups=("mt_bench", "rag"), name="demo"):
    bundle = bundle or toy_bundle()
    ours = (timed(SPECULATIVE),) if bundle.speculative else ()
    cases = [PromptRuns(number, ours, (timed(AUTOREGRESSIVE),), group) for number, group in enumerate(groups, 1)]
    graphs = {graph.name: WeightReads(10**6, 10) for graph in bundle.entry.graphs}
    around = Measurements(
        conversation="plain",
        costs=GraphCosts({1: 0.02, 2: 0.025, 5: 0.04, 16: 0.1, 64: 0.5}, 0.03 if bundle.speculative else None, 0.01),
        context=33,
        reading=MemoryReads(Bandwidth(2.5e9, 3, 1 << 30), graphs),
    )
    made = make_report(bundle, cases, threads=None, max_new_tokens=7, surroundings=around)
    return replace(made, bundle=name)


def test_a_page_has_plots_and_tables_and_loads_nothing():
    page = re.sub(' class="[a-z]+"', "", make_page(report()))
    parsed = Page(page)
    titles = re.findall("<h2>(.*?)</h2>", page)
    assert titles == [
        "Speed", "Speed by group", "Acceptance by depth", "Cost of a window", "Time between tokens",
        "Speed and time", "Groups", "Costs of a round", "Memory",
    ]  # fmt: skip
    assert parsed.tags.count("svg") == 5
    assert not {"script", "link", "img", "iframe"} & set(parsed.tags)
    assert not {"src", "href", "style"} & {name for name, _ in parsed.attributes}
    assert "http" not in page
    assert "url(" not in page
    for svg in re.findall("<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(svg)
    for words in (
        "<td>tokens/s</td><td>10.0</td><td>5.0</td>",
        "<td>overall</td><td>2</td><td>10.0</td><td>5.0</td><td>2.00</td><td>2.00</td>",
        "<td>verify, width 64</td><td>500.000</td><td>25.00</td>",
        "over 33 tokens of context",
        "mean accepted 2.00",
        "2.00 times autoregression over 2 questions; 2.00 tokens a round<br>",
        "2.5 GB/s, threads: 3",
        "same tokens on 2 of 2 prompts",
    ):
        assert words in page


def test_wide_windows_are_in_the_table_and_not_in_the_plot():
    page = make_page(report())
    (plot,) = re.findall("Cost of a window</h2>\n(<svg.*?</svg>)", page, re.DOTALL)
    texts = [element.text for element in ElementTree.fromstring(plot).iter("text")]
    assert "16" in texts
    assert "64" not in texts


def test_a_page_without_a_drafter_and_one_without_rounds():
    page = make_page(report(toy_bundle(speculative=False), groups=("prompts",)))
    Page(page)
    assert "speculative</th>" not in page
    assert "Acceptance by depth" not in page
    assert "break-even" not in page
    single = {"token_ids": [1], "rounds": 0, "path_lengths": [], "draft_lengths": []}
    cases = [PromptRuns(1, (timed(replace(SPECULATIVE, **single)),), (timed(replace(AUTOREGRESSIVE, **single)),))]
    page = make_page(make_report(toy_bundle(), cases, threads=None, max_new_tokens=1))
    Page(page)
    assert re.findall("<h2>(.*?)</h2>", page) == ["Speed", "Speed and time"]


def test_names_are_no_markup():
    page = make_page(report(name="<script>alert(1)</script>", groups=("a&b<i>", "rag")))
    Page(page)
    assert "<script>" not in page
    assert "<i>" not in page
    assert "a&amp;b&lt;i&gt;" in page


def test_bars_have_the_heights_of_their_values():
    chart = ElementTree.fromstring(bar_chart(["a", "b"], {"x": [1.0, 2.0], "y": [None, 4.0]}, "t"))
    bars = [bar for bar in chart.iter("rect") if bar.get("width") != "10"]  # without the legend
    heights = [float(bar.get("height")) for bar in bars]
    assert [height / heights[0] for height in heights] == pytest.approx([1, 2, 4], rel=0.01)
    assert [float(bar.get("y")) + float(bar.get("height")) for bar in bars] == pytest.approx([236] * 3, abs=0.2)
    assert "4" in [element.text for element in chart.iter("text")]


@pytest.mark.parametrize("top", [1e-6, 0.3, 1, 7, 9.99, 1e3, 123456])
def test_lines_lie_inside_their_axes(top):
    chart = ElementTree.fromstring(line_chart({"x": [(1, 0), (4, top)]}, "t", "x", {"mark": top / 2}))
    (line,) = chart.iter("polyline")
    (x0, y0), (x1, y1) = (map(float, point.split(",")) for point in line.get("points").split())
    assert (x0, y0, x1) == (52, 236, 460)
    assert 56 <= y1 < 56 + (236 - 56) / 3
    (mark,) = (each for each in chart.iter("line") if each.get("stroke-dasharray"))
    assert float(mark.get("y1")) == pytest.approx((y0 + y1) / 2, abs=0.2)
    labels = [element.text for element in chart.iter("text")]
    assert 4 <= len([text for text in labels if re.fullmatch(r"[\d.e+-]+", text)]) - 2 <= 11


def test_nothing_to_plot_is_an_empty_chart():
    for chart in (bar_chart(["a"], {"x": [None]}, "t"), bar_chart(["a"], {"x": [0.0]}, "t"), line_chart({}, "t", "x")):
        ElementTree.fromstring(chart)


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "bench.html"
    check_page(path)
    write_page(report(), path)
    before = path.read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["bench.html"]

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(SpeccompileError, match=r"bench\.html: the page could not be written: No space left on device"):
        write_page(report(name="other"), path)
    assert [each.name for each in tmp_path.iterdir()] == ["bench.html"]
    assert path.read_text() == before


def test_where_no_page_can_be_written(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"--html: received '.*', expected a file in a folder .*: it is a folder"):
        check_page(tmp_path)
    with pytest.raises(UsageError, match=r"expected a file in a folder that exists: there is no folder '.*nowhere'"):
        check_page(tmp_path / "nowhere" / "bench.html")
    with pytest.raises(UsageError, match="expected a file in a folder that can be written: "):
        check_page(Path("/proc/bench.html"))  # where not even root writes
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(EngineError, match="--html needs the Python package jinja2, which is not installed"):
        check_page(tmp_path / "bench.html")


def test_bars_below_each_other_grow_with_their_values():
    svg = ElementTree.fromstring(bar_rows({"one": 1.0, "two & more": 2.0, "none": None}, "times", mark=1.5))
    bars = [float(each.get("width")) for each in svg.iter("rect")]
    assert len(bars) == 2
    assert bars[1] == pytest.approx(2 * bars[0], abs=0.2)
    (line,) = svg.iter("line")
    begin = next(float(each.get("x")) for each in svg.iter("rect"))
    assert float(line.get("x1")) == pytest.approx(begin + 1.5 * bars[0], abs=0.2)
    assert {"one", "two & more", "none", "times"} <= {each.text for each in svg.iter("text")}
    assert [each.text for each in svg.iter("text") if each.get("class")] == ["1", "2"]
    ElementTree.fromstring(bar_rows({}, "nothing"))


@pytest.mark.parametrize(
    ("values", "shown"), [((1.31, 1.0, 0.9991), ["1.31", "1.00", "1.00"]), ((100.4, 7), ["100", "7"])]
)
def test_the_numbers_of_bars_have_the_same_decimals(values, shown):
    svg = ElementTree.fromstring(bar_rows(dict(zip("abc", values, strict=False)), "times"))
    assert [each.text for each in svg.iter("text") if each.get("class")] == shown


def test_a_legend_stays_inside():
    svg = ElementTree.fromstring(line_chart({f"acceptance {n}": [(0, 1), (1, 2)] for n in range(6)}, "t", "x"))
    ends = [float(each.get("x")) + CHARACTER * len(each.text) for each in svg.iter("text") if "acc" in each.text]
    assert len(ends) == 6
    assert max(ends) <= float(svg.get("viewBox").split()[2])


def test_names_below_bars_do_not_touch():
    names = ["mt_bench", "translation", "summarization", "math_reasoning", "code_editing", "overall", "rag", "qa"]
    svg = ElementTree.fromstring(bar_chart(names, {"x": [1.0] * 8, "y": [2.0] * 8}, "t"))
    ends: dict[str, float] = {}
    for each in svg.iter("text"):
        if each.text in names:
            middle, half = float(each.get("x")), CHARACTER * len(each.text) / 2
            assert middle - half > ends.get(each.get("y"), 0), each.text
            ends[each.get("y")] = middle + half
            assert float(each.get("y")) < float(svg.get("viewBox").split()[3])


def test_a_heat_map_is_darker_where_numbers_are_higher_and_frames_the_best_of_a_column():
    svg = ElementTree.fromstring(heat_map(["a", "b"], {"x": [1.0, 3.0], "y": [2.0, None], "z": [0.5, 3.0]}, "share"))
    boxes = list(svg.iter("rect"))
    shades = [float(each.get("fill-opacity")) for each in boxes]
    assert len(boxes) == 5
    assert shades[4] == shades[1] > shades[2] > shades[0] > shades[3]
    assert ["best" in each.get("class") for each in boxes] == [False, True, True, False, True]
    ElementTree.fromstring(heat_map([], {}, "nothing"))
