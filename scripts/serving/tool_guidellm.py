"""Measure a server with GuideLLM."""

import json
import os
import subprocess
from pathlib import Path

from figures import Figures, Job


def measure(environment: Path, job: Job) -> Figures:
    """Measure by GuideLLM. Raise CalledProcessError where the tool fails."""
    report = job.scratch / f"guidellm-{job.users}.json"
    command = [
        environment / "bin" / "guidellm", "run",
        "--backend", f"kind=openai_http,target={job.address},request_format=/v1/completions",
        "--profile", f"kind=concurrent,streams={job.users}",
        "--constraint", f"kind=max_requests,count={job.requests}",
        "--data", f"kind=json_file,path={job.prompts}",
        "--tokenizer", f"kind=hf_auto,model={job.tokenizer.resolve()}",
        "--output", f"kind=json,path={report}",
    ]  # fmt: skip
    offline = os.environ | {"HF_HUB_OFFLINE": "1"}
    subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True, env=offline)
    metrics = json.loads(report.read_text())["benchmarks"][0]["metrics"]
    names = ("time_to_first_token_ms", "inter_token_latency_ms")
    first, later = (metrics[name]["successful"]["percentiles"] for name in names)
    return Figures(
        metrics["requests_per_second"]["successful"]["mean"],
        first["p50"], first["p95"], later["p50"], later["p95"],
        metrics["output_token_count"]["successful"]["mean"],
    )  # fmt: skip
