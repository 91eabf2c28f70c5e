"""The model of Triton's Python backend, on toy bundles and a backend that only writes down what it is given."""

import importlib
import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest

from speccompile.errors import EngineError
from speccompile.runtime import Bundle
from tests.light.fake_bundle import toy_manifest, write_toy_bundle
from tests.light.toy_engine import ToyEngine
from tests.native import fake_triton
from tests.native.fake_triton import Request

SAMPLING = {"sampling": True, "batch_size": 3}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", fake_triton)
    monkeypatch.delitem(sys.modules, "speccompile.serving.triton.model", raising=False)
    monkeypatch.setattr(fake_triton.Logger, "lines", fake_triton.Logger.lines)
    fake_triton.Logger.lines.clear()
    return importlib.import_module("speccompile.serving.triton.model")


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    logger = logging.getLogger("speccompile")
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers, logger.level = handlers, level


@pytest.fixture
def load(module: ModuleType, tmp_path: Path) -> Callable[..., Any]:
    """Return the model, initialized on a toy bundle; the bundle is its `_bundle`."""

    def loaded(*, parameters: dict[str, str] | None = None, **changes: Any) -> Any:
        folder = tmp_path / "model" / "1" / "bundle"
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_toy_bundle(folder, **changes)
        changes.pop("tokenizer", None)
        config = {
            "parameters": {key: {"string_value": value} for key, value in (parameters or {}).items()},
            "instance_group": [{"count": 2}],
        }
        model = module.TritonPythonModel()
        with patch(
            "speccompile.runtime.devices.onnxruntime.OnnxRuntimeEngine", lambda *_: ToyEngine(toy_manifest(**changes))
        ):
            model.initialize({
                "model_config": json.dumps(config), "model_repository": str(tmp_path / "model"), "model_version": "1",
            })  # fmt: skip
        return model

    return loaded


def expected(model: Any, prompt: Any, **options: Any) -> Any:
    bundle: Bundle = model._bundle
    return bundle.generate(prompt, **options)


def test_one_response_unless_a_stream_is_asked_for(load: Callable[..., Any]) -> None:
    model, request = load(), Request(text_input="def", max_tokens=20)
    model.execute([request])
    (answer,), whole = request.answers, expected(model, "def", max_new_tokens=20)
    generation = json.loads(answer.pop("generation")[0])
    assert generation["token_ids"] == whole.token_ids
    assert list(generation) == list(whole.to_json())
    assert answer == {
        "text_output": [whole.text.encode()], "output_ids": whole.token_ids, "finish_reason": [b"length"],
        "num_input_tokens": [whole.prompt_tokens], "num_output_tokens": [20],
    }  # fmt: skip


def test_a_stream_has_what_is_new(load: Callable[..., Any]) -> None:
    model, request = load(), Request(text_input="def", max_tokens=20, stream=True)
    model.execute([request])
    whole, answers = expected(model, "def", max_new_tokens=20), request.answers
    assert len(answers) > 2
    assert b"".join(each["text_output"][0] for each in answers).decode() == whole.text
    assert [token for each in answers for token in each["output_ids"]] == whole.token_ids
    assert all(set(each) == {"text_output", "output_ids"} for each in answers[:-1])
    assert answers[-1]["finish_reason"] == [b"length"]


def test_a_bundle_without_a_tokenizer_streams_tokens(load: Callable[..., Any]) -> None:
    model, request = load(tokenizer=False), Request(input_ids=[5, 6], max_tokens=20, stream=True)
    model.execute([request])
    assert [token for each in request.answers for token in each["output_ids"]] == expected(
        model, [5, 6], max_new_tokens=20
    ).token_ids
    refused = Request(text_input="def")
    model.execute([refused])
    assert "this bundle has no tokenizer" in refused.error.message


def test_only_wanted_outputs_are_sent(load: Callable[..., Any]) -> None:
    request = Request(outputs=["text_output"], text_input="def", max_tokens=4)
    load().execute([request])
    assert [set(answer) for answer in request.answers] == [{"text_output"}]


def test_requests_with_the_same_options_run_side_by_side(load: Callable[..., Any]) -> None:
    model = load(**SAMPLING)
    asked = [
        {"text_input": "def", "max_tokens": 20, "temperature": 0.8, "seed": 2**64 - 1},
        {"text_input": "a longer prompt", "max_tokens": 20, "stream": True},
        {"text_input": "def", "max_tokens": 12, "logprobs": True},
        {"text_input": "x", "max_tokens": 20, "top_p": 1.0, "top_k": 0},
        {"text_input": "y", "max_tokens": 20},
    ]
    requests = [Request(**each) for each in asked]
    groups: list[int] = []
    with _counting(model, groups):
        model.execute(requests)
    assert groups == [3, 1, 1]
    names = {"max_tokens": "max_new_tokens", "temperature": "temperature", "seed": "seed", "logprobs": "logprobs"}
    for each, request in zip(asked, requests, strict=True):
        options = {names[name]: value for name, value in each.items() if name in names}
        whole = expected(model, each["text_input"], **options)
        assert [token for answer in request.answers for token in answer["output_ids"]] == whole.token_ids
        assert json.loads(request.answers[-1]["generation"][0]).get("logprobs") == whole.logprobs


def _counting(model: Any, groups: list[int]) -> Any:
    """Note the rows of every generation."""
    loop, run = model._bundle._loop, model._bundle._loop.generate

    def generate(rows: Any, *arguments: Any) -> Any:
        groups.append(len(rows))
        return run(rows, *arguments)

    return patch.object(loop, "generate", generate)


