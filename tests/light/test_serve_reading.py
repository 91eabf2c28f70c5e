"""Bodies that cost much are read in processes that end: at a limit, when the client leaves, with the server."""

import asyncio
import json
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders

from speccompile.contract import Tensor
from speccompile.errors import OverloadedError
from speccompile.runtime.text_bundle import TextBundle
from speccompile.serving.http.errors import RequestError
from speccompile.serving.http.reading import limited_bundle, tasks
from speccompile.serving.http.reading.last_first import LastFirst
from speccompile.serving.http.reading.limits import ReadLimits
from speccompile.serving.http.reading.processes import ReaderProcesses
from speccompile.serving.http.reading.reader import SMALL, Reader
from tests.light.bundle_example import cpu_entry
from tests.light.fake_bundle import toy_manifest, toy_tokenizer, write_toy_bundle

ENDLESS = {"type": "integer", "multipleOf": 99999989}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return constrained_bundle(tmp_path_factory.mktemp("built") / "toy")


def constrained_bundle(path: Path) -> Path:
    allowed = Tensor("allowed", "bool", (1, "logit_rows", "allowed"), "allowed", "io")
    graphs = tuple(
        replace(graph, inputs=(*graph.inputs, allowed)) if graph.name == "verify" else graph
        for graph in toy_manifest().graphs
    )
    engines = (cpu_entry(graphs, {graph.name: f"graphs/{graph.name}.onnx" for graph in graphs}),)
    return write_toy_bundle(path, graphs=graphs, engines=engines, eos_token_ids=(257,))


@contextmanager
def processes(folder: Path, **limits):
    made = ReaderProcesses(folder, "toy", ReadLimits(**limits))
    made.wait()
    try:
        yield made
    finally:
        made.close()


def body(**fields) -> bytes:
    return json.dumps({"prompt": "x", "max_tokens": 1} | fields).encode()


def children(process) -> str:
    pid = process._forker.process.pid
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


DEEP = "\n".join(["start: z0", *(f'z{i}: z{i + 1} | "a" z{i + 1}' for i in range(3000)), 'z3000: "b"'])
"""A grammar for which llguidance's own stack is too small."""
LONG = {"grammar_bytes": 1 << 20}
"""For a text that is shorter than its limit, so that another one is reached."""
HOSTILE = {
    "a divisor": ({"guided_json": ENDLESS}, {"seconds": 0.3}, "the limit read_seconds"),
    "little memory": (
        {"guided_json": ENDLESS},
        {"seconds": 20, "memory_mib": 24},
        "the limit read_memory",
    ),
    "an expression": ({"guided_regex": "(a?b?)" * 20000}, LONG | {"seconds": 0.3}, "the limit read_seconds"),
    "a deep grammar": ({"guided_grammar": DEEP}, LONG, "nested too deeply"),
    "a large grammar": ({"guided_grammar": "start: " + '("a"|"b")? ' * 9000}, LONG, "grammar size"),
    "a large expression": ({"guided_regex": "a|b" * 330000}, {}, "the limit grammar_bytes"),
    "a large schema": ({"structured_outputs": {"json": {"enum": ["a" * 300000]}}}, {}, "the limit grammar_bytes"),
    "many choices": ({"guided_choice": [f"choice {i}" for i in range(64000)]}, {}, "the limit grammar_bytes"),
    "more choices": ({"guided_choice": ["a"] * 70000}, {}, "at most 65536 items"),
}


@pytest.mark.sweep("one more process for each of them", but=["a divisor", "many choices"])
@pytest.mark.parametrize("name", HOSTILE)
def test_what_costs_too_much_is_refused_with_the_name_of_the_limit(folder, name):
    fields, limits, said = HOSTILE[name]
    with processes(folder, **limits) as made:
        with pytest.raises(RequestError) as caught:
            asyncio.run(made.run(tasks.COMPLETION, body(**fields)))
        assert (caught.value.status, said in str(caught.value)) == (400, True), str(caught.value)
        found = json.loads(asyncio.run(made.run(tasks.COMPLETION, body(guided_regex="[a-z]+"))))
        assert found["prompts"] == [[256, 87]]  # others are read as if nothing had been


def test_children_end_when_their_client_leaves(folder):
    async def leave(made: ReaderProcesses) -> None:
        working = asyncio.create_task(made.run(tasks.COMPLETION, body(guided_json=ENDLESS)))
        while not children(made):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)  # beyond the first attempt
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        for _ in range(200):
            if not children(made):
                return
            await asyncio.sleep(0.01)
        pytest.fail("the child goes on")

    with processes(folder, seconds=60.0, memory_mib=4096) as made:  # which it reaches later
        asyncio.run(leave(made))


def test_everything_ends_with_the_server(folder):
    async def close(made: ReaderProcesses) -> None:
        working = asyncio.create_task(made.run(tasks.COMPLETION, body(guided_json=ENDLESS)))
        while not children(made):
            await asyncio.sleep(0.01)
        await asyncio.to_thread(made.close)
        with pytest.raises((RequestError, OverloadedError)) as caught:
            await working
        assert "closing" in str(caught.value)
        with pytest.raises(OverloadedError):
            await made.run(tasks.COMPLETION, body())

    with processes(folder, seconds=60.0) as made:
        asyncio.run(close(made))
        assert made._forker.process.poll() is not None


