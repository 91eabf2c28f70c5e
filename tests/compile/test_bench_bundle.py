"""`speccompile bench` on bundles that were really built: its bytes against the onnx package, and all it prints."""

import json
from collections import Counter
from pathlib import Path

import onnx
import pytest

from speccompile.bundle import open_bundle
from speccompile.measure.bench.weights import weight_reads

QUESTIONS = [
    {"question_id": 81, "category": "writing", "turns": ["the", "and"]},
    {"question_id": 161, "category": "translation", "turns": ["x = 1"], "reference": ["y"]},
]


def reads_by_onnx(path: Path) -> tuple[int, int]:
    """Return bytes read whole, and bytes of rows. Whoever reads a transposed weight reads the weight."""
    graph = onnx.load(path, load_external_data=False).graph
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    counts = Counter[str]()
    for tensor in graph.initializer:
        shape = tuple(tensor.dims)
        size = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        for dimension in shape:
            size *= dimension
        pending = list(readers.get(tensor.name, []))
        while pending:
            node = pending.pop()
            is_gathered = node.op_type == "Gather" and node.input[0] == tensor.name
            if is_gathered or node.op_type in ("EmbedFloat32", "EmbedBFloat16", "EmbedInt8"):
                counts["row"] += size // shape[0]
            elif node.op_type in ("Transpose", "Reshape", "Unsqueeze", "Cast") and readers.get(node.output[0]):
                pending += readers[node.output[0]]
            else:
                counts["whole"] += size
    return counts["whole"], counts["row"]


@pytest.mark.parametrize("name", ["model_4", "lookup_3"])
def test_the_weights_of_real_graphs(built, name):
    path = built(name).path
    files = open_bundle(path).manifest.engines[0].files
    for file in files.values():
        found = weight_reads(path / file)
        assert (found.whole, found.row) == reads_by_onnx(path / file)
    whole = weight_reads(path / files["verify"]).whole
    weights = sum(each.stat().st_size for each in path.glob("graphs/target*.weights"))
    assert 0.5 * weights < whole < 1.1 * weights  # all but an embedding


def test_a_whole_benchmark(built, cli, tmp_path):
    prompts, page = tmp_path / "question.jsonl", tmp_path / "bench.html"
    prompts.write_text("\n".join(map(json.dumps, QUESTIONS)))
    options = ["--max-new-tokens", 12, "--repeats", 1, "--threads", 1, "--fixed-draft-length", "--json", "--html", page]
    code, out, err = cli("bench", built("model_4").path, "--prompts", prompts, *options)
    printed = json.loads(out)
    assert code == 0, err
    assert (printed["equal_prompts"], printed["conversation"]) == (2, "plain")
    assert [group["group"] for group in printed["groups"]] == ["mt_bench", "translation", "overall"]
    costs, ways = printed["costs"], (printed["speculative"], printed["autoregressive"])
    assert [point["width"] for point in costs["verify"]] == [1, 2, 3, 4, 5, 6, 7, 8, 16]
    assert all(point["seconds"] > 0 for point in costs["verify"])
    assert costs["draft_seconds"] > 0
    assert costs["allowed_tokens_per_second"] > 0
    for way in ways:
        waits = way["inter_token_seconds"]
        assert 0 < waits["p50"] <= waits["p90"] <= waits["p99"]
        assert waits["p50"] <= way["round_seconds"]["p99"]
        assert way["first_token_seconds"] > 0
    target = printed["roofline"]["autoregressive"]["weight_bytes"]
    assert printed["roofline"]["speculative"]["weight_bytes"] > target > 0
    assert printed["roofline"]["bandwidth"]["threads"] == 1
    assert page.read_text().count("<svg") == 5
