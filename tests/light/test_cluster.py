"""What `speccompile ray` does beside Ray: what is asked for, who gets a request, and how it passes through."""

import asyncio
import json
import sys

import pytest

from speccompile.cli.main import group
from speccompile.compiler.build.matrix import combinations, read_cells, variant_json
from speccompile.errors import BuildError, EngineError, MissingPackageError, PromptError, RecipeError, UsageError
from speccompile.machine.executor import LOCAL, Task, run_all
from speccompile.serving.cluster.affinity import KEY_LENGTH, rendezvous_order, routing_key
from speccompile.serving.cluster.connect import connected
from speccompile.serving.cluster.proxy import Proxy
from speccompile.serving.cluster.replica import Replica
from speccompile.serving.cluster.replicas import Replicas
from speccompile.serving.http.app import Settings
from speccompile.serving.http.model import ServedModel
from speccompile.serving.scheduler import Limits
from tests.light.fake_bundle import write_toy_bundle
from tests.light.serve_example import chat_bundle
from tests.light.toy_models import autoregressive


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match="without ray, expected the extra 'ray'") as it, connected():
        pass
    assert it.value.hint == "pip install 'speccompile[ray]'"


def invoke(*arguments):
    return group.main(["ray", *map(str, arguments)], standalone_mode=False)


@pytest.fixture
def folder(tmp_path):
    return write_toy_bundle(tmp_path / "toy")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--min-replicas", 2], "received --min-replicas without --max-replicas"),
        (["--target-requests", 2], "received --target-requests without --max-replicas"),
        (["--max-replicas", 2, "--replicas", 3], r"--max-replicas: received 2, expected at least .* which are 1 and 3"),
    ],
)
def test_options_that_do_not_go_together_are_refused(folder, options, message):
    with pytest.raises(UsageError, match=message):
        invoke("serve", folder, *options)


