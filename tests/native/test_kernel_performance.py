"""The kernels' instructions beside those that are written down, and how they are compared."""

import shutil

import pytest

from scripts.performance.attention import Measured as Layer
from scripts.performance.attention import Shape, attention_table
from scripts.performance.emulated import Emulated, count_emulated, emulated_table
from scripts.performance.instructions import (
    HISTORY,
    Count,
    compiler,
    count_instructions,
    grown,
    read_history,
    write_history,
)
from scripts.performance.program import CROSS, compiled
from scripts.performance.roofline import Measured, Roofline, table

KEY = ("avx2", "int4", 5)


@pytest.mark.parametrize(
    ("before", "now", "is_grown"),
    [
        (Count(1000, 10_000), Count(1080, 10_800), False),
        (Count(1000, 10_000), Count(1081, 10_000), True),
        (Count(1000, 10_000), Count(500, 10_801), True),
        (None, Count(1000, 10_000), True),
    ],
)
def test_more_than_eight_percent_is_a_regression(before: Count | None, now: Count, is_grown: bool) -> None:
    found = grown({KEY: before} if before else {}, {KEY: now})
    assert [each.key for each in found] == ([KEY] if is_grown else [])
    assert all("int4 on avx2, a window of 5" in str(each) for each in found)


def test_counts_of_compilers_lie_beside_each_other(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("scripts.performance.instructions.HISTORY", tmp_path / "counts.toml")
    write_history("gcc-12", {KEY: Count(1000, 10_000)})
    write_history("gcc-14", {KEY: Count(900, 10_000)})
    assert read_history("gcc-12") == {KEY: Count(1000, 10_000)}
    assert read_history("gcc-14") == {KEY: Count(900, 10_000)}
    assert read_history("gcc-13") == {}


def test_a_table_says_what_bounds_a_product() -> None:
    rows = [Measured("int4", 1, 1e-4, 8e-5, 2e-5), Measured("int4", 25, 1e-3, 8e-5, 5e-4)]
    said = table(Roofline("a processor", "avx2", 3e10, rows))
    assert "| int4 | 1 | 100.0 | 1.00 | 1.25 | memory |" in said
    assert "| int4 | 25 | 1000.0 | 10.00 | 2.00 | products |" in said


def test_a_table_says_how_much_sooner_quantized_caches_are() -> None:
    layers = [Layer("float", 4e-3, 33554432, 44.4), Layer("int8", 2e-3, 8912896, 54.1)]
    said = attention_table({Shape(16384, 5, 16, 4, 64): layers})
    assert "| 16, 4 | 16384 | 5 | float | 4.00 | 1.00 | 33.6 | 44 |" in said
    assert "| 16, 4 | 16384 | 5 | int8 | 2.00 | 2.00 | 8.9 | 54 |" in said


def test_a_table_says_what_a_product_takes_at_least() -> None:
    counted = [
        Emulated("int4", 1, 20480, 8000, 5000, 2000, 2048),
        Emulated("int4", 5, 20480, 44000, 20000, 9000, 10240),
    ]
    said = emulated_table(counted)
    assert "| int4 | 1 | 8000 | 5000 | 2000 | 2500 | 1.00 | 8.2 |" in said  # two on vectors in a cycle
    assert "| int4 | 5 | 44000 | 20000 | 9000 | 11000 | 4.40 | 1.9 |" in said  # four in a cycle


@pytest.mark.sweep("compiles the kernels for ARM")
def test_no_product_takes_more_instructions_than_before_on_arm() -> None:
    for tool in ("qemu-aarch64", f"{CROSS}g++"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    known = read_history(compiler(CROSS))
    if not known:
        pytest.skip(f"{HISTORY.name} has no counts of {compiler(CROSS)}")
    counted = count_emulated(compiled(cross=True))
    # A dot product has four numbers of four columns: these at least, and no more of them.
    weight = 512 * 64 // 16
    assert {each.dots for each in counted if each.precision not in ("float32", "bfloat16")} == {
        weight * window for window in (1, 5, 25)
    }
    assert [str(each) for each in grown(known, {each.key: each.count for each in counted})] == []


@pytest.mark.sweep("compiles the kernels")
def test_no_product_takes_more_instructions_than_before() -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("needs valgrind")
    known = read_history(compiler())
    if not known:
        pytest.skip(f"{HISTORY.name} has no counts of {compiler()}")
    now = count_instructions(compiled())
    assert now.keys() == known.keys()
    assert [str(each) for each in grown(known, now)] == []
