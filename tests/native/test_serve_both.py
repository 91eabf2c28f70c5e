"""One client, two servers: `speccompile serve` and `speccompile-native serve` over one bundle answer alike.

Bodies, in order and as streams, are compared between the two; texts and log-probabilities with what the bundle
generates by itself.
"""

import http.client
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import openai
import pytest

from speccompile.runtime import Bundle
from tests.light.serve_example import TEMPLATE, Running
from tests.light.test_cli_serve import ready
from tests.light.test_serve_connections import CHUNKED, GET, POST, REFUSED, answer, connect
from tests.light.test_serve_requests import REFUSED as REFUSED_BODIES
from tests.native.toy_onnx import MAX_LENGTH, write_arithmetic_bundle

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("python", "native")
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "def"}]


@contextmanager
def started(kind: str, build: Path, library: Path, folder: Path, *given: object, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a server's process and its address."""
    words = ["serve", folder, "--port", 0, *given]
    if kind == "python":
        command = [sys.executable, "-m", "speccompile", *words]
    else:
        command = [build / "speccompile-native", *words, "--onnxruntime", library]
    running = subprocess.Popen(
        [str(word) for word in command], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"SPECCOMPILE_READING": "inside"} | variables,
    )  # fmt: skip
    assert running.stdout
    try:
        yield running, running.stdout.readline().strip()
    finally:
        running.kill()
        running.communicate()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = tmp_path_factory.mktemp("bundles")
    return {
        "greedy": write_arithmetic_bundle(made / "greedy", chat=TEMPLATE),
        "sampling": write_arithmetic_bundle(made / "sampling", chat=TEMPLATE, samples=True, rows=4),
    }


@pytest.fixture(scope="module")
def servers(folders, native_build, onnxruntime_library) -> Iterator[dict[tuple[str, str], Running]]:
    """Both servers over both bundles."""
    with ExitStack() as held:
        found = {}
        for kind in KINDS:
            for name, folder in folders.items():
                own = started(kind, native_build, onnxruntime_library, folder, "--served-model-name", "toy")
                found[kind, name] = ready(held.enter_context(own)[1])
        yield found


@pytest.fixture(params=KINDS)
def greedy(request, servers) -> Running:
    return servers[request.param, "greedy"]


def client_of(running: Running, **options: Any) -> openai.OpenAI:
    given = {"api_key": "unused", "max_retries": 0} | options
    return openai.OpenAI(base_url=f"{running.address}/v1", **given)


@pytest.fixture(scope="module")
def alone(folders) -> Bundle:
    return Bundle.open(folders["greedy"], threads=1)


def test_the_models_are_listed(greedy):
    client = client_of(greedy)
    (model,) = client.models.list().data
    assert (model.id, model.object, model.owned_by) == ("toy", "model", "speccompile")
    assert client.models.retrieve("toy") == model
    with pytest.raises(openai.NotFoundError, match="the model 'other/one' does not exist: expected 'toy'"):
        client.models.retrieve("other/one")


@pytest.mark.parametrize("prompt", ["def main(", [256, 7, 9], ["def", "é"], [[1, 2], [3]]])
def test_a_completion_is_what_the_bundle_generates(greedy, alone, prompt):
    answered = client_of(greedy).completions.create(model="toy", prompt=prompt, max_tokens=24)
    prompts = prompt if isinstance(prompt, list) and not isinstance(prompt[0], int) else [prompt]
    expected = [alone.generate(each, max_new_tokens=24) for each in prompts]
    assert [choice.text for choice in answered.choices] == [each.text for each in expected]
    assert answered.usage.prompt_tokens == sum(each.prompt_tokens for each in expected)
    assert answered.usage.completion_tokens == 24 * len(prompts)


