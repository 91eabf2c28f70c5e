"""Text table of a tuning for a terminal."""

import shlex
from collections.abc import Iterator

from speccompile.measure.bench.costs import expected_tokens
from speccompile.measure.bench.table import cell
from speccompile.measure.tune.layer_search import LayerSearch
from speccompile.measure.tune.predict import Candidate
from speccompile.measure.tune.run import Tuning

_HEADS = (
    "drafter", "precision", "threads", "drafts", "depth", "width", "catch-up",
    "accepted", "verify ms", "draft ms", "host us", "tokens/s",
)  # fmt: skip


def write_table(tuning: Tuning) -> str:
    """Return the tuning as text: candidates, the marked choice first, then the cost lines, and a summary."""
    return "\n".join(_lines(tuning))


def settings_line(tuning: Tuning) -> str:
    """Return the options to append to `speccompile build RECIPE`."""
    return " ".join(f"--set {shlex.quote(setting)}" for setting in tuning.settings)


def _lines(tuning: Tuning) -> Iterator[str]:
    temperature = f" at temperature {tuning.temperature:g}" if tuning.temperature else ""
    yield (
        f"{tuning.recipe} on {tuning.engine}: {tuning.prompts} prompts, up to {tuning.max_new_tokens} new "
        f"tokens{temperature}; costs over {tuning.context} tokens of context"
    )
    rows = [_HEADS, *map(_cells, tuning.candidates)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    for number, row in enumerate(rows):
        mark = "*" if number == 1 else " "
        texts = (text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))
        yield f"{mark} {row[0]:{widths[0]}}  {'  '.join(texts)}"
    for precision, threads, line in tuning.draft_lines:
        weights = "" if precision is None else f"{precision}, "
        yield (
            f"draft of a chain of K, {weights}threads {threads}: {line.base * 1e3:.3f} + {line.slope * 1e3:.3f} K ms, "
            "a line through the shortest and the longest"
        )
    if tuning.layers is not None:
        yield from _layers(tuning.layers)
    yield "catch-up: tokens that the drafter reads again in a round; kind and shape decide it"
    yield from _choice(tuning)


def _cells(each: Candidate) -> tuple[str, ...]:
    return (
        each.drafter,
        each.precision or "-",
        str(each.threads),
        str(each.drafts),
        str(each.depth),
        str(each.width),
        str(each.catch_up) if each.drafts else "-",
        f"{each.mean_accepted:.2f}",
        f"{each.verify_seconds * 1e3:.3f}",
        cell(None if each.draft_seconds is None else each.draft_seconds * 1e3, ".3f"),
        f"{each.host_seconds * 1e6:.0f}",
        f"{each.tokens_per_second:.1f}",
    )


def _layers(found: LayerSearch) -> Iterator[str]:
    costs = found.costs
    yield (
        f"a pass of a draft, threads {found.threads}: {costs.base * 1e3:.3f} ms, and {costs.attention * 1e3:.3f} an "
        f"attention half, {costs.mlp * 1e3:.3f} an MLP half"
    )
    for name, each in (("chosen", found.choice), ("the recipe's", found.own)):
        yield (
            f"layers, {name}: {each.layers}; by {found.blocks} places of the text a chain of "
            f"{each.drafts} accepts {expected_tokens(each.accepted_at_depth[: each.drafts]):.2f}, "
            f"{each.tokens_per_second:.1f} tokens/s"
        )
    end = "the search ended" if found.complete else "time was up: --search-seconds gives it more"
    yield f"{found.judged} sets judged in {found.seconds:.1f} s, {end}"


def _choice(tuning: Tuning) -> Iterator[str]:
    choice, baseline = tuning.choice, tuning.autoregressive
    if choice.drafts:
        gain = f"{choice.tokens_per_second / baseline.tokens_per_second:.2f} times as fast as without drafts"
        yield f"chosen: {choice.drafter}, {gain}; run it with --threads {choice.threads}"
    else:
        yield f"speculation does not pay here: the choice is no drafter; run it with --threads {choice.threads}"
    found = tuning.check
    if found is not None:
        yield (
            f"check: predicted {found.predicted_speedup:.2f} times as fast as without drafts, bench measures "
            f"{cell(found.measured_speedup, '.2f')}{_error(found.speedup_error)}"
        )
        yield (
            f"check: predicted {found.predicted:.1f} tokens/s without prefill, bench measures "
            f"{cell(found.measured, '.1f')} ({cell(found.measured_autoregressive, '.1f')} without drafts)"
            f"{_error(found.error)}"
        )


def _error(share: float | None) -> str:
    return "" if share is None else f": {share:+.1%}"
