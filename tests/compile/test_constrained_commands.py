"""Bundles that take constraints, by the commands and the server: inspect, generate and serve, in both runtimes."""

import json
import re

import pytest

from speccompile.runtime import Bundle
from speccompile.serving.http.model import ServedModel
from tests.compile.tiny_bundles import Built, each_constrained
from tests.light.serve_example import serving
from tests.native.two_commands import STEADY

PATTERN = "[0-9]{2,4}-[a-f]{3,9}x?"
GENERATE = ["--prompt", "def", "--max-new-tokens", 20, "--json", *STEADY]


@pytest.fixture(scope="module", params=each_constrained())
def made(request, built) -> Built:
    return built(request.param)


def ways(made: Built) -> list[list[object]]:
    """Return options that choose tokens: greedy, and sampling where the bundle has it."""
    samples = made.bundle.manifest.decoding == "sampling"
    return [[], ["--temperature", 0.8, "--seed", 5]] if samples else [[]]


def test_both_commands_inspect_them(both, made, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path))
    shown = both.same("inspect", made.path)
    assert (shown.code, b"allowed]" in shown.out) == (0, True)
    buffers = json.loads(both.same("inspect", made.path, "--json").out)["buffers"]
    assert {each["dtype"] for each in buffers if each["name"] == "allowed"} == {"bool"}


def test_both_commands_generate_the_same_without_constraints(both, made):
    for options in ways(made):
        said = both.same("generate", made.path, *GENERATE, *options)
        assert said.code == 0, said.err
        assert b'"finish_reason": "length"' in said.out


def test_python_generates_what_a_constraint_allows(cli, made):
    for options in ways(made):
        code, out, err = cli("generate", made.path, *GENERATE, *options, "--regex", PATTERN)
        assert code == 0, err
        assert re.fullmatch(PATTERN, json.loads(out)["text"])


def test_the_command_in_c_generates_the_same_under_constraints(both, made):
    for options in ways(made):
        words = ("generate", made.path, *GENERATE, *options, "--regex", PATTERN)
        ours, theirs = (json.loads(run(*words).stdout) for run in (both.native, both.python))
        assert re.fullmatch(PATTERN, ours["text"])
        assert [ours[key] == theirs[key] for key in ("text", "token_ids", "finish_reason")] == [True] * 3


def test_a_server_answers_with_and_without_constraints(made):
    model = ServedModel("tiny")
    model.start(Bundle.open(made.path, threads=1))
    options = {"max_tokens": 20, "temperature": 0}
    with serving(model) as server:
        for more in [{}, {"temperature": 0.8, "seed": 5}] if len(ways(made)) > 1 else [{}]:
            free = server.complete("def", **options | more)
            assert free.status == 200, free.data
            assert free.json["usage"]["completion_tokens"] == 20
            held = server.complete("def", **options | more, structured_outputs={"regex": PATTERN})
            assert held.status == 200, held.data
            assert re.fullmatch(PATTERN, held.json["choices"][0]["text"])
