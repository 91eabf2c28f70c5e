"""What is read of memory: weights by hand-written ONNX files, caches by the contract, bandwidth by a buffer."""

from dataclasses import replace

import numpy as np
import pytest

from speccompile.contract import Graph, Tensor
from speccompile.measure.bench import roofline
from speccompile.measure.bench.mode import make_mode_statistics
from speccompile.measure.bench.roofline import Bandwidth, MemoryReads, make_roofline, measure_bandwidth, measure_reading
from speccompile.measure.bench.weights import WeightReads, weight_reads
from tests.light.bench_example import AUTOREGRESSIVE, SPECULATIVE, timed
from tests.light.bundle_example import cpu_entry, manifest

FLOAT, INT64, FLOAT16, INT4 = 1, 7, 10, 22


def varint(value):
    parts = [value >> shift & 127 for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([part | 128 for part in parts[:-1]] + parts[-1:])


def field(number, value):
    """Return one field of a message in protobuf's wire format: a number, a text or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def initializer(name, kind, *shape, packed=True):
    dims = field(1, b"".join(map(varint, shape))) if packed else b"".join(field(1, size) for size in shape)
    where = field(13, field(1, "location") + field(2, "weights"))
    return field(5, dims + field(2, kind) + field(8, name) + where + field(14, 1))


def node(operator, inputs, output="", graphs=()):
    named = b"".join(field(1, name) for name in inputs) + field(2, output) + field(4, operator)
    # an attribute with a float, whose four bytes are skipped, and a graph
    number = varint(2 << 3 | 5) + np.float32(0.5).tobytes() + varint(9 << 3 | 1) + bytes(8)
    return field(1, named + b"".join(field(5, field(1, "body") + number + field(6, graph)) for graph in graphs))


@pytest.fixture
def reads(tmp_path):
    def make(*parts):
        path = tmp_path / "graph.onnx"
        path.write_bytes(field(1, 10) + field(7, b"".join(parts)) + field(2, "producer"))
        return weight_reads(path)

    return make


def test_weights_count_for_every_node_that_reads_them(reads):
    wanted = [initializer("w", FLOAT, 300, 20), initializer("b", FLOAT16, 20), initializer("q", INT4, 3, 5)]
    nodes = [node("MatMul", ["x", "w"], "y"), node("MatMul", ["y", "w"], "z"), node("MatMulNBits", ["z", "q", "b"])]
    assert reads(*wanted, *nodes) == WeightReads(whole=2 * 300 * 20 * 4 + 20 * 2 + 8, row=0)
    assert reads(initializer("unread", FLOAT, 10), node("Relu", ["x"], "y")) == WeightReads(0, 0)
    assert reads(initializer("scalar", INT64, packed=False), node("Add", ["x", "scalar"])) == WeightReads(8, 0)


def test_a_table_that_is_looked_up_counts_by_its_rows(reads):
    table = initializer("table", FLOAT16, 1000, 64, packed=False)
    lookup = node("Gather", ["table", "ids"], "rows")
    assert reads(table, lookup) == WeightReads(whole=0, row=128)
    assert reads(table, lookup, lookup) == WeightReads(whole=0, row=256)
    # tied to the head: the same table, transposed when the graph is opened, is read by as many products
    tied = [node("Transpose", ["table"], "head"), node("MatMul", ["x", "head"]), node("MatMul", ["y", "head"])]
    assert reads(table, lookup, *tied) == WeightReads(whole=2 * 128000, row=128)
    blocks = [initializer("data", INT4, 1000, 64), initializer("scales", FLOAT, 1000, 2)]
    assert reads(*blocks, node("GatherBlockQuantized", ["data", "ids", "scales"])) == WeightReads(0, 32 + 8)
    assert reads(initializer("ids", INT64, 6), node("Gather", ["x", "ids"])) == WeightReads(48, 0)


def test_weights_that_are_results_or_read_in_subgraphs(reads):
    weight = initializer("w", FLOAT, 4, 4)
    assert reads(weight, node("Transpose", ["w"], "out")) == WeightReads(64, 0)  # an output of the graph
    body = node("MatMul", ["x", "w"], "y") + initializer("inner", FLOAT, 2) + node("Mul", ["y", "inner"])
    assert reads(weight, node("If", ["condition"], "z", graphs=[body])) == WeightReads(64 + 8, 0)


def graphs():
    """verify: two caches of the target; draft: one of the drafter."""

    def cache(name, dtype, *shape):
        return Tensor(name, dtype, shape, name, "state")

    window = Tensor("window", "int64", (1, "window"), "window", "io")
    tokens = cache("tokens", "int64", 1, 64)
    key, value = (cache(f"target.{name}.0", "float16", 2, 4, 64, 8) for name in ("key", "value"))
    return (
        Graph("verify", (window, key, value, tokens), ()),
        Graph("draft", (cache("drafter.key.0", "float32", 2, 1, 64, 8),), ()),
    )


WEIGHTS = {"verify": WeightReads(100_000, 10), "draft": WeightReads(5_000, 7)}
BANDWIDTH = Bandwidth(1e6, 1, 0)


def test_bytes_of_a_round_and_of_a_token():
    made = manifest(batch_size=2)  # four drafts, a catch-up of two
    ours, theirs = make_mode_statistics([(timed(SPECULATIVE),)]), make_mode_statistics([(timed(AUTOREGRESSIVE),)])
    found = make_roofline(MemoryReads(BANDWIDTH, WEIGHTS), made, graphs(), 20, ours, theirs)
    target_row, drafter_row = 2 * 2 * 4 * 8 * 2, 4 * 2 * 8 * 4  # the drafter reads its caches once a depth
    weights = 100_000 + 2 * 5 * 10 + 5_000 + 2 * 2 * 7
    assert (found.speculative.weight_bytes, found.speculative.cache_bytes) == (weights, 20 * (target_row + drafter_row))
    assert found.speculative.bytes_per_token == (weights + 20 * (target_row + drafter_row)) / 2
    assert found.speculative.share == pytest.approx(found.speculative.bytes_per_token * 10 / 1e6)
    assert (found.autoregressive.weight_bytes, found.autoregressive.cache_bytes) == (100_020, 20 * target_row)
    assert found.autoregressive.bytes_per_token == 100_020 + 20 * target_row
    assert (found.bandwidth, found.context) == (BANDWIDTH, 20)


def test_rounds_without_drafts_read_the_target_alone():
    adaptive = replace(SPECULATIVE, draft_lengths=[4, 0, 0])
    ours, theirs = make_mode_statistics([(timed(adaptive),)]), make_mode_statistics([(timed(AUTOREGRESSIVE),)])
    found = make_roofline(MemoryReads(BANDWIDTH, WEIGHTS), manifest(), graphs(), 30, ours, theirs).speculative
    assert found.weight_bytes == round(100_050 + 5_014 / 3)
    assert found.cache_bytes == round(30 * (2 * 2 * 4 * 8 * 2 + 4 * 2 * 8 * 4 / 3))
    verify, draft = graphs()
    fused = (Graph("step", (*verify.inputs, *draft.inputs), ()), verify)
    weights = {"step": WeightReads(105_000, 17), "verify": WEIGHTS["verify"]}
    found = make_roofline(MemoryReads(BANDWIDTH, weights), manifest(), fused, 30, ours, theirs).speculative
    assert found.weight_bytes == round(105_085 / 3 + 100_050 * 2 / 3)


def test_a_fused_step_reads_all_and_verify_alone_the_target():
    verify, draft = graphs()
    step = Graph("step", (*verify.inputs, *draft.inputs), ())
    weights = {"step": WeightReads(105_000, 17), "verify": WEIGHTS["verify"]}
    ours, theirs = make_mode_statistics([(timed(SPECULATIVE),)]), make_mode_statistics([(timed(AUTOREGRESSIVE),)])
    found = make_roofline(MemoryReads(BANDWIDTH, weights), manifest(), (step, verify), 20, ours, theirs)
    assert found.speculative.weight_bytes == 105_000 + 5 * 17
    assert found.autoregressive.weight_bytes == 100_010
    alone = make_roofline(MemoryReads(BANDWIDTH, weights), manifest(), (step, verify), 20, None, theirs)
    assert (alone.speculative, alone.autoregressive) == (None, found.autoregressive)


def test_drafts_that_no_graph_makes_cost_the_round_that_verifies_them():
    """Count rounds of an index, which the host searches: it rests in some rounds, and drafts in others."""
    verify, _ = graphs()
    adaptive = replace(SPECULATIVE, draft_lengths=[4, 0, 4])
    ours, theirs = make_mode_statistics([(timed(adaptive),)]), make_mode_statistics([(timed(AUTOREGRESSIVE),)])
    reading = MemoryReads(BANDWIDTH, {"verify": WEIGHTS["verify"]})
    found = make_roofline(reading, manifest(catch_up=0), (verify,), 30, ours, theirs).speculative
    assert (found.weight_bytes, found.cache_bytes) == (100_050, 30 * 2 * 2 * 4 * 8 * 2)


def test_without_a_round_nothing_is_reached():
    nothing = replace(AUTOREGRESSIVE, token_ids=[1], rounds=0, path_lengths=[], draft_lengths=[])
    found = make_roofline(
        MemoryReads(BANDWIDTH, WEIGHTS), manifest(), graphs(), 20, None, make_mode_statistics([(timed(nothing),)])
    )
    assert found.autoregressive.share is None


def test_bandwidth_is_that_of_a_buffer_beyond_the_caches(monkeypatch):
    monkeypatch.setattr(roofline, "SMALLEST", 1 << 20)
    monkeypatch.setattr(roofline, "_last_level_cache", lambda: 3 << 20)
    found = measure_bandwidth(2)
    assert (found.threads, found.buffer_bytes) == (2, 12 << 20)
    assert found.bytes_per_second > 0
    monkeypatch.setattr(roofline, "_last_level_cache", lambda: 1 << 40)
    monkeypatch.setattr(roofline, "physical_memory", lambda: 80 << 20)
    assert measure_bandwidth(1).buffer_bytes == 10 << 20


def test_only_graphs_on_the_processor_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(roofline, "measure_bandwidth", lambda threads: Bandwidth(1.0, threads, 0))
    (tmp_path / "verify.onnx").write_bytes(field(7, initializer("w", FLOAT, 5) + node("MatMul", ["x", "w"])))
    entry = cpu_entry(graphs(), {"verify": "verify.onnx"})
    assert measure_reading(tmp_path, entry, 3) == MemoryReads(Bandwidth(1.0, 3, 0), {"verify": WeightReads(20, 0)})
    assert measure_reading(tmp_path, replace(entry, provider="cuda"), 3) is None
