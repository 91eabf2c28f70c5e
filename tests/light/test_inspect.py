import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from speccompile.bundle import BundleWriter, open_bundle
from speccompile.bundle.buffers import Buffer, buffers
from speccompile.cli.inspect import command, size_in_bytes
from speccompile.contract import DTYPES, Graph, Tensor
from speccompile.errors import BundleError
from tests.light.bundle_example import (
    LOCK,
    PROOF,
    constrained,
    fill,
    manifest,
    tensorrt_entries,
    write_bundle,
)
from tests.light.fake_bundle import write_toy_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("built") / "demo")


def inspect(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_buffers_have_their_bytes():
    wide = Tensor("path", "int64", (2, "window+1"), "path", "io")
    cache = Tensor("target.key.0", "float32", (1, 2, 160, 4), "target.key.0", "state")
    first = Graph(
        "verify",
        (Tensor("window", "int64", (1, "window"), "window", "io"), cache),
        (replace(wide, shape=(1, "window+1")),),
    )
    found = buffers([first, Graph("draft", (wide,), (replace(cache, name="target.key.0.out"),))])
    assert found == (
        Buffer("window", "int64", (1, "window"), "io"),
        Buffer("path", "int64", (1, "window+1"), "io"),
        Buffer("path", "int64", (2, "window+1"), "io"),
        Buffer("target.key.0", "float32", (1, 2, 160, 4), "state"),
    )
    assert list(map(size_in_bytes, found)) == ["8*window", "8*(window+1)", "16*(window+1)", 4 * 1 * 2 * 160 * 4]


def test_all_rows_of_a_batch_lie_in_memory():
    cache, window = Buffer("cache", "float32", ("batch", 2, 32, 4), "state"), Buffer("a", "int64", ("batch", "b"), "io")
    assert [size_in_bytes(each, 3) for each in (cache, window)] == [4 * 3 * 2 * 32 * 4, "24*b"]


def test_a_dtype_without_a_size_is_refused():
    odd = Buffer("window", "float5", (1,), "io")
    message = r"manifest\.json: buffer 'window' has dtype 'float5', expected one of float32, float16, "
    with pytest.raises(BundleError, match=message) as caught:
        size_in_bytes(odd)
    assert caught.value.hint == "upgrade speccompile"


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_of_the_contract_has_a_size(dtype):
    assert size_in_bytes(Buffer("any", dtype, (2, 3), "io")) == 6 * DTYPES[dtype].bytes


def test_a_bundle_that_takes_constraints_is_shown(tmp_path):
    folder = write_bundle(tmp_path / "demo", **constrained())
    shown = inspect(str(folder))
    assert shown.exit_code == 0, shown.output
    (row,) = [line.split() for line in shown.stdout.splitlines() if line.split()[:1] == ["allowed"]]
    assert row == ["allowed", "bool", "[1,", "logit_rows,", "allowed]", "1*logit_rows*allowed", "bytes"]
    (held,) = [
        each for each in json.loads(inspect(str(folder), "--json").stdout)["buffers"] if each["name"] == "allowed"
    ]
    assert held["bytes"] == "1*logit_rows*allowed"


def test_the_object_is_the_bundle(bundle):
    printed = json.loads(inspect(str(bundle), "--json").stdout)
    assert list(printed) == [
        "digest", "verified", "manifest", "buffers", "files", "lock", "prefixes", "context", "here", "proof"
    ]  # fmt: skip
    assert (printed["lock"], printed["proof"]) == (LOCK, PROOF)
    assert printed["manifest"] == manifest().to_json()
    assert {"digest": printed["digest"], "files": printed["files"]} == json.loads((bundle / "hashes.json").read_bytes())
    assert printed["buffers"][0] == {
        "name": "window",
        "dtype": "int64",
        "shape": [1, "window"],
        "role": "io",
        "bytes": "8*window",
    }


def test_people_see_everything_that_matters(bundle):
    lines = inspect(str(bundle)).stdout.splitlines()
    record = open_bundle(bundle).hashes
    for line in (
        "name        demo",
        "decoding    greedy",
        "method      exact",
        "exact       yes",
        "drafts      4 a round, a chain, the best",
        f"digest      {record.digest} (verified)",
        "  onnxruntime-cpu  onnxruntime  cpu  drafter=float32 target=float32  verify=graphs/verify.onnx",
        "  out  target.key.0.out  float32  [1, 2, 160, 4]        updates target.key.0 in place",
        "  window                        int64    [1, window]           8*window bytes",
        "  fixed sizes, onnxruntime-cpu                                 5152 bytes",
        f"  graphs/weights.bin        2048 bytes  {record.files['graphs/weights.bin'].blake3}",
        "  versions.torch                   2.13.0",
        "  speculative.equal    3",
        "  prompts              def, größe, 你好",
    ):
        assert line in lines


def test_what_is_not_exact_and_has_no_drafts_says_so(tmp_path):
    rule = {"method": "typical", "exact": False, "parameters": {"epsilon": 0.09, "delta": 0.3}}
    changed = manifest(
        exact=False, method="typical", plan={"verify": rule}, tokens=0, depth=0, tokenizer=False, eos_token_ids=()
    )
    with BundleWriter(tmp_path / "demo") as writer:
        fill(writer.folder)
        (writer.folder / "graphs" / "weights.bin").write_bytes(bytes(1_500_000))
        writer.finish(changed, {}, {"prompts": [{"text": "a"}], "passed": True})
    printed = inspect(str(tmp_path / "demo")).stdout
    for words in (
        "method      typical (delta 0.3, epsilon 0.09)\n",
        "exact       no: approximate, speculation may change the output",
        "drafts      none",
        "end tokens none",
        "no: token ids only",
    ):
        assert words in printed
    for words in ("1.50 MB", "  empty  {}", "  passed   true", "  prompts  text a"):
        assert words in printed
    assert "quality" not in printed


CASCADE = {
    "inner": {"kind": "prompt_lookup", "tokens": 3, "passes": 2},
    "cascade": {
        "then": {"kind": "prompt_lookup", "tokens": 1}, "gate": {"kind": "prompt_lookup", "tokens": 4, "match": 5}
    },
}  # fmt: skip
"""What a plan says of them, as far as `inspect` reads it."""


@pytest.mark.parametrize(
    ("changes", "drafts"),
    [
        ({"tree": "static", "sample": True}, "10 a round, a static tree of depth 3, drawn"),
        ({"tree": "dynamic"}, "6 a round, a dynamic tree of depth 3, the best"),
        (
            {"plan": {"verify": {"parameters": {}}, "drafter": CASCADE}},
            "4 a round, a chain, the best; prompt_lookup drafts 3 for each of the drafter's 2 passes; prompt_lookup "
            "drafts 1 behind the drafter's; prompt_lookup drafts 4 in their place where it matches 5 tokens or more",
        ),
    ],
)
def test_sampling_and_trees_are_shown(changes, drafts, tmp_path):
    lines = inspect(str(write_toy_bundle(tmp_path / "demo", sampling=True, **changes))).stdout.splitlines()
    assert {"decoding    sampling", f"drafts      {drafts}"} <= set(lines)


def test_an_engine_has_its_own_sizes_and_its_builders_settings(tmp_path):
    """Show the settings of a deferred engine, and the results of a built one."""
    lines = inspect(str(write_bundle(tmp_path / "demo", engines=tensorrt_entries()))).stdout.splitlines()
    first = lines.index("engine later, to be built with")
    assert lines[first + 1 : first + 3] == [
        "  verify.profile.window  [1, 1], [1, 5], [1, 16]",
        "  verify.tf32            false",
    ]
    second = lines.index("engine now, as built")
    assert lines[second + 1 : second + 4] == [
        "  verify.builder         tensorrt 10.15",
        "  verify.inputs          2 entries",
        "  verify.profile.window  [1, 1], [1, 5], [1, 16]",
    ]
    assert [line.split()[-2:] for line in lines if line.startswith("  fixed sizes, ")] == [["2592", "bytes"]] * 2


QUALITY = {
    "file": "held_out.jsonl", "texts": 16, "tokens": 3979, "kl_tokens": 500, "perplexity": 8.72414,
    "engines": [
        {"engines": ["cpu", "gpu-8.6"], "executed_by": "onnxruntime cpu", "precision": "int4", "block_size": 32,
         "perplexity": 8.8488, "same_argmax": 0.9487, "kl_divergence": 0.009598},
        {"engines": ["half"], "executed_by": "onnxruntime cpu", "precision": "float16", "block_size": None,
         "perplexity": 8.7242, "same_argmax": 1.0, "kl_divergence": 1e-06},
    ],
}  # fmt: skip


def test_what_a_precision_costs_is_shown_by_itself(tmp_path):
    with BundleWriter(tmp_path / "demo") as writer:
        fill(writer.folder)
        writer.finish(manifest(), LOCK, PROOF | {"quality": QUALITY})
    lines = inspect(str(tmp_path / "demo")).stdout.splitlines()
    first = lines.index("quality of the target on held_out.jsonl: 16 texts, 3979 tokens, KL divergence over 500")
    assert lines[first + 1 : first + 6] == [
        "  engines       precision                 perplexity  same best token  KL divergence",
        "  transformers  float32                   8.7241",
        "  cpu, gpu-8.6  int4, 32 weights a scale  8.8488      94.87 %          0.009598 nats",
        "  half          float16                   8.7242      100.00 %         0.000001 nats",
        "",
    ]
    assert [line for line in lines[first + 6 :] if "quality" in line] == []
    assert json.loads(inspect(str(tmp_path / "demo"), "--json").stdout)["proof"]["quality"] == QUALITY


def test_the_help_names_every_number_of_quality():
    described = inspect("--help").stdout
    for key in (*QUALITY, *QUALITY["engines"][0]):
        assert key in described


def test_an_edited_bundle_is_shown_only_on_request(tmp_path):
    weights = write_bundle(tmp_path / "demo") / "graphs" / "weights.bin"
    weights.write_bytes(weights.read_bytes()[::-1])
    refused = inspect(str(tmp_path / "demo"))
    assert isinstance(refused.exception, BundleError)
    assert refused.stdout == ""
    assert "(not verified)" in inspect(str(tmp_path / "demo"), "--no-verify").stdout
    assert json.loads(inspect(str(tmp_path / "demo"), "--no-verify", "--json").stdout)["verified"] is False


def test_the_help_has_an_example():
    assert "speccompile inspect build/demo --json" in inspect("--help").stdout