@pytest.mark.parametrize("stop", [None, "a", ["zz", "b", "\x01"]])
def test_a_stream_is_the_same_in_pieces(greedy, stop):
    client, ask = client_of(greedy), {"model": "toy", "prompt": "def", "max_tokens": 60, "stop": stop}
    whole = client.completions.create(**ask)
    *pieces, last = client.completions.create(**ask, stream=True, stream_options={"include_usage": True})
    assert "".join(chunk.choices[0].text for chunk in pieces) == whole.choices[0].text
    assert pieces[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert (last.choices, last.usage.total_tokens) == ([], whole.usage.total_tokens)


def test_a_chat_is_what_the_bundle_generates(greedy, alone):
    client = client_of(greedy)
    text = alone.text.encode("<s>user:def\nassistant:", special_tokens=False)
    expected = alone.generate(text, max_new_tokens=20, logprobs=True)
    found = client.chat.completions.create(model="toy", messages=HELLO, max_tokens=20, logprobs=True, top_logprobs=2)
    assert (found.choices[0].message.content, found.usage.prompt_tokens) == (expected.text, len(text))
    assert [entry.logprob for entry in found.choices[0].logprobs.content] == pytest.approx(expected.logprobs)
    assert {len(entry.top_logprobs) for entry in found.choices[0].logprobs.content} == {2}
    stop = expected.text[12]
    with client.chat.completions.stream(model="toy", messages=HELLO, max_tokens=20, stop=stop) as stream:
        final = stream.get_final_completion().choices[0]
    ended = alone.generate(text, max_new_tokens=20, stop=stop)
    assert (final.message.content, final.finish_reason) == (ended.text, ended.finish_reason)
    full = client.chat.completions.create(model="toy", messages=HELLO)
    assert full.usage.total_tokens == MAX_LENGTH


def test_many_clients_at_once_get_what_each_gets_alone(greedy, alone):
    prompts = ["def", "é", "def main(", "x" * 30, "yes", "no", "def main(a", "z"]
    expected = {prompt: alone.generate(prompt, max_new_tokens=40).text for prompt in prompts}
    with ExitStack() as held:
        client = client_of(greedy)
        streams = {
            prompt: held.enter_context(client.completions.create(model="toy", prompt=prompt, max_tokens=40, stream=True))
            for prompt in prompts
        }
        for prompt, stream in streams.items():
            assert "".join(chunk.choices[0].text for chunk in stream) == expected[prompt]


VARYING = {"id", "created", "metrics", "completion_tokens_details", "prompt_tokens_details"}
"""Keys whose values depend on the time, or on what a slot held."""


def plain(value: Any) -> Any:
    """Return a body without what varies, and log-probabilities without their last digits."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if name not in VARYING}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return round(value, 9) if isinstance(value, float) and math.isfinite(value) else value


TAKEN: list[tuple[str, dict[str, Any]]] = [
    (COMPLETIONS, {"prompt": "def"}),
    (COMPLETIONS, {"prompt": "def", "max_tokens": 200, "model": "toy"}),
    (COMPLETIONS, {"prompt": ["def", "é"], "max_tokens": 5, "echo": True, "n": 1, "best_of": 1}),
    (COMPLETIONS, {"prompt": [[1, 2], [3]], "max_tokens": 3.0, "logprobs": 0, "return_token_ids": True}),
    (COMPLETIONS, {"prompt": "def", "max_tokens": 30, "logprobs": 3, "unknown": 1, "user": "me", "temperature": 0}),
    (COMPLETIONS, {"prompt": "def", "stop": ["a", "zz"], "max_tokens": 60, "stop_token_ids": [120, 121]}),
    (COMPLETIONS, {"prompt": "def", "ignore_eos": True, "min_tokens": 4, "max_tokens": 5, "speculative": False}),
    (COMPLETIONS, {"prompt": "def", "top_p": 0.5, "top_k": -1, "min_p": 0.1, "seed": 5, "cache_salt": "x"}),
    (COMPLETIONS, {"prompt": "def", "response_format": {"type": "text"}, "logit_bias": {}, "presence_penalty": 0}),
    (CHAT, {"messages": HELLO, "max_tokens": 9}),
    (CHAT, {"messages": [{"role": "developer", "content": "s"}, *HELLO], "max_tokens": 9, "max_completion_tokens": 7}),
    (CHAT, {"messages": HELLO, "max_tokens": 9, "logprobs": True, "top_logprobs": 2, "return_token_ids": True}),
    (CHAT, {"messages": HELLO, "max_tokens": 9, "chat_template_kwargs": {"tone": "kind"}, "tools": [], "tool_choice": "none"}),
    (CHAT, {"messages": [*HELLO, {"role": "assistant", "content": " wel"}], "continue_final_message": True, "max_tokens": 4}),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "max_tokens": 4}),
    (CHAT, {"messages": [*HELLO, {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}], "max_tokens": 4}),
]  # fmt: skip
DRAWN: list[dict[str, Any]] = [
    {"seed": 5}, {"seed": -6}, {"seed": 2**64 - 1}, {"seed": 7, "n": 2, "temperature": 1.5},
    {"seed": 1, "top_k": 5, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.5, "temperature": 0.7}, {"temperature": 0.00001},
    {"seed": 3, "n": 3, "logprobs": 1},
]  # fmt: skip
WRONG: list[tuple[str, Any]] = [
    *((path, body) for path, body, _, _ in REFUSED_BODIES if "chat_template" not in body),
    (COMPLETIONS, {"prompt": "x" * 200}), (COMPLETIONS, {"prompt": [1] * 96}), (COMPLETIONS, {"prompt": [-1]}),
    (COMPLETIONS, {"prompt": "x", "model": "other"}), (CHAT, {"messages": HELLO, "model": "toy:poet"}),
    (COMPLETIONS, {"prompt": "x", "seed": 2**64}), (COMPLETIONS, {"prompt": "x", "seed": -(2**63) - 1}),
    (COMPLETIONS, {"prompt": "x", "n": 129}), (COMPLETIONS, {"prompt": "x", "n": 17}), (COMPLETIONS, {"prompt": [["a"]]}),
    (COMPLETIONS, {"prompt": "x", "stop_token_ids": [999]}), (COMPLETIONS, {"prompt": "x", "top_k": 1e400}),
    (COMPLETIONS, {"prompt": "x", "use_beam_search": True}), (COMPLETIONS, {"prompt": "x", "logit_bias": 5}),
    (CHAT, {"messages": [5]}), (CHAT, {"messages": [{"role": "user", "content": 5}]}), (CHAT, {"messages": HELLO, "max_tokens": None, "n": 0}),
    (CHAT, {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]}),
    (CHAT, []), (CHAT, "text"), (CHAT, 5), (CHAT, None),
]  # fmt: skip


def shown(body: Any) -> str:
    return json.dumps(body)[:60]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("path", "body"), TAKEN, ids=shown)
def test_both_answer_alike(servers, path, body, stream):
    found = []
    for kind in KINDS:
        more = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        answered = servers[kind, "greedy"].ask("POST", path, body | more)
        assert answered.status == 200, answered.data
        found.append(joined(answered.events) if stream else plain(answered.json))
    assert found[0] == found[1]


def joined(events: list[Any]) -> Any:
    """Return what a stream says in all: how a text is cut into pieces is a matter of time."""
    parts: dict[int, dict[str, Any]] = {}
    for event in events[:-1]:
        (choice,) = event["choices"]
        own = parts.setdefault(choice["index"], {"text": "", "keys": set(), "logprobs": []})
        own["text"] += choice.get("text") or choice.get("delta", {}).get("content") or ""
        own["reason"] = choice["finish_reason"]
        own["keys"] |= choice.keys()
        if choice["logprobs"]:
            own["logprobs"] += choice["logprobs"].get("content") or [choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"]]
        if isinstance(own["logprobs"], list) and own["logprobs"] and isinstance(own["logprobs"][0], list):
            own["logprobs"] = [sum(own["logprobs"][0::2], []), sum(own["logprobs"][1::2], [])]
        assert event.keys() == {"id", "object", "created", "model", "choices", "usage", *(["prompt_token_ids"] if "prompt_token_ids" in event else [])}
    return plain([parts, events[-1]])


@pytest.mark.parametrize("body", DRAWN, ids=shown)
def test_both_draw_alike(servers, body):
    asked = {"prompt": "def", "max_tokens": 12, "speculative": False} | body
    one, other = (servers[kind, "sampling"].ask("POST", COMPLETIONS, asked) for kind in KINDS)
    assert (one.status, plain(one.json)) == (other.status, plain(other.json)) == (200, plain(other.json))


@pytest.mark.parametrize(("path", "body"), WRONG, ids=shown)
def test_both_refuse_alike(servers, path, body):
    data = body if isinstance(body, dict) else json.dumps(body).encode()
    one, other = (servers[kind, "greedy"].ask("POST", path, data) for kind in KINDS)
    assert (other.status, other.error) == (one.status, one.error)
    assert one.status in (400, 404)


FORMS = [
    {"response_format": {"type": "json_object"}}, {"structured_outputs": {"regex": "a"}}, {"guided_json": {}}, {"guided_regex": "a"},
    {"guided_choice": ["a"]}, {"guided_grammar": "start: \"a\""},
]  # fmt: skip
TOOLS = [{"type": "function", "function": {"name": "f"}}]


@pytest.mark.parametrize(("path", "body", "name"), [
    *((COMPLETIONS, {"prompt": "x"} | form, next(iter(form))) for form in FORMS),
    *((CHAT, {"messages": HELLO} | form, next(iter(form))) for form in FORMS),
    (CHAT, {"messages": HELLO, "tools": TOOLS}, "tools"),
    (CHAT, {"messages": HELLO, "tools": TOOLS, "tool_choice": "required"}, "tools"),
    (CHAT, {"messages": HELLO, "tool_choice": "required"}, "tool_choice"),
    (COMPLETIONS, {"prompt": "x", "stream": True, "return_drafts": True}, "return_drafts"),
], ids=shown)  # fmt: skip
def test_what_the_native_server_lacks_is_refused_by_name(servers, path, body, name):
    answered = servers["native", "greedy"].ask("POST", path, body)
    assert (answered.status, answered.error["param"], answered.error["code"]) == (400, name, "unsupported_parameter")
    assert "but speccompile-native" in answered.error["message"]


@pytest.mark.parametrize("body", [
    b"", b"{", b"[1", b"nul", b"\xff\xfe", b'{"prompt": NaN}', b'{"a": 1e400', b"[" * 9000, b'{"prompt": ' + b"9" * 5000 + b"}",
    b'{"prompt": "\\ud800"}', b'{"prompt": "x", "prompt": 5}',
])  # fmt: skip
def test_both_refuse_what_is_no_json(servers, body):
    one, other = (servers[kind, "greedy"].ask("POST", COMPLETIONS, body) for kind in KINDS)
    assert (other.status, other.error["code"], other.error["param"]) == (one.status, one.error["code"], one.error["param"])


ROUTES = [("GET", "/nothing"), ("GET", CHAT), ("POST", "/health"), ("GET", "/v1/models/"), ("GET", "/v1/modelsx"), ("DELETE", "/v1/models"),
          ("GET", "/v1/models/%74oy"), ("GET", "/version"), ("GET", "/health?x=1"), ("GET", "/v1/models/toy")]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_both_route_alike(servers, method, path):
    one, other = (servers[kind, "greedy"].ask(method, path) for kind in KINDS)
    assert (other.status, plain(other.json)) == (one.status, plain(one.json))


def test_metrics_have_the_names_of_pythons(servers):
    """And the same help, types, labels and buckets."""

    def series(running: Running) -> set[str]:
        running.complete(max_tokens=9)
        lines = running.ask("GET", "/metrics").data.decode().splitlines()
        return {line.rpartition(" ")[0] if line[0] != "#" else line for line in lines if "vllm:" in line and "_created" not in line}

    assert series(servers["python", "greedy"]) == series(servers["native", "greedy"])


# Of the native server alone ------------------------------------------------------------------------------------------


@pytest.fixture
def native(native_build, onnxruntime_library, folders):
    @contextmanager
    def serve(*given: object, name: str = "greedy", **variables: str) -> Iterator[tuple[subprocess.Popen[str], Running]]:
        with started("native", native_build, onnxruntime_library, folders[name], *given, **variables) as (running, address):
            yield running, ready(address)

    return serve


def end(running: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str]:
    running.send_signal(number)
    _, talk = running.communicate(timeout=60)
    return running.returncode, talk


LIMITS = ("--header-bytes", 2048, "--headers", 20, "--header-seconds", 0.4, "--body-seconds", 0.6, "--connections", 6)
MORE_REFUSED = {
    "two lengths": (POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", b"400"),
    "a length and chunks": (POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", b"400"),
    "another coding": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", b"501"),
    "a length below zero": (POST + b"Content-Length: -1\r\n\r\n", b"400"),
    "a length of many digits": (POST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", b"400"),
    "a large length": (POST + b"Content-Type: application/json\r\nContent-Length: 99999999\r\n\r\n", b"413"),
    "a large chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\nfffffff\r\n", b"413"),
    "an endless chunk size": (POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffff\r\n", b"400"),
    "a chunk without size": (POST + b"Transfer-Encoding: chunked\r\n\r\n\r\n", b"400"),
    "a chunk that is longer": (POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n", b"400"),
    "lines without CR": (b"GET /health HTTP/1.1\nHost: x\n\n", b"400"),
    "a folded header": (GET + b"X: a\r\n b\r\n\r\n", b"400"),
    "a blank before the colon": (GET + b"X : a\r\n\r\n", b"400"),
    "a control": (GET + b"X: a\x00b\r\n\r\n", b"400"),
    "two hosts": (GET + b"Host: y\r\n\r\n", b"400"),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", b"400"),
    "another version": (b"GET /health HTTP/2.0\r\nHost: x\r\n\r\n", b"400"),
    "another expectation": (GET + b"Expect: more\r\n\r\n", b"417"),
    "a method of signs": (b"G@T /health HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
    "bytes in the target": (b"GET /h\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
}  # fmt: skip


def test_hostile_requests_are_refused_and_others_are_answered(native):
    with native(*LIMITS) as (running, server):
        for name, (sent, status, said) in REFUSED.items():
            got = answer(server, sent)
            assert got.startswith(b"HTTP/1.1 " + status + b" "), (name, got)
            assert name == "another protocol" or said in got, (name, got)
            assert b"connection: close" in got.lower()
        for name, (sent, status) in MORE_REFUSED.items():
            got = answer(server, sent)
            assert got.startswith(b"HTTP/1.1 " + status + b" "), (name, got)
        assert answer(server, GET + b"Connection: close\r\n\r\n", b"").startswith(b"HTTP/1.1 200 ")
        assert answer(server, CHUNKED.replace(b"/v1/completions", b"/health"), b"").startswith(b"HTTP/1.1 405 ")
        assert server.complete(max_tokens=3).status == 200
        assert end(running)[0] == 0


def test_it_finishes_what_was_asked_when_it_is_told_to_end(native):
    with native() as (running, server):
        body = {"prompt": "def", "max_tokens": 80, "stream": True}
        with server.asked("POST", COMPLETIONS, body) as response:
            assert response.readline().startswith(b"data: ")
            running.send_signal(signal.SIGTERM)
            assert response.read().endswith(b"data: [DONE]\n\n")
        _, talk = running.communicate(timeout=60)
        assert running.returncode == 0
        assert talk.splitlines()[-1] == "finishing what was asked; another signal ends at once"
        assert "with 3 rows" in talk


def test_connections_that_wait_end_at_once_when_it_is_told_to_end(native):
    """Idle ones, and those whose requests have not come whole."""
    with native("--grace", 0) as (running, server), ExitStack() as held:
        for sent in (b"", GET, GET + b"\r\n", POST + b"Content-Length: 9\r\n\r\n{"):
            one = held.enter_context(connect(server))
            one.sendall(sent)
        start = time.monotonic()
        assert end(running, signal.SIGINT)[0] == 0
        assert time.monotonic() - start < 5


def test_a_killed_server_leaves_nothing_behind(native, tmp_path):
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    for _ in range(2):
        with native(**cache) as (running, server):
            with server.asked("POST", COMPLETIONS, {"prompt": "def", "max_tokens": 80, "stream": True}) as response:
                response.readline()
                running.kill()
    with native(**cache) as (running, server):
        assert server.complete(max_tokens=3).status == 200
        assert end(running)[0] == 0
    assert not list(tmp_path.rglob("*.lock"))


def test_it_listens_on_a_unix_socket_also_where_a_killed_one_did(native_build, onnxruntime_library, folders, tmp_path):
    path = tmp_path / "s"
    for kills in (True, False):
        with started("native", native_build, onnxruntime_library, folders["greedy"], "--unix", path) as (running, address):
            assert address == f"unix:{path}"
            connection = http.client.HTTPConnection("unix")
            connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.sock.connect(str(path))
            connection.request("GET", "/version")
            assert connection.getresponse().status == 200
            connection.close()
            if kills:
                running.kill()
                running.communicate()
                assert path.exists()
            else:
                assert end(running)[0] == 0
    assert not path.exists()


def test_keys_come_from_options_a_file_and_the_environment(native, tmp_path):
    file = tmp_path / "keys.txt"
    file.write_text("# mine\nfrom-file\n")
    given = ("--api-key", "from-option", "--api-key-file", file, "--autoregressive", "--access-log")
    with native(*given, SPECCOMPILE_API_KEY="from-environment,other") as (running, server):
        for key in ("from-file", "from-option", "from-environment", "other"):
            client = client_of(server, api_key=key)
            assert client.completions.create(model="demo", prompt="x", max_tokens=4).metrics["speculative_decoding"] is None
        for wrong in ("from-fil", "from-file2", "", "x" * 9000):
            with pytest.raises(openai.AuthenticationError, match="an API key that is not known") as caught:
                client_of(server, api_key=wrong or "-").models.list()
            assert caught.value.code == "invalid_api_key"
        assert server.ask("GET", "/v1/models").status == 401
        assert server.ask("GET", "/v1/models", Authorization="Basic from-file").status == 401
        code, talk = end(running)
    assert code == 0
    assert '"POST /v1/completions HTTP/1.1" 200' in talk
    assert "from-" not in talk


@pytest.mark.parametrize(("arguments", "code", "words"), [
    (["nowhere"], 1, "nowhere"),
    (["BUNDLE", "--api-key", " "], 2, "received an empty API key, expected at least one character"),
    (["BUNDLE", "--api-key-file", "EMPTY"], 2, "found no key, expected one a line"),
    (["BUNDLE", "--host", "203.0.113.1"], 2, "cannot listen on 203.0.113.1 port 0"),
    (["BUNDLE", "--engine", "none"], 2, "none"),
    (["BUNDLE", "--port", 65536], 2, "--port: received 65536, expected at least 0 and at most 65535"),
    (["BUNDLE", "--header-seconds", 0], 2, "--header-seconds: received 0, expected more than 0"),
    (["BUNDLE", "--adapter", "poet"], 2, "--adapter poet: received no NAME=FOLDER"),
    (["BUNDLE", "--sessions", "x"], 2, "No such option"),
])  # fmt: skip
def test_what_is_wrong_is_said_and_ends_it(native_build, onnxruntime_library, folders, tmp_path, arguments, code, words):
    (tmp_path / "empty").touch()
    places = {"BUNDLE": folders["greedy"], "EMPTY": tmp_path / "empty"}
    folder, *given = (places.get(each, each) for each in arguments)
    with started("native", native_build, onnxruntime_library, folder, *given) as (running, _):
        _, talk = running.communicate(timeout=60)
    assert (running.returncode, words in talk) == (code, True), talk


def test_a_client_that_leaves_cancels_its_request(native):
    """Before an answer has begun as well as in a stream; rows are free again then."""
    with native("--waiting", 200) as (running, server):
        body = {"prompt": "def", "max_tokens": 90, "n": 1}
        for _ in range(20):
            for stream in (False, True):
                with server.asked_without_answer(COMPLETIONS, body | {"stream": stream}):
                    pass
        assert server.complete(max_tokens=5).status == 200
        assert server.ask("GET", "/health").status == 200
        assert end(running)[0] == 0


def test_slow_readers_hold_up_nobody_and_are_ended(native):
    with native("--body-seconds", 0.5) as (running, server), ExitStack() as held:
        data = json.dumps({"prompt": [[1, 2, 3]] * 128, "max_tokens": 90, "logprobs": 20}).encode()
        head = POST + b"Content-Type: application/json\r\nContent-Length: " + str(len(data)).encode() + b"\r\n\r\n"
        slow = [held.enter_context(connect(server)) for _ in range(3)]
        for each in slow:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.sendall(head + data)
        for _ in range(5):
            assert server.ask("GET", "/health").status == 200
        code, talk = end(running)
        assert (code, "defect" in talk) == (0, False)


def test_a_full_queue_is_told_with_when_to_come_again(native):
    with native("--waiting", 0, "--client-rows", 1) as (running, server):
        many = [[number, 5, 6] for number in range(60)]
        answered = server.complete(many, max_tokens=80)
        assert (answered.status, answered.error["code"]) == (429, "rate_limit_exceeded")
        assert int(answered.headers["Retry-After"]) >= 1
        assert server.complete(max_tokens=3).status == 200
        assert end(running)[0] == 0


def test_monitoring_gets_in_where_all_connections_are_taken(native):
    with native("--connections", 6, "--header-seconds", 20) as (running, server):
        with ExitStack() as held:
            for _ in range(30):
                one = held.enter_context(connect(server))
                one.sendall(b"GET /version HTTP/1.1\r\nX: ")
            assert server.ask("GET", "/health").status == 200
            refused = server.ask("GET", "/version")
            assert (refused.status, refused.error["type"]) == (503, "unavailable_error")
            assert "too many connections" in refused.error["message"]
        deadline = time.monotonic() + 20
        while server.ask("GET", "/version").status != 200:
            assert time.monotonic() < deadline
        assert end(running)[0] == 0


def test_requests_of_one_connection_follow_each_other(native):
    """Kept alive, sent ahead, in HTTP/1.0, and with a body that is announced."""
    with native() as (running, server):
        body = b'{"prompt": "x", "max_tokens": 2}'
        post = POST + b"Content-Type: application/json\r\nContent-Length: " + str(len(body)).encode() + b"\r\n"
        got = answer(server, (post + b"\r\n" + body) * 3 + GET + b"Connection: close\r\n\r\n")
        assert got.count(b"HTTP/1.1 200 OK") == 4
        old = b"GET /version HTTP/1.0\r\n\r\n"
        assert answer(server, old).startswith(b"HTTP/1.1 200 ")
        with connect(server) as connection:
            connection.sendall(post + b"Expect: 100-continue\r\nConnection: close\r\n\r\n")
            assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            connection.sendall(body)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert end(running)[0] == 0


def test_random_bytes_end_no_server(native):
    random = Random(1)
    with native("--header-seconds", 0.2, "--body-seconds", 0.2) as (running, server):
        whole = POST + b"Content-Type: application/json\r\nContent-Length: 32\r\n\r\n" + b'{"prompt": "x", "max_tokens": 2}'
        for _ in range(300):
            changed = bytearray(whole)
            for _ in range(random.randint(1, 6)):
                place = random.randrange(len(changed))
                changed[place : place + random.randint(0, 2)] = random.randbytes(random.randint(0, 2))
            with connect(server) as connection, suppress(OSError):
                connection.sendall(bytes(changed))
                connection.shutdown(socket.SHUT_WR)
                connection.recv(65536)
        assert server.complete(max_tokens=3).status == 200
        assert end(running)[0] == 0
