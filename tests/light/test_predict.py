"""Predictions before a build: closed forms, monotonicity, wrong input, and what the command may import and take."""

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from speccompile import native
from speccompile.errors import UsageError
from speccompile.measure.bench.costs import expected_tokens
from speccompile.measure.predict import (
    DataSheetCosts,
    ProfileCosts,
    device_rows,
    find_device,
    predict,
    read_acceptance,
)
from speccompile.measure.predict.accept import accepted_at_depth
from speccompile.measure.profile import Profile, measure_profile, read_profile, write_profile
from speccompile.measure.profile import measure as measure_module
from speccompile.measure.tune.promising import promising
from speccompile.measure.tune.space import DraftShape, TunedRecipe
from speccompile.recipe import load_recipe, make_plan

DEMO = Path(__file__).parents[2] / "recipes/demo"
FLAT = {"float32": 4.0, "bfloat16": 2.0, "int8": 1.0, "int4": 0.6}


def make_profile(threads=1, slope=0.1, **changes):
    """Return a profile by formula: weights take their bytes / 10 GB/s, and `slope` more for every further row."""
    rows, footprints = (1, 2, 8), (1 << 20, 1 << 26)
    linear = {
        name: tuple(tuple(size * 1e-4 * (1 + slope * (each - 1)) for each in rows) for _ in footprints)
        for name, size in FLAT.items()
    }
    values = {
        "processor": "A processor", "architecture": "x86_64", "kernels": "scalar", "threads": threads,
        "memory_bytes": 1 << 33, "date": "2026-01-01", "versions": {"speccompile": "0.1.0"}, "rows": rows,
        "footprints": footprints, "bandwidth": (10.0, 10.0), "run_seconds": 1e-6, "node_seconds": 1e-7,
        "linear": linear, "attend": (1e-4, 1e-4, 1e-4), "gate": 1e-3, "argmax": 1e-3,
    }  # fmt: skip
    return Profile(**(values | changes))


@pytest.fixture(scope="module")
def plan():
    return make_plan(load_recipe(DEMO))


@pytest.fixture
def profile_file(tmp_path):
    """Write a profile with changed keys; None removes a key."""

    def write(**changes):
        data = make_profile().to_json() | changes
        path = tmp_path / "profile.json"
        path.write_text(json.dumps({key: value for key, value in data.items() if value is not None}))
        return path

    return write


@pytest.fixture
def run(command_line):
    return partial(command_line, "predict")


def predicted(plan, costs=None, **settings):
    return predict(plan, costs or ProfileCosts(make_profile()), device="here", memory=None, **settings)


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("drafts", [1, 4, 9])
def test_a_constant_acceptance_gives_the_closed_form_of_leviathan(rate, drafts):
    found = expected_tokens(accepted_at_depth([rate], drafts))
    assert found == pytest.approx((1 - rate ** (drafts + 1)) / (1 - rate))


def test_acceptance_by_depth_multiplies_and_its_last_probability_goes_on():
    assert accepted_at_depth([0.8, 0.5], 4) == pytest.approx([0.8, 0.4, 0.2, 0.1])


def test_the_speedup_is_that_of_the_formula(plan):
    found = predicted(plan, acceptance=[0.7])
    alone, *others = found.shapes
    for shape in others:
        tokens = (1 - 0.7 ** (shape.drafts + 1)) / 0.3
        assert shape.tokens_per_round == pytest.approx((tokens, tokens))
        middle = sum(shape.speedup) / 2
        assert middle == pytest.approx(tokens / shape.break_even)
        assert shape.tokens_per_second.low == pytest.approx(tokens / shape.round_seconds.high)
        assert shape.faster == (shape.speedup.low > 1)
    assert alone.tokens_per_second.low == pytest.approx(1 / alone.round_seconds.high)


def test_what_is_more_takes_longer_and_what_is_accepted_more_is_faster(plan):
    few, many = predicted(plan, acceptance=[0.3]), predicted(plan, acceptance=[0.9])
    times = [shape.round_seconds.low for shape in few.shapes]
    assert times == sorted(times)
    assert all(more.speedup.low > less.speedup.low for less, more in zip(few.shapes[1:], many.shapes[1:], strict=True))
    long = predicted(plan, acceptance=[0.3], context=2048)
    assert all(more.round_seconds > less.round_seconds for less, more in zip(few.shapes, long.shapes, strict=True))