def test_what_is_wrong_is_told_before_a_cluster_is_asked_for(folder, tmp_path, monkeypatch, make_recipe):
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "in.jsonl").write_text("1\n")
    with pytest.raises(UsageError, match="line 1: received 1, expected an object"):
        invoke("batch", folder, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    with pytest.raises(RecipeError, match=r"cache\.max_length"):
        invoke("build", make_recipe(), "--vary", "cache.max_length=[32,0]", "--output", tmp_path / "out")


def test_every_combination_is_built_once():
    expected = [("a=1", "b=x"), ("a=1", "b=null"), ("a=2", "b=x"), ("a=2", "b=null")]
    assert combinations(["a=[1,2]", 'b=["x", null]']) == expected
    assert combinations([]) == [()]


@pytest.mark.parametrize("wrong", ["a", "a=", "=[1]", "a=1", "a=[]"])
def test_values_are_a_list(wrong):
    with pytest.raises(UsageError, match=r"--vary: received .*, expected KEY=\[VALUE, \.\.\]"):
        combinations([wrong])


def test_folders_are_called_by_their_settings(make_recipe, tmp_path):
    varied = ["cache.max_length=[32,64]", "name=[other]"]
    cells = read_cells(make_recipe(), [], varied, tmp_path / "out")
    assert [cell.output.name for cell in cells] == ["cache.max_length=32,name=other", "cache.max_length=64,name=other"]
    assert all(cell.memory > 0 for cell in cells)
    error = BuildError("no", hint="yes")
    assert variant_json(cells[0], error)["error"] == {"message": "no", "hint": "yes"}
    assert variant_json(cells[0], None)["settings"] == ["cache.max_length=32", "name=other"]
    with pytest.raises(UsageError, match=r"which would both be built into 'cache\.max_length=32'"):
        read_cells(make_recipe(), [], ["cache.max_length=[32, 32]"], tmp_path / "out")


def test_tasks_here_run_in_their_order_and_say_what_went_wrong():
    done = []

    def act(number):
        done.append(number)
        if number == 2:
            raise PromptError("too long")
        return number

    tasks = [Task("a task", act, (number,)) for number in range(4)]
    found = dict(LOCAL.run(tasks))
    assert [found[number] for number in (0, 1, 3)] == [0, 1, 3]
    assert isinstance(found[2], PromptError)
    assert done == [0, 1, 2, 3]
    with pytest.raises(PromptError, match="too long"):
        run_all(LOCAL, tasks)


def test_later_turns_of_a_conversation_have_the_same_key():
    first = [{"role": "system", "content": "s" * KEY_LENGTH}, {"role": "user", "content": "a"}]
    keys = {routing_key(json.dumps({"messages": first + more}).encode()) for more in ([], [{"role": "user"}])}
    assert len(keys) == 1
    assert routing_key(b'{"prompt": "abc"}') == "abc"
    assert routing_key(b'{"prompt": [1, 2]}') == "[1, 2]"
    assert {routing_key(each) for each in (b"", b"{", b"[1]", b"{}", b"[" * 10**6)} == {""}


def test_a_replica_more_or_less_changes_little():
    names = [f"replica {number}" for number in range(8)]
    keys = [f"prompt {number}" for number in range(400)]
    firsts = [rendezvous_order(key, names)[0] for key in keys]
    assert all(firsts.count(name) > 20 for name in names)
    for key, first in zip(keys, firsts, strict=True):
        if first != names[3]:
            assert rendezvous_order(key, names[:3] + names[4:])[0] == first
        assert rendezvous_order(key, names[::-1])[0] == first


class Handle:
    """Ray's, over a replica in this process."""

    def __init__(self, replica, error=None):
        self.replica, self.error, self.keys, self.cancelled = replica, error, [], 0

    def options(self, *, stream):
        assert stream
        return self

    @property
    def ask(self):
        return self

    def remote(self, key, scope, body):
        self.keys.append(key)
        self.messages = self.replica.ask(key, json.loads(json.dumps(scope, default=str)) and scope, body)
        return self

    async def __aiter__(self):
        if self.error is not None:
            raise self.error
        async for message in self.messages:
            yield message

    def cancel(self):
        self.cancelled += 1


@pytest.fixture
def replica():
    """Yield a replica of a toy bundle that lies in no folder."""
    made = Replica.__new__(Replica)
    made._begin(ServedModel("toy", Limits()), Settings())
    made._model.start(chat_bundle(batch_size=2))
    yield made
    made._model.close(10)


async def ask(front, path, body, send=None):
    """Return the status and the body, as the client gets them."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def keep(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST" if body else "GET", "path": path, "headers": [], "query_string": b""}
    await front(scope, receive, send or keep)
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])


def test_requests_pass_through_as_they_are(replica):
    handle = Handle(replica)
    front = Proxy(handle, 1000, LookupError)
    body = json.dumps({"prompt": [1, 2], "max_tokens": 5, "return_token_ids": True}).encode()
    status, answer = asyncio.run(ask(front, "/v1/completions", body))
    assert (status, handle.keys) == (200, ["[1, 2]"])
    assert json.loads(answer)["choices"][0]["token_ids"] == autoregressive([1, 2], 5)
    status, answer = asyncio.run(ask(front, "/v1/completions", body[:-1] + b', "stream": true}'))
    assert answer.endswith(b"data: [DONE]\n\n")
    assert asyncio.run(ask(front, "/health", b""))[0] == 200
    assert asyncio.run(ask(front, "/nothing", b""))[0] == 404
    replica.check_health()


def test_large_bodies_and_metrics_are_refused(replica):
    front = Proxy(Handle(replica), replica_body := 4 * 2**20, LookupError)
    assert asyncio.run(ask(front, "/v1/completions", b" " * (replica_body + 9)))[0] == 413
    status, answer = asyncio.run(ask(front, "/metrics", b""))
    assert (status, "every replica counts for itself" in json.loads(answer)["error"]["message"]) == (404, True)


def test_too_many_waiting_requests_get_503(replica):
    front = Proxy(Handle(replica, LookupError("64 wait")), 1000, LookupError)
    status, answer = asyncio.run(ask(front, "/v1/completions", b"{}"))
    assert (status, json.loads(answer)["error"]["message"]) == (503, "the replicas are busy: 64 wait")


def test_a_client_that_hangs_up_cancels_what_is_under_way(replica):
    handle = Handle(replica)
    body = json.dumps({"prompt": [1, 2], "max_tokens": 150, "stream": True}).encode()

    async def hang_up(message):
        if message["type"] == "http.response.body":
            raise ConnectionResetError

    async def run():
        with pytest.raises(ConnectionResetError):
            await ask(Proxy(handle, 1000, LookupError), "/v1/completions", body, hang_up)
        await handle.messages.aclose()  # as Ray does where it is cancelled

    asyncio.run(run())
    assert handle.cancelled == 1
    replica._model.close(10)  # waits for what is under way: nothing
    assert (replica._model.service.running, replica._model.service.waiting) == (0, 0)


def test_ray_keeps_what_replicas_take_and_chooses_how_many():
    fixed = Replicas(count=3, threads=4, gpus=0.5, grace=9).options(rows=2)
    assert fixed["num_replicas"] == 3
    assert fixed["ray_actor_options"] == {"num_cpus": 4, "num_gpus": 0.5}
    assert (fixed["max_ongoing_requests"], fixed["graceful_shutdown_timeout_s"]) == (4, 9)
    chosen = Replicas(count=2, max_replicas=5).options(rows=4)
    assert "num_replicas" not in chosen
    expected = {"min_replicas": 1, "initial_replicas": 2, "max_replicas": 5, "target_ongoing_requests": 4.0}
    assert chosen["autoscaling_config"] == expected
    none = Replicas(min_replicas=0, max_replicas=5, target_requests=1.5).options(rows=4)["autoscaling_config"]
    assert (none["min_replicas"], none["target_ongoing_requests"]) == (0, 1.5)


def test_a_replica_that_is_not_ready_is_no_healthy_one():
    made = Replica.__new__(Replica)
    made._begin(ServedModel("toy"), Settings())
    with pytest.raises(EngineError, match="the model is loading"):
        made.check_health()
