"""Constraints that would take minutes, gigabytes or the process's stack end at a limit with its name, outside the
server too: in Python, on the command line and in files of requests."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("llguidance")

from speccompile.cli import constraint_options
from speccompile.errors import EngineError, UsageError
from speccompile.runtime.constraints import CompileLimits, GrammarCompiler
from tests.light.batch_example import completion, read, write
from tests.light.test_constraints import TOKENIZER, manifest
from tests.native.toy_onnx import write_arithmetic_bundle

ENDLESS = {"type": "integer", "multipleOf": 99999989}
DEEP = "\n".join(["start: z0", *(f'z{i}: z{i + 1} | "a" z{i + 1}' for i in range(2500)), 'z2500: "b"'])
"""A grammar for which llguidance's own stack is too small."""
SHORT = CompileLimits(seconds=0.3)


def nested(depth: int) -> dict:
    found: dict = {"type": "integer"}
    for _ in range(depth):
        found = {"type": "array", "items": found}
    return found


@pytest.fixture(scope="module")
def grammars():
    made = GrammarCompiler(manifest(), TOKENIZER, "hash")
    yield made
    made.close()


HOSTILE = {
    "a divisor": ("json_schema", ENDLESS, SHORT, "more than 0.3 seconds of a processor: the limit seconds"),
    "little memory": (
        "json_schema",
        ENDLESS,
        CompileLimits(20, 24),
        "more than 24 MiB of memory: the limit memory_mib",
    ),
    "an expression": ("regex", "(a?b?)" * 10000, SHORT, "the limit seconds"),
    "a large expression": ("regex", "ab|" * 30000, SHORT, "expected at most 65536: the limit grammar_bytes"),
    "many choices": ("choice", [f"choice {i}" for i in range(64000)], SHORT, "the limit grammar_bytes"),
    "many rules": ("grammar", DEEP, SHORT, "nested too deeply"),
    "a large grammar": ("grammar", "start: " + '("a"|"b")? ' * 5000, SHORT, "grammar size"),
    "brackets": ("json_schema", "[" * 60000, SHORT, "nested too deeply"),
    "nested schemas": ("json_schema", nested(300), SHORT, "recursion limit exceeded"),
    "a mapping without end": ("json_schema", nested(5000), SHORT, "nested too deeply"),
    "groups": ("regex", "(" * 30000 + "a" + ")" * 30000, SHORT, "llguidance does not take it"),
    "no JSON": ("choice", {"a"}, SHORT, "what JSON cannot hold: Object of type set"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_costs_too_much_is_refused_with_the_name_of_the_limit(grammars, name):
    kind, text, limits, said = HOSTILE[name]
    with pytest.raises(UsageError) as caught:
        grammars.constraint(kind, text, limits)
    assert said in str(caught.value)
    assert caught.value.hint
    grammars.constraint("regex", "[a-z]+")  # others are compiled as if nothing had been


def test_a_result_is_remembered_for_its_limits(grammars):
    limits = CompileLimits(seconds=0.25)
    for most in (60.0, 0.2):
        start = time.monotonic()
        with pytest.raises(UsageError, match=r"0.25 seconds of a processor"):
            grammars.constraint("json_schema", ENDLESS, limits)
        assert time.monotonic() - start < most
    assert grammars.constraint("json_schema", {"type": "integer", "multipleOf": 7}, limits).kind == "json_schema"


def test_lists_of_texts_and_any_object_need_no_child():
    grammars = GrammarCompiler(manifest(), TOKENIZER, "hash")
    grammars.constraint("choice", ["\n" * 30000, *"ab"])
    grammars.constraint("json_object")
    assert grammars._trials is None


def test_a_process_that_dies_is_replaced_and_ends_with_its_owner(grammars):
    grammars.constraint("regex", "[a-f]+")
    process = grammars._trials._process.process
    process.kill()
    process.wait()
    grammars.constraint("regex", "[g-k]+")
    again = grammars._trials._process.process
    grammars.close()
    assert again.poll() is not None
    grammars.constraint("regex", "[l-p]+")  # with a new one
    left = grammars._trials._process.process
    grammars._trials = None
    assert left.poll() is not None


def test_a_machine_without_a_process_more_says_so(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(EngineError, match="cannot be tried in a process of its own: No such file"):
        GrammarCompiler(manifest(), TOKENIZER, "hash").constraint("regex", "a")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "b"
    write_arithmetic_bundle(folder, constrained=True, eos_token_ids=(257,))
    return folder


def command(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "speccompile", "-q", *map(str, arguments)], input=stdin, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip


def test_the_command_says_one_error_and_ends(bundle):
    found = command("generate", bundle, "--token-ids", "5,6", "--grammar", "-", stdin=DEEP)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("error: constraint grammar: it is nested too deeply\nhint: ")
    assert found.stderr.count("\n") == 3


def test_a_line_of_requests_is_refused_and_others_are_answered(bundle, tmp_path):
    source = write(tmp_path / "in.jsonl", completion(1, guided_grammar=DEEP), completion(2, guided_regex="[0-9]+"))
    found = command("batch", bundle, source, tmp_path / "out.jsonl")
    assert found.returncode == 1, found.stderr
    answers = read(tmp_path / "out.jsonl")
    assert [answers[name]["response"]["status_code"] for name in ("r1", "r2")] == [400, 200]
    assert "nested too deeply" in answers["r1"]["response"]["body"]["error"]["message"]


@pytest.mark.parametrize(
    ("name", "said"),
    [("large", "received more than 65536 bytes: the limit grammar_bytes"), ("/dev/zero", "received a pipe, device")],
)
def test_a_file_without_end_is_not_read(tmp_path, name, said):
    (tmp_path / "large").write_bytes(b" " * 70000)
    options = dict.fromkeys(constraint_options.KINDS) | {"json_schema": str(tmp_path / name)}
    with pytest.raises(UsageError, match=said):
        constraint_options.take(options)