def test_a_cancelled_request_ends_and_those_beside_it_go_on(load: Callable[..., Any]) -> None:
    model = load(**SAMPLING)
    cancelled, kept = Request(2, text_input="def", max_tokens=60), Request(text_input="def", max_tokens=60)
    model.execute([cancelled, kept])
    assert (cancelled.error.message, cancelled.error.code) == ("the request was cancelled", 7)
    assert kept.answers[0]["output_ids"] == expected(model, "def", max_new_tokens=60).token_ids
    alone = Request(2, text_input="def", max_tokens=60)
    with _counting_rounds(model) as rounds:
        model.execute([alone])
    assert alone.error.code == 7
    assert len(rounds) == 3  # the prefill, and two rounds
    assert fake_triton.Logger.lines[-1].startswith("a request was cancelled after ")
    again = Request(text_input="def", max_tokens=5)
    model.execute([again])
    assert again.answers[0]["num_output_tokens"] == [5]


class _counting_rounds:
    """The steps of a generation that its caller has asked for."""

    def __init__(self, model: Any) -> None:
        self._loop, self._run = model._bundle._loop, model._bundle._loop.generate
        self._steps: list[None] = []

    def __enter__(self) -> list[None]:
        def generate(*arguments: Any) -> Iterator[None]:
            for step in self._run(*arguments):
                self._steps.append(step)
                yield

        self._patch = patch.object(self._loop, "generate", generate)
        self._patch.start()
        return self._steps

    def __exit__(self, *_: object) -> None:
        self._patch.stop()


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "received no prompt, expected text_input or input_ids (hint: send exactly one of them)"),
        ({"text_input": "x", "input_ids": [1]}, "received text_input and input_ids, expected text_input or input_ids"),
        ({"text_input": b"ab\xff"}, "text_input: byte 2 is 0xff, expected UTF-8 text (hint: send it as UTF-8)"),
        ({"text_input": "x", "temperature": 0.8}, "received temperature 0.8, but the bundle was compiled for greedy"),
        ({"text_input": "x", "seed": 3}, "received seed 3, but the bundle was compiled for greedy decoding"),
        ({"text_input": "x", "max_tokens": 0}, "max_new_tokens is 0: expected at least 1"),
        (
            {"text_input": "x", "frequency_penalty": 0.1},
            "received frequency_penalty 0.1, but the bundle was compiled for",
        ),
        ({"text_input": "x", "exclude_input_in_output": 0}, "exclude_input_in_output: received false, expected true"),
        ({"text_input": "x", "stop_words": ["a", ""]}, "empty stop string"),
        ({"input_ids": [-1]}, "token id -1 is out of range"),
    ],
)
def test_what_cannot_be_done_is_told(load: Callable[..., Any], inputs: dict[str, Any], words: str) -> None:
    model, request, beside = load(), Request(**inputs), Request(text_input="def", max_tokens=3)
    model.execute([request, beside])
    assert request.error.message.startswith(words)
    assert request.error.code == fake_triton.TritonError.INVALID_ARG
    assert beside.answers[0]["num_output_tokens"] == [3]


def test_values_that_change_nothing_are_taken_by_greedy_bundles(load: Callable[..., Any]) -> None:
    nothing = {"temperature": 0, "top_p": 1, "top_k": 0, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0}
    model, request = load(), Request(text_input="def", max_tokens=3, exclude_input_in_output=True, **nothing)
    model.execute([request])
    assert request.answers[0]["output_ids"] == expected(model, "def", max_new_tokens=3).token_ids


def test_a_defect_is_told_without_its_traceback_and_the_model_goes_on(load: Callable[..., Any]) -> None:
    model, request, after = load(), Request(text_input="x"), Request(text_input="def", max_tokens=3)
    with patch.object(model._bundle._loop, "generate", side_effect=ZeroDivisionError("by nothing")):
        model.execute([request])
    told = "a defect of speccompile, the server's log has more: ZeroDivisionError: by nothing"
    assert (request.error.message, request.error.code) == (told, fake_triton.TritonError.INTERNAL)
    assert any("Traceback" in line for line in fake_triton.Logger.lines)
    model.execute([after])
    assert after.answers[0]["num_output_tokens"] == [3]


def test_an_engine_that_fails_is_no_fault_of_the_request(load: Callable[..., Any]) -> None:
    model, request = load(), Request(text_input="x")
    with patch.object(model._bundle._loop, "generate", side_effect=EngineError("the GPU is gone", hint="look for it")):
        model.execute([request])
    assert (request.error.message, request.error.code) == ("the GPU is gone (hint: look for it)", 1)


def test_instances_share_the_cores_unless_told(
    load: Callable[..., Any], module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "available_cores", lambda: 5)
    with patch.object(module.Bundle, "open", wraps=Bundle.open) as opened:
        load()
        load(parameters={"threads": "7", "engine": "other"})
    assert [call.kwargs for call in opened.call_args_list] == [
        {"engine": None, "threads": 2},
        {"engine": "other", "threads": 7},
    ]


def test_a_bundle_that_cannot_be_opened_is_told_when_the_model_is_loaded(load: Callable[..., Any]) -> None:
    with pytest.raises(fake_triton.TritonModelException, match=r"has no engine 'none'.*\(hint: "):
        load(parameters={"engine": "none"})


def test_a_server_that_reads_numpy_wrongly_is_refused(
    load: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_triton.Tensor, "broken", True)
    with pytest.raises(fake_triton.TritonModelException, match=r"was sent \[1, 2, 3\] and returned \[1, 1, 1\]"):
        load()
