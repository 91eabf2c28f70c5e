"""Forms of answers, and tools: both servers answer alike over a bundle that takes constraints, as do both commands."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.light.serve_example import Running
from tests.light.test_cli_serve import ready
from tests.light.test_constrained_loop import CASES
from tests.light.test_serve_structure import CLOCK, TEMPLATES, WEATHER
from tests.native import toy_onnx
from tests.native.served import CHAT, COMPLETIONS, started
from tests.native.test_serve_both import KINDS, joined, plain
from tests.native.toy_onnx import CHUNK, DRAFTS, write_arithmetic_bundle
from tests.native.two_commands import both

__all__ = ["both"]
LENGTH = 600
"""Of texts, in tokens: tools are long."""
BUNDLES = {"drafted": {}, "fused": {"fused": True}, "alone": {"drafts": False}, "sampled": {"samples": True}}
ASKED = [{"role": "user", "content": "def"}]
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["person", "people"]}, "n": {"type": "integer", "maximum": 9}},
}
NAMED = {"type": "function", "function": {"name": "now"}}
FORMS = [
    {"response_format": {"type": "json_object"}},
    {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
    {"structured_outputs": {"regex": "[0-9]{2,4}-[a-f]{3,9}x?"}}, {"structured_outputs": {"choice": ["alpha", "beta"]}},
    {"structured_outputs": {"json_object": True, "regex": None}}, {"guided_json": json.dumps(SCHEMA)},
    {"guided_grammar": CASES["grammar"], "logprobs": True}, {"guided_regex": "a+", "stop": "aaa"},
    {"guided_choice": ["alphabet", "alpha"], "speculative": False},
    {"tools": [WEATHER, CLOCK], "tool_choice": "required"}, {"tools": [WEATHER, CLOCK], "tool_choice": NAMED},
    {"tools": [CLOCK]}, {"tools": [CLOCK], "tool_choice": "required", "parallel_tool_calls": False},
]  # fmt: skip
WRONG = [
    {"response_format": {"type": "json_schema"}}, {"structured_outputs": {"structural_tag": {}}},
    {"guided_regex": "a", "guided_choice": ["a"]}, {"guided_choice": [""]}, {"guided_json": "{"}, {"guided_json": "[]"},
    {"tool_choice": "required"}, {"tools": [CLOCK], "tool_choice": {"type": "function", "function": {"name": "f"}}},
    {"tools": [CLOCK], "response_format": {"type": "json_object"}}, {"guided_regex": ""},
    {"structured_outputs": {"regex": 2**64}}, {"structured_outputs": {"choice": [2**64]}},
]  # fmt: skip
FREE = [
    {"response_format": {"type": "json_object"}},
    {"guided_regex": "a"},
    {"tools": [CLOCK], "tool_choice": "required"},
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    made = tmp_path_factory.mktemp("bundles")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toy_onnx, "MAX_LENGTH", LENGTH)
        patch.setattr(toy_onnx, "ROOM", LENGTH + CHUNK + DRAFTS + 1)
        found = {
            name: write_arithmetic_bundle(
                made / name, constrained=True, eos_token_ids=(257,), chat=TEMPLATES["Hermes"], **changes
            )
            for name, changes in BUNDLES.items()
        }
    return found | {"free": write_arithmetic_bundle(made / "free", chat=TEMPLATES["Hermes"])}


@pytest.fixture(scope="module")
def servers(folders, native_build, onnxruntime_library) -> Iterator[dict[tuple[str, str], Running]]:
    with ExitStack() as held:
        found = {}
        for kind in KINDS:
            for name in ("drafted", "free"):
                own = started(kind, native_build, onnxruntime_library, folders[name], "--served-model-name", "toy")
                found[kind, name] = ready(held.enter_context(own)[1])
        yield found


def without_ids(found: Any) -> Any:
    """Return a body without the numbers of its calls."""
    if isinstance(found, dict):
        return {name: without_ids(each) for name, each in found.items() if name != "id"}
    return [without_ids(each) for each in found] if isinstance(found, list) else found


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: json.dumps(form)[:50])
def test_both_impose_alike(servers, form, stream):
    found = []
    for kind in KINDS:
        more = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        answered = servers[kind, "drafted"].ask("POST", CHAT, {"messages": ASKED, "max_tokens": 60} | form | more)
        assert answered.status == 200, answered.data
        calls = [] if not stream else [
            each["delta"]["tool_calls"] for event in answered.events for each in event["choices"]
            if each["delta"].get("tool_calls")
        ]  # fmt: skip
        found.append(without_ids([joined(answered.events), calls] if stream else plain(answered.json)))
    assert found[0] == found[1]


@pytest.mark.parametrize("form", WRONG, ids=lambda form: json.dumps(form)[:50])
def test_both_refuse_alike(servers, form):
    one, other = (servers[kind, "drafted"].chat(**form) for kind in KINDS)
    assert (one.status, one.error) == (other.status, other.error) == (400, other.error)


@pytest.mark.parametrize("form", FREE, ids=lambda form: json.dumps(form)[:50])
def test_both_refuse_where_there_are_no_constraints(servers, form):
    one, other = (servers[kind, "free"].chat(**form) for kind in KINDS)
    assert (one.status, one.error) == (other.status, other.error) == (400, other.error)
    assert "compiled without constraints" in one.error["message"]


def test_completions_take_forms_too(servers):
    body = {"prompt": ["def", "é"], "max_tokens": 40, "guided_choice": ["alpha", "beta"]}
    one, other = (servers[kind, "drafted"].ask("POST", COMPLETIONS, body).json for kind in KINDS)
    assert {choice["text"] for choice in one["choices"]} <= {"alpha", "beta"}
    assert plain(one) == plain(other)


def test_what_the_engine_lacks_is_refused_by_its_name(servers):
    refused = servers["native", "drafted"].chat(guided_regex="(?x)a b")
    assert (refused.status, refused.error["param"]) == (400, "guided_regex")
    assert "flags that are not known here" in refused.error["message"]
    refused = servers["native", "drafted"].chat(guided_json={"properties": {"a": {"type": 0}}})
    assert "type: received 0, expected the name of a type, or several" in refused.error["message"]


@pytest.mark.parametrize("name", BUNDLES)
def test_both_commands_generate_alike(both, folders, tmp_path, name):
    (tmp_path / "schema.json").write_text(json.dumps(CASES["json_schema"]))
    (tmp_path / "grammar").write_text(CASES["grammar"])
    for words in (
        ["--regex", CASES["regex"]], ["--choice", "alpha", "--choice", "beta"], ["--grammar", tmp_path / "grammar"],
        ["--json-schema", tmp_path / "schema.json"], ["--json-schema", tmp_path / "schema.json", "--autoregressive"],
    ):  # fmt: skip
        line = ["generate", folders[name], "-p", "def", "-n", 50, *words, "--json", "--threads", 1]
        ours, theirs = (json.loads(done(*line).stdout) for done in (both.native, both.python))
        for key in ("text", "token_ids", "finish_reason"):  # Python's loop takes forced tokens without a round
            assert ours[key] == theirs[key], words


def test_both_commands_refuse_alike(both, folders):
    for words in (
        ["--regex", "a", "--choice", "b"],
        ["--json-schema", "nothing.json"],
        ["--regex", ""],
        ["--choice", ""],
    ):
        assert both.same("generate", folders["drafted"], "-p", "def", *words).code == 2
    assert both.same("generate", folders["free"], "-p", "def", "--regex", "a").code == 2
