"""scripts/serving/load.py, with tools that are made up: what it asks them for, and what it makes of their answers."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.light.serve_example import toy_server

SCRIPTS = Path(__file__).parents[2] / "scripts" / "serving"

TOOL = """#!{python}
import json, sys
from pathlib import Path
values = dict(zip(sys.argv, sys.argv[1:]))
{body}
"""
GUIDELLM = """
assert "streams=2" in values["--profile"] and "count=6" in values["--constraint"]
spread = {"successful": {"mean": 3.5, "percentiles": {"p50": 20.0, "p95": 40.0}}}
names = ("requests_per_second", "time_to_first_token_ms", "inter_token_latency_ms")
report = {"benchmarks": [{"metrics": {name: spread for name in names}}]}
Path(values["--output"].split("path=")[1]).write_text(json.dumps(report))
"""
AIPERF = """
assert values["--model"] == "toy" and values["--concurrency"] == "2"
asked = [json.loads(line) for line in Path(values["--input-file"]).read_text().splitlines()]
assert asked == [{"text": "def", "output_length": 8}]
report = {"request_throughput": {"avg": 3.5}, "time_to_first_token": {"p50": 20.0, "p95": 40.0},
          "inter_token_latency": {"p50": 20.0}, "spec_decode_rate": {"avg": 0.5}}
folder = Path(values["--artifact-dir"])
folder.mkdir()
(folder / "profile_export_aiperf.json").write_text(json.dumps(report))
"""


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    for name in ("figures", "load", "tool_aiperf", "tool_guidellm"):  # of whoever used the name before
        monkeypatch.delitem(sys.modules, name, raising=False)
    return import_module("load")


def tool(folder: Path, name: str, body: str) -> Path:
    program = folder / name / "bin" / name
    program.parent.mkdir(parents=True)
    program.write_text(TOOL.format(python=sys.executable, body=body))
    program.chmod(0o755)
    return folder / name


@pytest.fixture
def job(scripts, tmp_path):
    given = tmp_path / "given.jsonl"
    given.write_text(json.dumps({"prompt": "def"}) + "\n")
    prompts = scripts._prompts(given, 8, tmp_path)
    with toy_server() as running:
        yield scripts.Job(running.address, tmp_path, prompts, 2, 6, 8, tmp_path)


@pytest.mark.parametrize(("name", "body", "spec"), [
    ("guidellm", GUIDELLM, None), ("aiperf", AIPERF, {"spec_decode_rate": 0.5}),
])  # fmt: skip
def test_a_tools_report_is_read(scripts, job, tmp_path, name, body, spec):
    run = scripts._run(name, tool(tmp_path, name, body), "speculative", job)
    figures = run.figures
    assert (figures.requests_per_second, figures.first_token_p50, figures.first_token_p95) == (3.5, 20, 40)
    assert (figures.token_p50, figures.spec, run.failed) == (20, spec, "")
    assert " 3.50 requests/s  first token    20.0 ms (p95    40.0)" in scripts._line(run)


def test_a_tool_that_fails_is_told(scripts, job, tmp_path):
    run = scripts._run("aiperf", tool(tmp_path, "aiperf", 'sys.exit("no tokenizer")'), "autoregressive", job)
    assert (run.figures, run.failed) == (None, "no tokenizer")
    assert scripts._line(run).endswith("failed: no tokenizer")
