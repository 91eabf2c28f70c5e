"""Plots as SVG text. A page with them needs no script, no font and no network; its style gives the colours."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 480, 280
"""Size in units, which a page scales: texts of 12 units stay legible on a phone."""
LEFT, RIGHT, TOP, BOTTOM = 52, 20, 56, 44
ROW, ROWS_TOP = 22, 30
CHARACTER = 6.6
"""Approximate width of a character."""
COLOURS = (
    ("#1f5fa8", "#6aa9f0"), ("#c8661b", "#f0a35e"), ("#5d6b7d", "#a3b1c2"),
    ("#3b8a3e", "#7cc980"), ("#8a4fb0", "#c79be6"), ("#a8324a", "#ee8a9c"),
)  # fmt: skip
"""(light, dark) colour of the series in order; the first three are distinct also under red-green colour blindness. The
classes f0, f1, .. fill and s0, s1, .. draw with them."""
MOST_MARKERS = 30
"""Maximum points of a line that are marked: more would hide it."""

Points = Sequence[tuple[float, float]]


def bar_chart(categories: Sequence[str], series: Mapping[str, Sequence[float | None]], title: str) -> str:
    """Draw one bar per series in every category, with its number. A value of None has no bar.

    title: title of the values, with their unit.
    """
    values = [value for row in series.values() for value in row if value is not None]
    scale = _Scale(0, max(values, default=1), len(categories))
    slot = (WIDTH - LEFT - RIGHT) / max(len(categories), 1)
    thick = min(0.8 * slot / max(len(series), 1), 60)
    lines, parts = _lines_of(categories, slot), []
    for place, category in enumerate(categories):
        middle = LEFT + (place + 0.5) * slot
        parts.append(_text(middle, HEIGHT - BOTTOM + 18 + place % lines * 14, category, "middle"))
        for index, row in enumerate(series.values()):
            if (value := row[place]) is not None:
                x, y = middle + (index - len(series) / 2) * thick, scale.y(value)
                size = f'width="{thick - 2:.1f}" height="{max(HEIGHT - BOTTOM - y, 0):.1f}"'
                parts.append(f'<rect x="{x + 1:.1f}" y="{y:.1f}" {size} class="f{index}"/>')
                if thick > CHARACTER * len(_number(value)):
                    parts.append(_text(x + thick / 2, y - 4, _number(value), "middle"))
    return _chart([*_y_axis(scale), *parts, *_legend(list(series))], title, HEIGHT + (lines - 1) * 14)


def line_chart(
    series: Mapping[str, Points], title: str, x_title: str, marks: Mapping[str, float] | None = None,
    faint: Mapping[str, Points] | None = None,
) -> str:  # fmt: skip
    """Draw lines through points. marks: label -> height of a horizontal line. faint: points of some series, which are
    drawn pale behind the lines that smooth them. title: of the values, with their unit."""
    behind = faint or {}
    points = [point for row in (*series.values(), *behind.values()) for point in row]
    marks = marks or {}
    top = max([y for _, y in points] + list(marks.values()), default=1)
    scale = _Scale(min((x for x, _ in points), default=0), top, max((x for x, _ in points), default=1))
    parts = list(_x_axis(scale, sorted({x for x, _ in points}), x_title))
    for index, (name, row) in enumerate(series.items()):
        if name in behind:
            parts.append(_line(scale, behind[name], index, ' stroke-opacity="0.3"'))
        parts.append(_line(scale, row, index, ' stroke-width="2"'))
        if len(row) <= MOST_MARKERS:
            parts += [f'<circle cx="{scale.x(x):.1f}" cy="{scale.y(y):.1f}" r="3" class="f{index}"/>' for x, y in row]
    for label, value in marks.items():
        y = scale.y(value)
        line = f'x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"'
        parts.append(f'<line {line} class="s2" stroke-dasharray="5 4"/>')
        parts.append(_text(LEFT + 4, y - 5, label, "start", ' class="over"'))  # most curves rise to the right
    names = list(series)
    below = _legend_lines(names) > 2  # above the plot there is room for two
    legend = _legend(names, HEIGHT if below else 27)
    height = HEIGHT + 14 * _legend_lines(names) * below
    return _chart([*_y_axis(scale), *parts, *legend], title, height)


def bar_rows(
    rows: Mapping[str, float | None], title: str, mark: float | None = None, pale: Collection[str] = ()
) -> str:
    """Draw horizontal bars, one per row, with name and number. mark: value of a line through all bars. pale: names of
    rows that count less."""
    names, values = list(rows), [value or 0.0 for value in rows.values()]
    left = _room_for(names)
    top = max([*values, mark or 0.0], default=1) or 1
    digits = 0 if all(value == round(value) for value in values) else min(max(2 - floor(log10(top)), 0), 2)

    def x(value: float) -> float:
        return left + value / top * (WIDTH - left - 40)

    parts, numbers = [], []
    for place, (name, value) in enumerate(rows.items()):
        y = ROWS_TOP + place * ROW
        parts.append(_text(left - 8, y + 15, name, "end"))
        if value is not None:
            shade = ' fill-opacity="0.35"' if name in pale else ""
            size = f'width="{x(value) - left:.1f}" height="{ROW - 6}"'
            parts.append(f'<rect x="{left}" y="{y + 3}" {size} class="f0"{shade}/>')
            numbers.append(_text(x(value) + 4, y + 15, f"{value:.{digits}f}", "start", ' class="over"'))
    if mark is not None:
        line = f'x1="{x(mark):.1f}" x2="{x(mark):.1f}" y1="{ROWS_TOP}" y2="{ROWS_TOP + len(names) * ROW}"'
        parts.append(f'<line {line} class="s1" stroke-dasharray="5 4"/>')
    return _chart([*parts, *numbers], title, ROWS_TOP + len(names) * ROW + 8)


def heat_map(columns: Sequence[str], rows: Mapping[str, Sequence[float | None]], title: str) -> str:
    """Draw a table of numbers. Higher numbers are darker; the highest number of a column has a frame."""
    left = _room_for(rows)
    wide = (WIDTH - left - RIGHT) / max(len(columns), 1)
    known = [value for row in rows.values() for value in row if value is not None]
    low, high = min(known, default=0), max(known, default=1)
    best = [max((row[place] or 0 for row in rows.values()), default=0) for place in range(len(columns))]
    lines = _lines_of(columns, wide)
    above = ROWS_TOP + 14 * lines
    parts = [
        _text(left + (place + 0.5) * wide, ROWS_TOP + 14 + place % lines * 14, column, "middle")
        for place, column in enumerate(columns)
    ]
    for index, (name, row) in enumerate(rows.items()):
        y = above + index * ROW
        parts.append(_text(left - 8, y + 21, name, "end"))
        for place, value in enumerate(row):
            if value is None:
                continue
            share = (value - low) / (high - low) if high > low else 1.0
            frame = " best" if value == best[place] else ""
            box = f'x="{left + place * wide + 2:.1f}" y="{y + 8}" width="{wide - 4:.1f}" height="{ROW - 4}"'
            parts.append(f'<rect {box} class="f0{frame}" fill-opacity="{0.05 + 0.45 * share:.2f}"/>')
            parts.append(_text(left + (place + 0.5) * wide, y + 21, f"{value:.2f}", "middle"))
    return _chart(parts, title, above + len(rows) * ROW + 16)


def _room_for(names: Iterable[str]) -> int:
    """Return the x coordinate to the right of these names."""
    return round(16 + CHARACTER * max(map(len, names), default=0))


def _lines_of(names: Sequence[str], wide: float) -> int:
    """Return the number of lines on which names stand in turns, so that those wider than their columns do not touch."""
    return max(1, ceil(CHARACTER * max(map(len, names), default=0) / wide))


class _Scale:
    """Map from values to coordinates. The y axis begins at zero and ends at a round number."""

    def __init__(self, left: float, top: float, right: float) -> None:
        self.left, self.right = left, right if right > left else left + 1
        self.step = _round_step(top if top > 0 else 1)
        self.top = self.step * max(ceil(top / self.step - 1e-9), 1)

    def x(self, value: float) -> float:
        return LEFT + (value - self.left) / (self.right - self.left) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self.top * (HEIGHT - TOP - BOTTOM)


def _line(scale: _Scale, points: Points, index: int, style: str) -> str:
    """Draw a line in the colour of a series. style: further attributes."""
    path = " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in points)
    return f'<polyline points="{path}" class="line s{index}"{style}/>'


def _round_step(top: float) -> float:
    """Return the axis step: 1, 2 or 5 times a power of ten. Four to ten steps reach the top."""
    power = 10.0 ** floor(log10(top / 4))
    return next(factor * power for factor in (5, 2, 1) if factor * power <= top / 4 * (1 + 1e-9))


def _y_axis(scale: _Scale) -> Iterator[str]:
    for count in range(round(scale.top / scale.step) + 1):
        y = scale.y(count * scale.step)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        yield _text(LEFT - 8, y + 4, _number(count * scale.step), "end")


def _x_axis(scale: _Scale, places: Sequence[float], title: str) -> Iterator[str]:
    """Yield the axis: round numbers for many positions, and no label that would overlap the last one."""
    if len(places) > MOST_MARKERS:
        step = _round_step(scale.right)
        places = [count * step for count in range(ceil(scale.left / step), floor(scale.right / step) + 1)]
    last = float("-inf")
    for place in places:
        label = _number(place)
        if scale.x(place) - last >= CHARACTER * (len(label) + 2):
            last = scale.x(place)
            yield _text(last, HEIGHT - BOTTOM + 18, label, "middle")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, title, "middle")


def _legend(names: Sequence[str], top: float = 27) -> Iterator[str]:
    """Yield the names of several series in lines from `top` on, by default below the title."""
    for index, (name, (x, line)) in enumerate(zip(names, _legend_places(names), strict=False)):
        y = top + 14 * line
        yield f'<rect x="{x:.0f}" y="{y:.0f}" width="10" height="10" class="f{index}"/>'
        yield _text(x + 14, y + 9, name, "start")


def _legend_lines(names: Sequence[str]) -> int:
    return max((line + 1 for _, line in _legend_places(names)), default=0)


def _legend_places(names: Sequence[str]) -> list[tuple[float, int]]:
    """Return x and line of each name; none for a single series, which the title names."""
    places, x, line = [], 8.0, 0
    for name in names if len(names) > 1 else ():
        if x + 14 + CHARACTER * len(name) > WIDTH and x > 8:
            x, line = 8.0, line + 1
        places.append((x, line))
        x += CHARACTER * len(name) + 28
    return places


def _chart(parts: Sequence[str], title: str, height: float = HEIGHT) -> str:
    opening = f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}" font-size="12">'
    return "\n".join([opening, _text(8, 17, title, "start"), *parts, "</svg>"])


def _text(x: float, y: float, text: str, anchor: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(text)}</text>'


def _number(value: float) -> str:
    """Return the number in three digits; integers and numbers from 100 without decimals or exponent."""
    return f"{value:.0f}" if value >= 100 or value == round(value) else f"{value:.3g}"