def test_a_data_sheet_gives_the_ceiling_and_its_share_of_bandwidth(plan):
    row = find_device("raspberry-pi-5")
    found = predicted(plan, DataSheetCosts(row))
    low, high = found.shapes[0].tokens_per_second
    assert (low, high) == pytest.approx((0.6 * found.ceiling, 0.9 * found.ceiling))
    assert found.ceiling == pytest.approx(17.1e9 / (found.weight_bytes + 256 * 4 * cache_width(found, plan)), rel=1e-3)


def cache_width(found, plan):
    """Return how many numbers a token has in the caches, by the config: layers x (keys and values) x heads x size."""
    config = json.loads((plan.target.folder / "config.json").read_text())
    heads = config.get("num_key_value_heads", config["num_attention_heads"])
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return 2 * config["num_hidden_layers"] * heads * size


def test_every_device_has_a_source_a_date_and_how_sure_it_is():
    for name, row in device_rows().items():
        assert row.source, name
        assert row.date == "2026-11-24", name
        assert row.bandwidth > 0, name
        assert row.bandwidth_certainty in ("found", "known", "derived"), name
        assert (row.products is None) == (row.products_certainty is None), name
    assert find_device("orin-nano-super").products == 33.5e12  # 67 TOPS, sparse


def test_a_profile_is_read_as_it_was_written(tmp_path):
    written = make_profile()
    path = tmp_path / "profile.json"
    path.write_text(write_profile(written))
    found = read_profile(path)
    assert found.to_json() == written.to_json()
    assert len(path.read_bytes()) < 2048


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"speccompile_profile": 9}, "received a profile of format 9, expected 1"),
        ({"speccompile_profile": None}, "a file without the key 'speccompile_profile'"),
        ({"node_us": -1.0}, r"node_us: received -1.0, expected a number of zero or more"),
        ({"threads": 0}, "threads: received 0, expected a positive integer"),
        ({"rows": [2, 1, 8]}, "rows: received .*, expected ascending positive integers"),
        ({"attend_us_per_million": [1.0]}, "attend_us_per_million: received .*, expected 3 figures"),
        ({"bandwidth_gb_per_second": [1.0, -2.0]}, "bandwidth_gb_per_second: .*expected 2 figures of zero or more"),
        ({"linear_us_per_million": {"int4": [[1.0]]}}, "bfloat16 among them"),
        ({"linear_us_per_million": {"bfloat16": [[1.0]]}}, "linear_us_per_million.bfloat16: .*2 rows of 3 figures"),
        ({"processor": 5}, "processor: received 5, expected a text"),
        ({"versions": [1]}, r"versions: received \[1\], expected an object"),
    ],
)
def test_a_wrong_profile_is_refused(profile_file, changes, message):
    with pytest.raises(UsageError, match=message):
        read_profile(profile_file(**changes))


def test_a_truncated_or_missing_profile_is_refused(profile_file, tmp_path):
    path = profile_file()
    path.write_text(path.read_text()[:100])
    with pytest.raises(UsageError, match="received no whole JSON"):
        read_profile(path)
    with pytest.raises(UsageError, match="it cannot be read"):
        read_profile(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.8,1.2", "received 1.2 at depth 2, expected a probability from 0 to 1"),
        ("-0.1", "received -0.1 at depth 1"),
        ("nan", "received nan at depth 1"),
        ("absent.json", "expected numbers from 0 to 1 or a file that exists"),
    ],
)
def test_wrong_acceptance_is_refused(text, message):
    with pytest.raises(UsageError, match=message):
        read_acceptance(text)


