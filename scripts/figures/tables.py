"""Tables of figures, as Markdown. Each shows the numbers of one measurement, and below them where they come from."""

from collections.abc import Callable, Sequence
from typing import Any

Measurement = dict[str, Any]
"""A file of docs/figures."""
DEPTHS = 4
"""Draft tokens whose acceptance is shown."""


def by_speedup(data: Measurement) -> list[dict[str, Any]]:
    """Return the rows, the fastest first."""
    return sorted(data["rows"].values(), key=lambda row: -row["fixed"]["speedup"])


def speedup(data: Measurement) -> str:
    rows = [
        (
            row["label"], row["drafts"], f"{row['fixed']['speculative']['mean_accepted']:.2f}",
            f"{row['fixed']['speedup']:.2f}x", f"{row['adaptive']['speedup']:.2f}x",
            f"{row['fixed']['equal_prompts']} of {row['fixed']['prompts']}",
        )
        for row in by_speedup(data)
    ]  # fmt: skip
    head = ("drafter", "draft tokens", "acceptance length", "speedup, fixed length", "speedup, adaptive", "same output")
    return _table(head, rows)


def acceptance_by_depth(data: Measurement) -> str:
    rows = []
    for row in data["rows"].values():
        found = {depth["depth"]: depth for depth in row["fixed"]["acceptance_by_depth"]}
        shares = [f"{found[depth]['accepted']:.0%}" if depth in found else "" for depth in range(1, DEPTHS + 1)]
        rows.append((row["label"], *shares))
    return _table(("drafter", *(f"depth {depth}" for depth in range(1, DEPTHS + 1))), rows)


def break_even(data: Measurement) -> str:
    rows = []
    for row in data["rows"].values():
        limit, fixed = row["costs"]["break_even"], row["fixed"]
        rows.append((
            row["label"], str(limit["width"]), f"{limit['mean_accepted']:.2f}",
            f"{fixed['speculative']['mean_accepted']:.2f}", f"{fixed['decode_speedup']:.2f}x",
        ))  # fmt: skip
    head = ("drafter", "window", "acceptance length at break-even", "acceptance length", "decode speedup")
    return _table(head, rows)


def window_cost(data: Measurement) -> str:
    widths = [2, 3, 4, 5, 8, 16, 32, 64]
    rows = []
    for row in data["rows"].values():
        cost = {point["width"]: point for point in row["costs"]["verify"]}
        rows.append(
            (row["label"], f"{cost[1]['seconds'] * 1e3:.2f} ms", *(f"{cost[one]['ratio']:.2f}" for one in widths))
        )
    return _table(("weights", "window of 1", *map(str, widths)), rows)


def precision_speed(data: Measurement) -> str:
    rows = []
    for row in data["rows"].values():
        fixed, memory = row["fixed"], row["roofline"]
        speeds = (fixed["autoregressive"]["decode_tokens_per_second"], fixed["speculative"]["decode_tokens_per_second"])
        rows.append((
            row["label"], f"{speeds[0]:.0f}", f"{speeds[1]:.0f}", f"{fixed['decode_speedup']:.2f}x",
            f"{memory['autoregressive']['bytes_per_token'] / 1e6:.1f} MB",
            f"{memory['speculative']['bytes_per_token'] / 1e6:.1f} MB",
            f"{memory['autoregressive']['share']:.0%}",
        ))  # fmt: skip
    head = (
        "weights", "autoregressive tokens/s", "speculative tokens/s", "decode speedup",
        "read per token, autoregressive", "read per token, speculative", "of the memory bandwidth, autoregressive",
    )  # fmt: skip
    return _table(head, rows)


def peers(data: Measurement) -> str:
    """Return a table for each processor, the one that was measured last first, each with where it comes from."""
    return "\n\n".join(_peers_of(name, measured) for name, measured in latest_first(data))


def latest_first(data: Measurement) -> list[tuple[str, dict[str, Any]]]:
    return sorted(data["processors"].items(), key=lambda each: each[1]["date"], reverse=True)


PEERS = {
    "speccompile": "speccompile", "llama_cpp": "llama.cpp", "openvino": "OpenVINO GenAI",
    "onnxruntime": "onnxruntime-genai", "pace": "AMD PACE",
}  # fmt: skip
"""Peer of scripts/peers -> its name."""


def titled(form: str) -> str:
    """Return a form of a peer by the name that pages give the peer."""
    peer, name = form.split(": ", 1)
    return f"{PEERS[peer]}, {name}"


