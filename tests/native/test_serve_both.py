"""One client, two servers: `speccompile serve` and `speccompile-native serve` over one bundle answer alike.

Bodies, in order and as streams, are compared between the two. test_serve_python.py has more: the tests of Python's
server against `speccompile-native serve`.
"""

import json
import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from speccompile.runtime import Bundle
from speccompile.serving.http.openapi import SCHEMAS
from tests.light.serve_example import Running
from tests.light.test_cli_serve import ready
from tests.light.test_reference_http import rows
from tests.light.test_serve_requests import REFUSED
from tests.native.served import CHAT, COMPLETIONS, client_of, folders, started

__all__ = ["folders"]

KINDS = ("python", "native")
HELLO = [{"role": "user", "content": "def"}]


@pytest.fixture(scope="module")
def servers(folders, native_build, onnxruntime_library) -> Iterator[dict[tuple[str, str], Running]]:
    """Start both servers over both bundles."""
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


@pytest.fixture(scope="module")
def alone(folders) -> Bundle:
    return Bundle.open(folders["greedy"], threads=1)


def test_many_clients_at_once_get_what_each_gets_alone(greedy, alone):
    prompts = ["def", "é", "def main(", "x" * 30, "yes", "no", "def main(a", "z"]
    expected = {prompt: alone.generate(prompt, max_new_tokens=40).text for prompt in prompts}
    with ExitStack() as held:
        client = client_of(greedy)
        streams = {
            prompt: held.enter_context(
                client.completions.create(model="toy", prompt=prompt, max_tokens=40, stream=True)
            )
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


BODIES = json.loads(Path(__file__).with_name("served_bodies.json").read_text())
TOOLS = [{"type": "function", "function": {"name": "f"}}]
WRONG = [
    *((COMPLETIONS, {"prompt": "x"} | form) for form in BODIES["forms"]),
    *((CHAT, {"messages": HELLO} | form) for form in BODIES["forms"]),
    (CHAT, {"messages": HELLO, "tools": TOOLS}),
    (CHAT, {"messages": HELLO, "tools": TOOLS, "tool_choice": "required"}),
    (CHAT, {"messages": HELLO, "tool_choice": "required"}),
    *((path, body) for path, body, _, _ in REFUSED if "chat_template" not in body),
    *BODIES["wrong"],
    (COMPLETIONS, {"prompt": "x", "top_k": 1e400}),
]


def nested(depth: int) -> dict[str, Any]:
    """Return mappings inside each other."""
    return {"a": nested(depth - 1)} if depth > 1 else {}


DEEP = [
    *((name, CHAT, {"messages": HELLO, "max_tokens": 1, "chat_template_kwargs": {"x": nested(depth)}}, status)
      for name in ("greedy", "sampling") for depth, status in ((200, 200), (201, 400), (300, 400))),
    *(("sampling", COMPLETIONS, {"prompt": "x", "max_tokens": 1} | asked(nested(depth)), status)
      for asked in (lambda schema: {"guided_json": schema}, lambda schema: {"guided_json": json.dumps(schema)},
                    lambda schema: {"guided_json": {"properties": schema}})
      for depth, status in ((100, 200), (300, 400))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "path", "body", "status"), DEEP)
def test_both_bound_the_nesting_of_values(servers, name, path, body, status):
    """Limit values that neither a template nor a schema's keywords read, too."""
    found = [servers[kind, name].ask("POST", path, body).status for kind in KINDS]
    assert found == [status, status]


def shown(body: Any) -> str:
    return json.dumps(body)[:60]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("path", "body"), BODIES["taken"], ids=shown)
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
        assert {"id", "object", "created", "model", "choices", "usage"} <= event.keys()
        (choice,) = event["choices"]
        own = parts.setdefault(choice["index"], {"text": "", "keys": set(), "logprobs": []})
        own["text"] += choice.get("text") or choice.get("delta", {}).get("content") or ""
        own["reason"] = choice["finish_reason"]
        own["keys"] |= choice.keys()
        said = choice["logprobs"] or {}
        own["logprobs"] += said.get("content") or list(
            zip(said.get("tokens", []), said.get("text_offset", []), strict=True)
        )
    return plain([parts, events[-1]])


@pytest.mark.parametrize("body", BODIES["drawn"], ids=shown)
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


