"""What Ray does, beside what is done here: on a cluster of this machine with two processors, only where
$SPECCOMPILE_TEST_RAY is 1, as it takes minutes and 2 GB."""

import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2 as httpx
import pytest
from click.testing import CliRunner
from openai import OpenAI

from speccompile.cli.main import group
from speccompile.errors import EngineError, PromptError
from speccompile.machine.executor import Task, run_all
from speccompile.runtime import Bundle
from speccompile.serving.cluster.connect import SETTINGS
from speccompile.serving.cluster.replicas import Replicas
from speccompile.serving.http.app import Settings
from speccompile.serving.http.fields import COMPLETIONS_URL
from speccompile.serving.scheduler import Limits
from tests.compile.tiny_bundles import contents

WANTED = "SPECCOMPILE_TEST_RAY"
pytestmark = pytest.mark.skipif(
    os.environ.get(WANTED) != "1", reason=f"a Ray cluster is started only where {WANTED} is 1 and the extra ray there"
)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Start two workers, each with a processor."""
    import ray

    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20, logging_level="warning")
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def folder(built) -> Path:
    """Return a bundle whose generations last long enough to be stopped."""
    return built("lookup_3").path


def run(*arguments: object) -> tuple[int, str]:
    """Return the command line in this process, which is connected: exit code and stdout."""
    found = CliRunner().invoke(group, list(map(str, arguments)), standalone_mode=False)
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.return_value or 0, found.stdout


@pytest.fixture(scope="module")
def address(folder):
    """Return the address of two replicas."""
    from speccompile.serving.cluster.serving import Deployment, deploy

    manifest = Bundle.open(folder, threads=1).manifest
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    served = Deployment(folder, "tiny", manifest.batch_size, Limits(), Settings())
    with deploy(served, Replicas(count=2, threads=1, grace=1), "127.0.0.1", port) as (where, _):
        yield where


def prompts() -> list[list[int]]:
    return [[5 + number % 3, 6, 7] * 5 + [number] for number in range(12)]


def test_streams_of_two_replicas_are_what_the_bundle_says(address, folder):
    client = OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
    bundle = Bundle.open(folder, threads=1)

    def ask(prompt: list[int]) -> str:
        stream = client.completions.create(model="tiny", prompt=prompt, max_tokens=20, stream=True)
        return "".join(chunk.choices[0].text for chunk in stream)

    with ThreadPoolExecutor(len(prompts())) as threads:
        found = list(threads.map(ask, prompts()))
    assert found == [bundle.generate(prompt, max_new_tokens=20).text for prompt in prompts()]


def test_errors_come_as_the_server_sends_them(address):
    def ask(content):
        return httpx.post(f"{address}{COMPLETIONS_URL}", content=content, headers={"Content-Type": "application/json"})

    assert (ask(b"{").status_code, ask(b'{"prompt": 1}').status_code) == (400, 400)
    assert ask(b" " * (5 * 2**20)).status_code == 413
    assert httpx.get(f"{address}/nothing").status_code == 404
    assert httpx.get(f"{address}/health").json() == {"status": "ready"}
    assert "every replica counts for itself" in httpx.get(f"{address}/metrics").json()["error"]["message"]


def test_a_file_over_two_bundles_is_what_one_says(folder, tmp_path):
    source = tmp_path / "in.jsonl"
    with source.open("w") as file:
        for number, prompt in enumerate([*prompts(), [999999]]):
            body = {"prompt": prompt, "max_tokens": 20, "return_token_ids": True}
            print(
                json.dumps({"custom_id": f"{number}", "method": "POST", "url": COMPLETIONS_URL, "body": body}),
                file=file,
            )

    def answers(name: str) -> dict[str, tuple[int, object]]:
        found = {}
        for line in (tmp_path / name).read_text().splitlines():
            response = (data := json.loads(line))["response"]
            choices = response["body"].get("choices", [{}])
            found[data["custom_id"]] = (response["status_code"], choices[0].get("token_ids"))
        return found

    here = run("batch", folder, source, tmp_path / "here.jsonl", "--threads", 1, "--json")
    there = run("ray", "batch", folder, source, tmp_path / "there.jsonl", "--replicas", 2, "--json")
    assert (here[0], there[0]) == (1, 1)
    assert answers("there.jsonl") == answers("here.jsonl")
    for name in ("given", "done", "failed", "skipped", "left", "prompt_tokens", "new_tokens"):
        assert json.loads(there[1])[name] == json.loads(here[1])[name]
    again = json.loads(run("ray", "batch", folder, source, tmp_path / "there.jsonl", "--replicas", 1, "--json")[1])
    assert [again[name] for name in ("done", "failed", "skipped")] == [0, 1, 12]


def test_builds_side_by_side_are_those_of_here(built, tmp_path):
    recipe = built("lookup_3").folder
    options = ("--vary", "drafter.tokens=[2,3]", "--set", "cache.max_length=64", "--skip-prove")
    code, out = run("ray", "build", recipe, *options, "--output", tmp_path / "there")
    assert code == 0
    assert sorted(Path(each).name for each in out.split()) == ["drafter.tokens=2", "drafter.tokens=3"]
    for tokens in (2, 3):
        settings = ("--set", f"drafter.tokens={tokens}", "--set", "cache.max_length=64", "--skip-prove")
        run("build", recipe, *settings, "--output", tmp_path / "here")
        assert contents(tmp_path / "there" / f"drafter.tokens={tokens}") == contents(tmp_path / "here")


def test_a_comparison_counts_what_one_here_counts(built, tmp_path):
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps({"token_ids": each}) + "\n" for each in prompts()[:2]))
    (tmp_path / "ways.yaml").write_text("two: {kind: prompt_lookup, tokens: 2}\n")

    def compare(*command: str, output: str) -> dict:
        options = ("--prompts", tmp_path / "prompts.jsonl", "--ways", tmp_path / "ways.yaml", "--repeats", 1)
        options += ("--max-new-tokens", 8, "--threads", 1, "--output", tmp_path / output, "--minutes", 0, "--json")
        code, out = run(*command, built("lookup_3").folder, *options)
        assert code == 0
        return json.loads(out)

    here, there = compare("compare", output="here"), compare("ray", "compare", output="there")
    counted = ("name", "kind", "settings", "mean_accepted", "mean_draft_length", "acceptance_by_depth", "equal_prompts")

    def counts(found: dict) -> list[dict]:
        return sorted(({name: way[name] for name in counted} for way in found["ways"]), key=lambda way: way["name"])

    assert counts(there) == counts(here)
    assert there["options"] == here["options"]


def test_tuning_sees_what_tuning_here_sees(built, tmp_path):
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps({"token_ids": each}) + "\n" for each in prompts()[:2]))
    options = ("--prompts", tmp_path / "prompts.jsonl", "--drafts", "1,2", "--threads", 1, "--repeats", 1)
    options += ("--max-new-tokens", 8, "--json")
    found = [json.loads(run(*way, built("lookup_3").folder, *options)[1]) for way in (("tune",), ("ray", "tune"))]

    def counts(tuning: dict) -> list:
        same = ("drafter", "accepted_at_depth", "mean_accepted", "settings")
        return sorted(([each[name] for name in same] for each in tuning["candidates"]), key=str)

    assert counts(found[0]) == counts(found[1])
    assert found[0]["context"] == found[1]["context"]


def _fail(kind: str) -> None:
    if kind == "ours":
        raise PromptError("too long", hint="shorten it")
    if kind == "a defect":
        raise KeyError(kind)
    os._exit(3)


def test_what_a_task_raises_comes_back():
    from speccompile.serving.cluster.pool import RayPool

    pool = RayPool()

    def task(kind: str) -> Task[None]:
        return Task(kind, _fail, (kind,))

    with pytest.raises(PromptError, match="too long") as ours:
        run_all(pool, [task("ours")])
    assert ours.value.hint == "shorten it"
    with pytest.raises(KeyError):
        run_all(pool, [task("a defect")])
    with pytest.raises(EngineError, match="a worker that ends: Ray gave it up"):
        run_all(pool, [Task("a worker that ends", _fail, ("",))])


def _meet(folder: str, mine: int, alone: bool) -> bool:
    """Return whether another task runs at the same time."""
    import time

    (Path(folder) / str(mine)).touch()
    end = time.monotonic() + (2 if alone else 60)
    while time.monotonic() < end:
        if all((Path(folder) / str(each)).exists() for each in (0, 1)):
            break
        time.sleep(0.01)
    else:
        (Path(folder) / str(mine)).unlink()
        return False
    return True


@pytest.mark.parametrize("alone", [False, True])
def test_measurements_have_their_machine_to_themselves(tmp_path, alone):
    from speccompile.serving.cluster.pool import RayPool

    tasks = [Task(f"task {mine}", _meet, (str(tmp_path), mine, alone), alone) for mine in (0, 1)]
    assert run_all(RayPool(), tasks) == [not alone] * 2
