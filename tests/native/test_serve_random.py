"""Random requests, right ones and wrong ones: both servers answer each alike, and stay."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest

from speccompile.serving.http import fields
from tests.light.serve_example import Running
from tests.light.test_cli_serve import ready
from tests.native.served import CHAT, COMPLETIONS, folders, started
from tests.native.test_serve_both import KINDS, plain

__all__ = ["folders"]
VALUES: list[Any] = [
    None, True, False, 0, 1, 2, -1, 3.0, 1.5, -0.0, 1e-320, 1e308, 2**31, 2**53 + 1, 2**63, -(2**63), 2**64,
    10**30, "", "x", "é😀", "x" * 1025, "\0", "auto", "none", "text", [], [1],
    [0, 257, 258], ["x"], [""], [[]], [[1], [2]],
    [None], {}, {"a": 1}, {"type": "text", "text": "a"}, {"type": "function", "function": {"name": "f"}}, [1.5], [True],
    [{}] * 20,
    ["x"] * 17, [[1]] * 129, {"type": "object"}, {"type": "json_object"}, {"include_usage": True},
    {"regex": "[a-c]{2}"},
    {"choice": ["a"]}, {"$ref": "#"}, {"enum": [1]}, {"type": 0}, "start: b", "[0-9]+", "(",
]  # fmt: skip
LITERALS = [
    "NaN", "-Infinity", "1e400", "1E5", "01", "1.", "'x'", r'"\ud800"', r'"\ud83d\ude00"', r'"\u12"', '"\t"',
    "nul", '{"a": 1,}',
    "[1,]", '{"a": 1, "a": 2}', "[1 2]", "9" * 400, "[" * 201 + "]" * 201, '{"a":' * 250 + "1" + "}" * 250,
    "-0", "\x0b1",
]  # fmt: skip
"""Parts of JSON, or of none, that no value of Python is written as."""
ASKED: list[dict[str, Any]] = [
    {"stream": True}, {"stream_options": {"include_usage": True}}, {"return_drafts": True}, {"ignore_eos": True},
    {"min_tokens": 1}, {"stop": "a"}, {"stop": ["b", "c"]}, {"n": 2}, {"best_of": 2}, {"echo": True}, {"logprobs": 1},
    {"logprobs": True}, {"top_logprobs": 2}, {"temperature": 0}, {"truncate_prompt_tokens": 2}, {"guided_regex": "a+"},
    {"guided_json": {}}, {"guided_choice": ["a", "b"]}, {"structured_outputs": {"regex": 2**64}}, {"prompt": [1e30]},
    {"structured_outputs": {"json": {"type": "integer"}}}, {"response_format": {"type": "json_schema"}},
    {"tools": [{"type": "function", "function": {"name": "f"}}]}, {"tool_choice": "required"}, {"cache_salt": "x"},
]  # fmt: skip
TURNS = [
    {"role": "user", "content": "def"}, {"role": "system", "content": "s"}, {"role": "developer", "content": "d"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "content": "r", "tool_call_id": "1"}, {"role": "user", "content": [{"type": "text", "text": "a"}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
]  # fmt: skip
ROUTES = {
    CHAT: fields.CHAT, COMPLETIONS: fields.COMPLETION, "/tokenize": fields.TOKENIZE, "/detokenize": fields.DETOKENIZE,
}  # fmt: skip
ENGINES = re.compile(
    r"(llguidance|this runtime) does not take it:.*|received one (that no text|whose texts).*", re.DOTALL
)
"""Messages that each engine of constraints words itself."""


class Requests:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def draw(self) -> tuple[str, bytes]:
        random = self._random
        path, schema = random.choice(list(ROUTES.items()))
        body: Any = {
            CHAT: {"messages": random.choices(TURNS, k=random.randint(1, 3)), "max_tokens": random.randint(1, 4)},
            COMPLETIONS: {"prompt": random.choice(["x", "dé", [1, 2], ["a", "b"], [[1], [3]]]), "max_tokens": 3},
            "/tokenize": {"prompt": "dé </s>"}, "/detokenize": {"tokens": [1, 257]},
        }[path]  # fmt: skip
        for name in random.sample([*schema["properties"], *fields.UNSUPPORTED], random.randint(0, 1)):
            body[name] = random.choice(VALUES)
        for each in random.sample(ASKED, random.randint(0, 3)):
            body |= each
        for _ in range(random.choice([0, 0, 1])):
            body = self._changed(body)
        if isinstance(body, dict):
            body = {"seed": 7, "return_token_ids": True} | body
        data = self._written(body).encode("utf-8", "surrogatepass")
        cut = random.randrange(len(data) + 1)
        return path, random.choices([data, data[:cut], data[:cut] + b"\xff" + data[cut:]], [30, 1, 1])[0]

    def _changed(self, value: Any) -> Any:
        """Return a value with a part of it changed, or another one."""
        random = self._random
        if not value or random.random() < 0.2 or not isinstance(value, dict | list):
            return random.choice(VALUES)
        found = value.copy()
        place = random.choice(list(value)) if isinstance(value, dict) else random.randrange(len(value))
        if random.random() < 0.2:
            del found[place]
        else:
            found[place] = self._changed(value[place])
        return found

    def _written(self, value: Any) -> str:
        if self._random.random() < 0.003:
            return self._random.choice(LITERALS)
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(name)}: {self._written(each)}" for name, each in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(self._written, value)) + "]"
        return json.dumps(value, ensure_ascii=self._random.random() < 0.5)


@pytest.fixture(scope="module")
def servers(folders, native_build, onnxruntime_library) -> Iterator[list[Running]]:
    with ExitStack() as held:
        given = (native_build, onnxruntime_library, folders["sampling"], "--served-model-name", "toy")
        own = [started(kind, *given) for kind in KINDS]
        yield [ready(held.enter_context(each)[1]) for each in own]


def streamed(events: list[Any]) -> Any:
    """Return what a stream says in all: how a text is cut into pieces is a matter of time."""
    choices: dict[int, list[Any]] = {}
    for event in events:
        for choice in event["choices"]:
            said = choices.setdefault(choice["index"], ["", [], None])
            said[0] += choice.get("text") or choice.get("delta", {}).get("content") or ""
            said[1] += choice.get("token_ids") or []
            said[2] = choice["finish_reason"] or said[2]
    return choices, [plain(event["usage"]) for event in events if not event["choices"]]


def told(server: Running, path: str, data: bytes) -> Any:
    """Return what a server answers, without what is a matter of time or of the engine of constraints."""
    found = server.ask("POST", path, data)
    if found.headers["Content-Type"].startswith("text/event-stream"):
        return found.status, streamed(found.events)
    if found.status == 200:
        return found.status, plain(found.json)
    error = found.error
    said = ENGINES.sub("", error["message"]) if error["code"] != "invalid_json" else ""
    return found.status, error | {"message": "" if found.status == 429 else said}


@pytest.mark.sweep("500 requests take half a minute and more; kinds of wrong ones are in the first tier")
@pytest.mark.parametrize("seed", range(2))
def test_both_answer_random_requests_alike(servers, seed):
    requests = Requests(seed)
    for _ in range(250):
        path, data = requests.draw()
        one, other = (told(server, path, data) for server in servers)
        assert one == other, (path, data)