@pytest.mark.parametrize("stop", [None, "a", ["zz", "b", "\x01"]])
def test_parts_of_a_stream_are_accepted_drafts(greedy, stop):
    """Texts of all parts are that of the answer, and counts those of the usage."""
    found, streaming = [], {"stream": True, "stream_options": {"include_usage": True}, "return_drafts": True}
    for path, prompt in ((COMPLETIONS, {"prompt": "déf é"}), (CHAT, {"messages": HELLO})):
        asked = prompt | {"max_tokens": 60, "stop": stop}
        whole = greedy.ask("POST", path, asked).json
        events = greedy.ask("POST", path, asked | streaming).events
        drafts = [choice["drafts"] for event in events for choice in event["choices"] if "drafts" in choice]
        for each in drafts:
            jsonschema.validate(each, SCHEMAS["Drafts"])
        (answer,) = whole["choices"]
        text = answer["message"]["content"] if path == CHAT else answer["text"]
        assert "".join(span["text"] for each in drafts for span in each["spans"]) == text
        counted = events[-1]["usage"]["completion_tokens_details"]
        assert sum(each["accepted_tokens"] for each in drafts) == counted["accepted_prediction_tokens"]
        found += [span["draft"] for each in drafts for span in each["spans"]]
    assert set(found) == {False, True} or stop == ["zz", "b", "\x01"]


@pytest.mark.parametrize("body", [
    b"", b"{", b"[1", b"nul", b"\xff\xfe", b'{"prompt": NaN}', b'{"a": 1e400', b"[" * 9000,
    b'{"prompt": ' + b"9" * 5000 + b"}", b'{"prompt": "\\ud800"}', b'{"prompt": "x", "prompt": 5}',
])  # fmt: skip
def test_both_refuse_what_is_no_json(servers, body):
    one, other = (servers[kind, "greedy"].ask("POST", COMPLETIONS, body) for kind in KINDS)
    same = (other.error["code"], other.error["param"]) == (one.error["code"], one.error["param"])
    assert (other.status, same) == (one.status, True)


def test_both_refuse_bytes_and_numbers_that_json_lacks_in_the_same_words(servers):
    for body in (b'{"prompt": "\xff"}', b'{"y": "\xc3"}', b'{"x": [1, -1e999], "prompt": "x"}', b'{"y": 1e400}',
                 b"[" * 9000, b'{"prompt": ' + b"9" * 5000 + b"}", b"[" * 502 + b"]" * 502):  # fmt: skip
        one, other = (servers[kind, "greedy"].ask("POST", COMPLETIONS, body) for kind in KINDS)
        assert (other.status, other.error) == (one.status, one.error)
        assert (one.status, one.error["code"]) == (400, "invalid_json")


ROUTES = [("GET", "/nothing"), ("GET", CHAT), ("POST", "/health"), ("GET", "/v1/models/"), ("GET", "/v1/modelsx"),
          ("DELETE", "/v1/models"), ("GET", "/v1/models/%74oy"), ("GET", "/v1/%63ompletions"), ("POST", "/%68ealth"),
          ("GET", "/v1%2Fmodels"), ("GET", "/%2568ealth"), ("GET", "/%zz"), ("GET", "/version"), ("GET", "/health?x=1"),
          ("GET", "/v1/models/toy"), ("GET", "/\\a")]  # fmt: skip


def test_every_route_of_the_reference_is_there(servers):
    for route in rows("Routes"):
        if "/audio/" in route:  # of bundles that hear, which this runtime refuses
            continue
        method, path = route.replace("{name}", "main.js" if "/page/" in route else "toy").split()
        one, other = (servers[kind, "greedy"].ask(method, path) for kind in KINDS)
        assert (other.status, other.status in (404, 405)) == (one.status, False), route
        assert other.headers["Content-Type"] == one.headers["Content-Type"]


LONG = {COMPLETIONS: {"prompt": "a" * 3_000_000}, CHAT: {"messages": [{"role": "user", "content": "a" * 3_000_000}]}}


@pytest.mark.parametrize("path", LONG)
def test_a_text_that_cannot_fit_is_not_tokenized(servers, path):
    one, other = (servers[kind, "greedy"].ask("POST", path, LONG[path]) for kind in KINDS)
    assert (other.status, other.error) == (one.status, one.error)
    assert (one.error["code"], "bytes of text at most" in one.error["message"]) == ("context_length_exceeded", True)


@pytest.mark.parametrize("body", BODIES["texts"], ids=shown)
def test_both_turn_texts_into_tokens_alike(servers, body):
    for path in ("/tokenize", "/detokenize"):
        one, other = (servers[kind, "greedy"].ask("POST", path, body) for kind in KINDS)
        assert (other.status, other.json) == (one.status, one.json)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_both_route_alike(servers, method, path):
    one, other = (servers[kind, "greedy"].ask(method, path) for kind in KINDS)
    assert (other.status, plain(other.json)) == (one.status, plain(one.json))
    assert one.headers["Allow"] == other.headers["Allow"]


def test_metrics_have_the_names_of_pythons(servers):
    """Compare names, help, types, labels and buckets."""

    def series(running: Running) -> set[str]:
        running.complete(max_tokens=9)
        lines = running.ask("GET", "/metrics").data.decode().splitlines()
        return {
            line.rpartition(" ")[0] if line[0] != "#" else line
            for line in lines
            if "vllm:" in line and "_created" not in line
        }

    assert series(servers["python", "greedy"]) == series(servers["native", "greedy"])
