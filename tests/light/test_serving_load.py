"""scripts/serving/load.py, with tools and servers that are made up: what they are asked for, what they answer."""

import json
import sys
from argparse import Namespace
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.light.fake_bundle import write_toy_bundle
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
metrics = {name: spread for name in names} | {"output_token_count": {"successful": {"mean": 8.0}}}
report = {"benchmarks": [{"metrics": metrics}]}
Path(values["--output"].split("path=")[1]).write_text(json.dumps(report))
"""
AIPERF = """
assert values["--model"] == "toy" and values["--concurrency"] == "2"
asked = [json.loads(line) for line in Path(values["--input-file"]).read_text().splitlines()]
assert asked == [{"text": "def", "output_length": 8}]
report = {"request_throughput": {"avg": 3.5}, "time_to_first_token": {"p50": 20.0, "p95": 40.0},
          "inter_token_latency": {"p50": 20.0, "p95": 40.0}, "output_sequence_length": {"avg": 8.0},
          "spec_decode_rate": {"avg": 0.5}}
folder = Path(values["--artifact-dir"])
folder.mkdir()
(folder / "profile_export_aiperf.json").write_text(json.dumps(report))
"""
LLAMA_SERVER = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(sys.argv[1:]).encode())
HTTPServer((values["--host"], int(values["--port"])), Handler).serve_forever()
"""


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    # modules of whoever used their names before
    for name in ("figures", "load", "servers", "tool_aiperf", "tool_guidellm", "tool_plain"):
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
    assert (figures.token_p50, figures.token_p95, figures.spec, run.failed) == (20, 40, spec, "")
    assert " 3.50 requests/s  first token    20.0 ms (p95    40.0)" in scripts._line(run)


def test_our_own_client_counts_what_it_gets(scripts, job, tmp_path):
    run = scripts._run("plain", tmp_path, "native", job)
    assert (run.figures.tokens, run.failed) == (job.tokens, "")
    assert 0 < run.figures.first_token_p50 <= run.figures.first_token_p95
    assert 0 < run.figures.token_p50 <= run.figures.token_p95


def test_a_tool_that_fails_is_told(scripts, job, tmp_path):
    run = scripts._run("aiperf", tool(tmp_path, "aiperf", 'sys.exit("no tokenizer")'), "autoregressive", job)
    assert (run.figures, run.failed) == (None, "no tokenizer")
    assert scripts._line(run).endswith("failed: no tokenizer")


def test_answers_that_end_early_are_no_figures(scripts, job, tmp_path):
    run = scripts._run("guidellm", tool(tmp_path, "guidellm", GUIDELLM), "llama.cpp", replace(job, tokens=9))
    assert scripts._line(run).endswith("failed: answers of 8.0 tokens, expected 9")


@pytest.fixture
def asked(scripts, tmp_path, monkeypatch):
    """Return options of a run that llama.cpp's server is there for; it tells how it was called."""
    environment = tool(tmp_path, "llama_cpp", 'sys.exit("no such model")')
    (environment / "bin" / "llama_cpp").rename(environment / "bin" / "llama-server")
    (environment / "installed").touch()
    write_toy_bundle(tmp_path / "toy", batch_size=3)
    native = Namespace(command=tmp_path / "speccompile-native", onnxruntime=tmp_path / "library")
    monkeypatch.setattr(scripts, "locations", lambda: native)
    monkeypatch.setattr(scripts, "_gguf", lambda environment, model, file, weights: f"{file} {weights}")
    return Namespace(
        bundle=tmp_path / "toy",
        folder=tmp_path,
        tokenizer=tmp_path,
        drafter=tmp_path,
        threads=2,
        mode=None,
        weights="Q8_0",
        keep_texts=False,
        openvino=tmp_path,
    )


def test_llama_cpp_has_what_the_bundle_has(scripts, asked, tmp_path):
    program = tmp_path / "llama_cpp" / "bin" / "llama-server"
    program.write_text(TOOL.format(python=sys.executable, body=LLAMA_SERVER))
    with scripts._modes(asked, tmp_path)["llama.cpp, draft"]() as server, urlopen(server.address) as response:
        words = json.loads(response.read())
    values = dict(pairwise(words))
    length = json.loads((asked.bundle / "manifest.json").read_text())["max_length"]
    assert values["--cache-ram"] == "0"
    assert (values["--parallel"], values["--ctx-size"], values["--threads"]) == ("3", str(3 * length), "2")
    assert (values["--temp"], values["--spec-type"]) == ("0", "draft-simple")
    assert (values["--model"], values["--model-draft"]) == (
        f"{tmp_path / 'target.gguf'} Q8_0", f"{tmp_path / 'drafter.gguf'} Q8_0"
    )  # fmt: skip


def test_servers_keep_texts_only_where_asked_each_in_a_folder_of_its_own(scripts, asked, tmp_path):
    for keeps in (False, True):
        asked.keep_texts = keeps
        modes = scripts._modes(asked, tmp_path)
        options = {mode: modes[mode].args[1] for mode in scripts.MODES[:4]}
        folders = {words[words.index("--sessions") + 1] for words in options.values() if "--sessions" in words}
        assert len(folders) == 4 * keeps
        assert ("--cache-ram" in modes["llama.cpp"].args[2]) != keeps


def test_a_server_that_ends_is_told(scripts, asked, tmp_path):
    with pytest.raises(SystemExit, match="ended with 1: no such model"), scripts._modes(asked, tmp_path)["llama.cpp"]():
        pass


def test_modes_are_those_that_can_run_and_were_asked_for(scripts, asked, tmp_path, monkeypatch):
    assert tuple(scripts._modes(asked, tmp_path)) == scripts.MODES
    asked.drafter = None
    assert tuple(scripts._modes(asked, tmp_path)) == scripts.MODES[:6]
    asked.openvino = None
    assert tuple(scripts._modes(asked, tmp_path)) == (*scripts.MODES[:4], "llama.cpp")
    asked.mode = ["llama.cpp"]
    assert tuple(scripts._modes(asked, tmp_path)) == ("llama.cpp",)
    (tmp_path / "llama_cpp" / "installed").unlink()
    monkeypatch.setattr(scripts, "locations", lambda: Namespace(command=None, onnxruntime=None))
    assert tuple(scripts._modes(Namespace(**vars(asked) | {"mode": None}), tmp_path)) == scripts.MODES[:2]
    with pytest.raises(SystemExit, match="received the modes"):
        scripts._modes(asked, tmp_path)
