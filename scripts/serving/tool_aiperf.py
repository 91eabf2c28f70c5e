"""aiperf, NVIDIA's, as a client of a server."""

import json
import os
import subprocess
import urllib.request
from pathlib import Path

from figures import Figures, Job


def measure(environment: Path, job: Job) -> Figures:
    """Measure by AIPerf. Raise CalledProcessError where the tool fails."""
    folder = job.scratch / f"aiperf-{job.users}"
    texts = job.scratch / "aiperf.jsonl"
    lines = [json.loads(line) for line in job.prompts.read_text(encoding="utf-8").splitlines()]
    texts.write_text(
        "".join(
            json.dumps({"text": line["prompt"], "output_length": line["output_tokens_count"]}) + "\n" for line in lines
        )
    )
    command = [
        environment / "bin" / "aiperf", "profile",
        "--model", _model(job.address), "--url", job.address, "--endpoint-type", "completions", "--streaming",
        "--tokenizer", job.tokenizer.resolve(),
        "--input-file", texts, "--custom-dataset-type", "single_turn", "--extra-inputs", "ignore_eos:true",
        "--use-server-token-count",
        "--concurrency", job.users, "--request-count", job.requests,
        "--artifact-dir", folder, "--ui-type", "none", "--workers-max", 1,
    ]  # fmt: skip
    online = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}  # with it, it ends at once
    subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True, env=online)
    found = json.loads((folder / "profile_export_aiperf.json").read_text())
    first, later = found["time_to_first_token"], found["inter_token_latency"]
    spec = {name: value["avg"] for name, value in found.items() if name.startswith("spec_decode") and "avg" in value}
    return Figures(
        found["request_throughput"]["avg"], first["p50"], first["p95"], later["p50"], later["p95"],
        found["output_sequence_length"]["avg"], spec or None,
    )  # fmt: skip


def _model(address: str) -> str:
    """Return the name of the one model that is served."""
    with urllib.request.urlopen(f"{address}/v1/models") as response:
        return str(json.loads(response.read())["data"][0]["id"])