OUR_FLOAT = "speccompile: int4, float32 caches"
"""Form with which those of long contexts are compared."""
WEIGHTS = {"fp32": "float32", "bf16": "bfloat16"}


def _beside(speed: dict[str, Any]) -> tuple[str, str]:
    """Return our speed with that of the best peer, and the ratio."""
    if "best" not in speed:
        return f"{speed['ours']:.0f}", "-"
    peer = PEERS[speed["peer"].partition(":")[0]]
    return f"{speed['ours']:.0f} / {speed['best']:.0f} {peer}", f"{speed['ours'] / speed['best']:.2f}"


def _peers_of(name: str, measured: dict[str, Any]) -> str:
    head = ("weights, threads", "tokens/s", "ratio", "prompt tokens/s", "ratio", "window of 5 over 1")
    rows = []
    for row in measured["rows"]:
        cells = [f"{WEIGHTS.get(row['column'], row['column'])}, {row['threads']}"]
        for speed in (row["tokens_per_second"], row["prefill_tokens_per_second"]):
            cells += _beside(speed)
        rows.append((*cells, f"{row['window_of_five']:.2f}"))
    return f"{_table(head, rows)}\n\n{_measured_by(name, measured, '', 'run.py --all')}"


def _measured_by(name: str, measured: dict[str, Any], more: str, command: str) -> str:
    """Return where a processor's figures beside other runtimes come from. more: said before the versions."""
    versions = ", ".join(f"{PEERS[peer]} {version}" for peer, version in measured["versions"].items())
    rounds = f"median{'s' * (measured['rounds'] > 1)} of {measured['rounds']} round{'s' * (measured['rounds'] > 1)}"
    return f"Measured on {measured['date']} on {name}, {rounds}; {more}{versions}; by `scripts/peers/{command}`."


def long_contexts(data: Measurement) -> str:
    """Return a table for each processor: a row a context and form, the speed beside that of our float caches. Nothing
    before one was measured."""
    tables = [_contexts_of(name, measured) for name, measured in latest_first(data)]
    said = "Whole texts of a Llama of 0.35 B parameters with 4-bit weights, beside other runtimes:"
    return "\n\n".join([said, *tables]) if tables else ""


def _contexts_of(name: str, measured: dict[str, Any]) -> str:
    plain = {row["context"]: row["tokens_per_second"] for row in measured["contexts"] if row["form"] == OUR_FLOAT}
    rows = []
    for row in measured["contexts"]:
        ratio = f"{row['tokens_per_second'] / plain[row['context']]:.2f}" if row["context"] in plain else "-"
        rows.append((
            f"{row['context']}, {titled(row['form'])}", f"{row['tokens_per_second']:.1f}", ratio,
            f"{row['first_token_seconds']:.1f} s", f"{row['anonymous_megabytes']:.0f} MB",
        ))  # fmt: skip
    head = (
        "context, runtime, weights, caches",
        "tokens/s",
        "over float caches here",
        "first token",
        "anonymous memory",
    )
    threads = f"{measured['threads']} thread{'s' * (measured['threads'] > 1)}"
    return f"{_table(head, rows)}\n\n{_measured_by(name, measured, f'{threads}; ', 'long_contexts.py --write')}"


TABLES: dict[str, tuple[str, Callable[[Measurement], str]]] = {
    "speedup": ("methods", speedup),
    "acceptance": ("methods", acceptance_by_depth),
    "break-even": ("methods", break_even),
    "window-cost": ("precisions", window_cost),
    "precision-speed": ("precisions", precision_speed),
    "peers": ("peers", peers),
    "long": ("long", long_contexts),
}
"""Name of a figure, as pages have it in their marks -> its measurement, and its table."""


def render(name: str, measurements: dict[str, Measurement]) -> str:
    """Return the table of a figure with the line that says where it comes from, unless the table itself does."""
    source, table = TABLES[name]
    data = measurements[source]
    return f"{table(data)}\n\n{origin(source, data)}" if "rows" in data else table(data)


def origin(source: str, data: Measurement) -> str:
    """Return processor, versions, date and command of a measurement."""
    one = next(iter(data["rows"].values()))["fixed"]
    versions = ", ".join(f"{name} {data['versions'][name]}" for name in ("speccompile", "onnxruntime"))
    return (
        f"Measured on {data['date']} on {data['processor']} ({data['architecture']}, kernels: {one['kernels']}, "
        f"threads: {one['threads']}), {versions}; the demo, {one['prompts']} held-out prompts, "
        f"{one['max_new_tokens']} new tokens, temperature 0; by `python -m scripts.figures {source}`."
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