def test_acceptance_comes_from_a_report_or_a_proof(tmp_path):
    report = {"acceptance_by_depth": [{"accepted_after_previous": 0.5}, {"accepted_after_previous": None}]}
    (tmp_path / "bench.json").write_text(json.dumps(report))
    assert read_acceptance(str(tmp_path / "bench.json")) == (0.5,)
    proof = {"engines": [{"acceptance": {"tried": [4, 2, 0], "accepted": [2, 1, 0]}}]}
    (tmp_path / "proof.json").write_text(json.dumps(proof))
    assert read_acceptance(str(tmp_path)) == (0.5, 0.5)
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(UsageError, match="received no acceptance by depth"):
        read_acceptance(str(tmp_path / "empty.json"))
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(UsageError, match="expected JSON that can be read"):
        read_acceptance(str(tmp_path / "broken.json"))


def test_the_command_prints_a_table_or_the_same_as_json(run, profile_file):
    code, out, _ = run(DEMO, "--profile", profile_file(), "--accept", "0.8,0.7", "--set", "drafter.tokens=4")
    assert code == 0
    assert "autoregression" in out
    assert "the profile is of another processor" in out
    _, out, _ = run(DEMO, "--profile", profile_file(), "--set", "engines=[{backend: onnxruntime, provider: cuda}]")
    assert "is not on the processor, whose profile this is" in out
    code, out, _ = run(DEMO, "--profile", profile_file(), "--accept", "0.8,0.7", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["acceptance"] == [0.8, 0.7]
    assert [shape["drafts"] for shape in data["shapes"]] == [0, *range(1, 9)]
    assert run(DEMO, "--profile", profile_file(), "--accept", "0.8,0.7", "--json")[1] == out


def test_a_device_without_enough_memory_is_said_and_no_error(run, profile_file):
    code, out, _ = run(DEMO, "--profile", profile_file(memory_bytes=1 << 20), "--context", 99999)
    assert "99999 committed tokens do not fit in the caches" in out
    assert code == 0
    assert "do not fit in the device's 0.00 GB of memory" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "received no recipe"),
        ([DEMO, "--device", "orin-nano-supr"], "received 'orin-nano-supr'.*\nhint: the nearest are orin-nano-super"),
        ([DEMO, "--device", "apple-m4", "--profile", "x"], "expected one of them"),
        ([DEMO, "--device", "apple-m4", "--threads", "2"], "expected it for a profile"),
        ([DEMO, "--device", "apple-m4", "--accept", "2"], "expected a probability"),
        ([DEMO, "--device", "apple-m4", "--fast"], "received --fast for the recipe"),
    ],
)
def test_wrong_options_are_one_error(run, arguments, message):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err), err


def test_threads_have_to_be_those_of_the_profile(run, profile_file):
    code, _, err = run(DEMO, "--profile", profile_file(), "--threads", "3")
    assert code == 2
    assert "received 3, expected the 1 of the profile" in err


def test_devices_are_listed(run):
    code, out, _ = run("--list-devices")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == list(device_rows())


def test_the_command_answers_soon_and_without_torch():
    program = (
        "import sys, time\nfrom speccompile.cli import main\n"
        f"try: main(['predict', {str(DEMO)!r}, '--device', 'apple-m4'])\n"
        "except SystemExit as leaving: assert not leaving.code\n"
        "assert not {'torch', 'transformers', 'onnx'} & set(sys.modules)\n"
        "assert time.process_time() < 2"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


@pytest.mark.skipif(native.library() is None, reason="the kernels were not compiled")
def test_a_profile_of_this_machine_has_every_figure(monkeypatch):
    monkeypatch.setattr(measure_module, "FOOTPRINTS", (1, 2))
    monkeypatch.setattr(measure_module, "SECONDS", 0.0)
    found = measure_profile(1)
    assert len(write_profile(found)) < 2048
    assert all(each > 0 for table in found.linear.values() for row in table for each in row)
    assert found.threads == 1


def test_tune_skips_shapes_that_cannot_win_even_if_all_is_accepted():
    source = TunedRecipe.read(DEMO, [])
    shapes = [DraftShape(drafts=each) for each in (1, 4, 8)]
    assert promising(source, shapes, make_profile(slope=0.1)) == shapes
    # every further row costs 1.3 times the first: nine tokens take 11.4 times the time of one
    with pytest.raises(UsageError, match="no shape could be faster than autoregression"):
        promising(source, shapes, make_profile(slope=1.3))