def test_a_body_over_a_limit_is_refused_at_once_when_it_comes_again(folder):
    async def ask(made: ReaderProcesses, times: int) -> None:
        bodies = [made.run(tasks.COMPLETION, body(guided_json=ENDLESS)) for _ in range(times)]
        found = await asyncio.gather(*bodies, return_exceptions=True)
        assert {each.code for each in found} == {"limit_exceeded"}

    with processes(folder, seconds=0.3) as made:
        start = time.monotonic()
        asyncio.run(ask(made, 6))
        first = time.monotonic() - start
        asyncio.run(ask(made, 1))
        assert time.monotonic() - start - first < first


def test_a_forking_process_that_dies_is_replaced(folder):
    with processes(folder) as made:
        made._forker.process.kill()
        made._forker.process.wait()
        assert json.loads(asyncio.run(made.run(tasks.COMPLETION, body())))["prompts"] == [[256, 87]]


def test_too_many_that_wait_are_refused(folder):
    with processes(folder, waiting=0) as made, pytest.raises(OverloadedError):
        asyncio.run(made.run(tasks.COMPLETION, body()))


@pytest.mark.parametrize("fields", [
    {"prompt": "a" * 150}, {"prompt": ["a", "é" * 40], "n": 1, "stop": ["x"]}, {"prompt": [1, 2]},
    {"prompt": "x", "guided_choice": ["yes", "no"], "logprobs": 2}, {"prompt": "x", "echo": True},
])  # fmt: skip
def test_a_child_reads_what_a_thread_reads(folder, fields):
    texts = TextBundle.open(folder)
    data = body(**fields) + b" " * SMALL  # large: for a child
    there = Reader(texts, "toy", ReadLimits(), folder)
    try:
        found = asyncio.run(there.request(tasks.COMPLETION, data, speculative=True))
    finally:
        there.close()
    here = asyncio.run(Reader(texts, "toy", ReadLimits()).request(tasks.COMPLETION, data, speculative=True))
    assert found == here


def test_a_grammar_that_is_kept_needs_no_child(folder, monkeypatch):
    reader = Reader(TextBundle.open(folder), "toy", ReadLimits(), folder)

    async def ask() -> object:
        found = await reader.request(tasks.COMPLETION, body(guided_regex="[ab]+"), speculative=True)
        return found.options["constraint"]

    try:
        first = asyncio.run(ask())
        monkeypatch.setattr(reader._children, "run", None)
        assert asyncio.run(ask()) is first
        monkeypatch.undo()
        first._compiled._failed.set()  # at a limit, which all its sequences share
        assert asyncio.run(ask()) is not first
    finally:
        reader.close()


LONG = {
    tasks.COMPLETION: {"prompt": "a" * 3_000_000},
    tasks.CHAT: {"messages": [{"role": "user", "content": "a" * 3_000_000}]},
    "ids": {"prompt": [1] * 1_500_000},
}


@pytest.mark.parametrize("task", LONG)
def test_a_text_that_cannot_fit_is_not_tokenized(folder, task):
    data = json.dumps(LONG[task]).encode()
    with processes(folder) as made, pytest.raises(RequestError) as caught:
        asyncio.run(made.run(tasks.COMPLETION if task == "ids" else task, data))
    assert caught.value.code == "context_length_exceeded"


def test_the_last_comer_goes_first():
    async def come() -> list[int]:
        places, order = LastFirst(1), list[int]()

        async def visit(number: int) -> None:
            async with places:
                order.append(number)
                await asyncio.sleep(0)

        visitors = [asyncio.create_task(visit(number)) for number in range(5)]
        await asyncio.sleep(0)
        visitors[3].cancel()
        await asyncio.gather(*visitors, return_exceptions=True)
        async with places:  # nobody has kept it
            return order

    assert asyncio.run(come()) == [0, 4, 2, 1]


def test_a_place_that_came_to_who_leaves_goes_on():
    async def come() -> None:
        places = LastFirst(1)

        async def visit() -> None:
            async with places:
                pass

        async with places:
            visitor = asyncio.create_task(visit())
            await asyncio.sleep(0)
        visitor.cancel()  # it has the place, and has not run since
        with pytest.raises(asyncio.CancelledError):
            await visitor
        await asyncio.wait_for(visit(), 5)

    asyncio.run(come())


def test_constraints_that_nobody_asks_for_are_forgotten_first(monkeypatch):
    monkeypatch.setattr(limited_bundle, "_KEPT", 2)
    compiled = list[str]()

    class Grammars:
        def compile(self, kind: str, text: str) -> SimpleNamespace:
            compiled.append(text)
            return SimpleNamespace(has_failed=False)

    kept = limited_bundle.ConstraintCache(Grammars)  # type: ignore[arg-type]
    for text in ("a", "b", "a", "c", "a", "c", "b"):
        kept.compile("regex", text, keep=True)
    assert compiled == ["a", "b", "c", "b"]


def test_a_tokenizer_that_constraints_do_not_take_is_no_reason_not_to_serve(tmp_path, monkeypatch):
    def words() -> FastTokenizer:
        made = toy_tokenizer()
        made.decoder = decoders.WordPiece()
        return made

    monkeypatch.setattr("tests.light.fake_bundle.toy_tokenizer", words)
    with processes(constrained_bundle(tmp_path / "words")) as made:
        found = json.loads(asyncio.run(made.run(tasks.COMPLETION, body())))
        assert found["prompts"] == [[256, 87]]
        with pytest.raises(RequestError, match="does not take this bundle's tokenizer"):
            asyncio.run(made.run(tasks.COMPLETION, body(guided_regex="a")))
