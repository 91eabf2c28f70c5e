"""`speccompile batch` on toy bundles: OpenAI's batch format in, and out."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import pytest
from openai.types.chat import ChatCompletion
from openai.types.completion import Completion

from speccompile.errors import EngineError, UsageError
from speccompile.runtime import Bundle
from speccompile.runtime.text.tokenizer import Tokenizer
from speccompile.serving.batch.requests import read_lines
from speccompile.serving.batch.worker import BatchWorker
from speccompile.serving.http.fields import CHAT_URL, COMPLETIONS_URL
from speccompile.serving.scheduler import Service
from tests.light.batch_example import completion, line, read, statuses, write
from tests.light.fake_bundle import toy_manifest, write_toy_bundle
from tests.light.toy_engine import ToyEngine
from tests.light.toy_models import autoregressive

ROWS = {"batch_size": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_toy_bundle(tmp_path_factory.mktemp("built") / "toy", **ROWS)


@pytest.fixture
def toys():
    """Yield the toy engine in ONNX Runtime's place."""
    with patch("speccompile.runtime.devices.onnxruntime.OnnxRuntimeEngine", lambda *_: ToyEngine(toy_manifest(**ROWS))):
        yield


@pytest.fixture
def run(toys, command_line):
    return partial(command_line, "-q", "batch")


def test_every_request_gets_the_tokens_that_it_gets_alone(folder, run, tmp_path):
    source = write(tmp_path / "in.jsonl", *map(completion, range(10)))
    assert run(folder, source, tmp_path / "out.jsonl") == (0, "", "10 done + 0 failed + 0 skipped = 10 given\n")
    for name, answer in read(tmp_path / "out.jsonl").items():
        number = int(name[1:])
        assert answer["error"] is None
        assert answer["id"].startswith("batch_req_")
        assert set(answer["response"]) == {"status_code", "request_id", "body"}
        body = answer["response"]["body"]
        Completion.model_validate(body, strict=True)
        assert body["choices"][0]["token_ids"] == autoregressive([number, 7, number + 1], 5)


def test_conversations_are_answered_as_the_server_answers_them(folder, run, tmp_path):
    body = {"model": "demo", "messages": [{"role": "user", "content": "def"}], "max_tokens": 6}
    source = write(tmp_path / "in.jsonl", line("a", body, CHAT_URL), "", line("b", body | {"logprobs": True}, CHAT_URL))
    assert run(folder, source, tmp_path / "out.jsonl", "--json")[0] == 0
    answers = read(tmp_path / "out.jsonl")
    text = Tokenizer(folder / "tokenizer" / "tokenizer.json")
    prompt = text.encode("<s>def!", special_tokens=False)
    expected = text.decode([*prompt, *autoregressive(prompt, 6)]).removeprefix("def!")
    for answer in answers.values():
        found = ChatCompletion.model_validate(answer["response"]["body"])
        assert found.choices[0].message.content == expected
    assert len(answers["b"]["response"]["body"]["choices"][0]["logprobs"]["content"]) == 6


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"temperature": 1}, 400, "temperature"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"model": "gpt-4"}, 404, "model"),
        ({"stream": True}, 400, "stream"),
        ({"prompt": [999999]}, 400, "prompt"),
        ({"prompt": [1] * 200}, 400, "prompt"),
    ],
)
def test_a_wrong_body_gets_a_line_of_its_own_and_is_asked_again(folder, run, tmp_path, fields, status, param):
    wrong = completion(2, **fields)
    source = write(tmp_path / "in.jsonl", completion(1), wrong, completion(3))
    code, out, err = run(folder, source, tmp_path / "out.jsonl", "--json")
    assert code == 1
    assert "out.jsonl says why; the same command asks them again" in err
    assert err.endswith("2 done + 1 failed + 0 skipped = 3 given\n")
    account = json.loads(out)
    assert [account[name] for name in ("given", "done", "failed", "skipped", "left")] == [3, 2, 1, 0, 0]
    assert (account["prompt_tokens"], account["new_tokens"]) == (6, 10)
    assert statuses(tmp_path / "out.jsonl") == {"r1": 200, "r2": status, "r3": 200}
    error = read(tmp_path / "out.jsonl")["r2"]["response"]["body"]["error"]
    assert (error["param"], bool(error["message"])) == (param, True)

    write(source, completion(1), completion(2), completion(3))
    assert run(folder, source, tmp_path / "out.jsonl")[::2] == (0, "1 done + 0 failed + 2 skipped = 3 given\n")
    assert statuses(tmp_path / "out.jsonl") == {"r1": 200, "r2": 200, "r3": 200}


def test_bodies_call_the_bundle_by_the_name_that_is_given(folder, run, tmp_path):
    source = write(tmp_path / "in.jsonl", completion(1, model="gpt-4"))
    assert run(folder, source, tmp_path / "out.jsonl", "--served-model-name", "gpt-4")[0] == 0
    assert read(tmp_path / "out.jsonl")["r1"]["response"]["body"]["model"] == "gpt-4"


def test_drafts_may_be_left_out(folder, run, tmp_path):
    source = write(tmp_path / "in.jsonl", completion(1), completion(2, speculative=True))
    assert run(folder, source, tmp_path / "out.jsonl", "--autoregressive")[0] == 0
    bodies = {name: each["response"]["body"] for name, each in read(tmp_path / "out.jsonl").items()}
    assert bodies["r1"]["metrics"]["speculative_decoding"] is None
    assert bodies["r2"]["metrics"]["speculative_decoding"] is not None


def test_several_prompts_and_choices_of_a_line_come_in_their_order(folder, run, tmp_path):
    prompts = [[number, 3] for number in range(8)]
    source = write(tmp_path / "in.jsonl", line("a", {"prompt": prompts, "max_tokens": 4, "return_token_ids": True}))
    assert run(folder, source, tmp_path / "out.jsonl")[0] == 0
    choices = read(tmp_path / "out.jsonl")["a"]["response"]["body"]["choices"]
    assert [each["token_ids"] for each in choices] == [autoregressive(prompt, 4) for prompt in prompts]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("{", r"line 2: received no JSON: "),
        ("[" * 100_000, r"line 2: received JSON that is nested too deeply"),
        ("[1]", r"line 2: received \[1\], expected an object"),
        (line(7, {}), r"line 2: custom_id: received 7, expected a text"),
        (line("", {}), r'line 2: custom_id: received "", expected a text'),
        ({"method": "POST"}, r"line 2: custom_id: received nothing, expected a text"),
        (line("r1", {}), r'line 2: custom_id: received "r1", which line 1 has already'),
        (line("a", {}, method="GET"), r'line 2: method: received "GET", expected POST'),
        (line("a", {}, "/v1/embeddings"), r'url: received "/v1/embeddings", expected /v1/chat/completions or /v1/com'),
        (line("a", "x" * 99), r'line 2: body: received "x{59}\.\., expected an object'),
    ],
)
def test_a_line_that_is_no_request_refuses_the_file_before_any_work(folder, run, tmp_path, wrong, message):
    source = write(tmp_path / "in.jsonl", completion(1), wrong, completion(3))
    code, out, err = run(folder, source, tmp_path / "out.jsonl")
    assert (code, out, (tmp_path / "out.jsonl").exists()) == (2, "", False)
    with pytest.raises(UsageError, match=message):
        read_lines(source)
    assert "in.jsonl: received 1 lines that are no requests:" in err
    assert "hint: write each as" in err


def test_two_for_each_row_are_asked_at_once_and_no_more_is_read(folder, toys):
    asked = []

    def lines():
        for each in map(completion, range(100)):
            asked.append(each["custom_id"])
            yield next(iter(read_lines_of(each)))

    bundle = Bundle.open(folder)
    with BatchWorker.open(bundle, "demo") as desk:
        answers = desk.run(lines())
        assert [each.status for each in islice(answers, 4)] == [200] * 4
        assert len(asked) <= 4 + 2 * ROWS["batch_size"]
        answers.close()
    assert bundle.generate([1, 2], max_new_tokens=3).token_ids == autoregressive([1, 2], 3)


def read_lines_of(data: dict):
    from speccompile.serving.batch.requests import BatchRequest

    yield BatchRequest(1, data["custom_id"], data["url"], json.dumps(data["body"]).encode())


@pytest.mark.parametrize("torn", [b"", b"{", b'{"custom_id": "r2", "response"', None])
def test_a_torn_last_line_is_dropped_and_only_the_rest_is_asked(folder, run, tmp_path, torn):
    """Cut the file at many places. None: all but the end of the last line was written, so it is whole."""
    source = write(tmp_path / "in.jsonl", *map(completion, range(4)))
    output = tmp_path / "out.jsonl"
    assert run(folder, source, output)[0] == 0
    lines = output.read_bytes().splitlines()
    kept = lines[:2] if torn is not None else lines[:3]
    output.write_bytes(b"\n".join(lines[:2]) + b"\n" + (lines[2] if torn is None else torn))
    code, _, err = run(folder, source, output)
    assert (code, err) == (0, f"{4 - len(kept)} done + 0 failed + {len(kept)} skipped = 4 given\n")
    assert output.read_bytes().splitlines()[: len(kept)] == kept
    assert statuses(output) == {f"r{number}": 200 for number in range(4)}
    before = output.read_bytes()
    assert run(folder, source, output)[::2] == (0, "0 done + 0 failed + 4 skipped = 4 given\n")
    assert output.read_bytes() == before


def test_answers_of_others_are_taken_by_their_custom_id(folder, run, tmp_path):
    source = write(tmp_path / "in.jsonl", *map(completion, range(3)))
    theirs = {"id": "x", "custom_id": "r1", "response": {"status_code": 200, "body": {}}, "error": None}
    expired = {"id": "y", "custom_id": "r2", "response": None, "error": {"code": "batch_expired", "message": ""}}
    output = write(tmp_path / "out.jsonl", theirs, "", expired, theirs | {"custom_id": "gone"})
    assert run(folder, source, output)[::2] == (0, "2 done + 0 failed + 1 skipped = 3 given\n")
    assert set(read(output)) == {"r0", "r1", "r2", "gone"}
    assert read(output)["r1"] == theirs


def test_a_request_that_has_changed_since_is_refused(folder, run, tmp_path):
    source, output = write(tmp_path / "in.jsonl", completion(1)), tmp_path / "out.jsonl"
    assert run(folder, source, output)[0] == 0
    write(source, completion(1, max_tokens=9))
    before = output.read_bytes()
    code, _, err = run(folder, source, output)
    assert code == 2
    assert "out.jsonl line 1: received an answer to another request with custom_id 'r1' than line 1 asks now" in err
    assert "given" not in err
    assert output.read_bytes() == before


@pytest.mark.parametrize("ended", [True, False], ids=["the service has ended", "one request has failed"])
def test_an_engine_that_fails_leaves_the_rest_and_a_request_that_does_only_itself(folder, run, tmp_path, ended):
    source = write(tmp_path / "in.jsonl", *map(completion, range(20)))
    submit, asked = Service.submit, []

    def failing(self, *arguments, **options):
        asked.append(arguments)
        if len(asked) > 10 and (ended or len(asked) == 11):
            raise EngineError("the service has ended: no memory") if ended else KeyError("a defect")
        return submit(self, *arguments, **options)

    with patch.object(Service, "submit", failing):
        code, out, err = run(folder, source, tmp_path / "out.jsonl", "--json")
    account = json.loads(out)
    assert (code, account["done"] + account["failed"] + account["left"]) == (1, 20)
    assert ("error: the service has ended: no memory" in err) is ended
    assert account["left"] >= 10 if ended else (account["failed"], account["left"]) == (1, 0)
    assert run(folder, source, tmp_path / "out.jsonl")[0] == 0
    assert list(statuses(tmp_path / "out.jsonl").values()) == [200] * 20


STOPPED = """
import os, signal, sys
from unittest.mock import patch
from speccompile.serving.batch.results import Results
from speccompile.cli import main
from tests.light.fake_bundle import toy_manifest
from tests.light.toy_engine import ToyEngine

add, written = Results.add, []

def and_stop(self, result):
    add(self, result)
    written.append(result)
    if len(written) == 3:
        os.kill(os.getpid(), int(sys.argv[1]))

with (
    patch(
        "speccompile.runtime.devices.onnxruntime.OnnxRuntimeEngine", lambda *_: ToyEngine(toy_manifest(batch_size=3))
    ),
    patch.object(Results, "add", and_stop),
):
    main(sys.argv[2:])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_stops_it_keeps_what_is_done(folder, run, tmp_path, number):
    source, output = write(tmp_path / "in.jsonl", *map(completion, range(20))), tmp_path / "out.jsonl"
    arguments = [str(int(number)), "-q", "batch", folder, source, output, "--json"]
    stopped = subprocess.run(
        [sys.executable, "-c", STOPPED, *map(str, arguments)], cwd=Path(__file__).resolve().parents[2],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": "."}, check=False,
    )  # fmt: skip
    if number == signal.SIGKILL:
        assert stopped.returncode == -number
    else:
        assert stopped.returncode == 128 + number
        assert " has the results so far; run the same command again to resume" in stopped.stderr
        assert stopped.stderr.endswith("3 done + 0 failed + 0 skipped + 17 left = 20 given\n")
        assert json.loads(stopped.stdout)["left"] == 17
    assert len(read(output)) == 3
    assert run(folder, source, output)[::2] == (0, "17 done + 0 failed + 3 skipped = 20 given\n")
    assert len(read(output)) == 20


def test_an_adapter_that_is_not_loaded_is_refused_by_name(folder, run, tmp_path):
    """Refuse, and never answer with the base in its place."""
    asked = line("a", {"model": "toy:poet", "prompt": [1, 7, 2], "max_tokens": 5}, COMPLETIONS_URL)
    source = write(tmp_path / "in.jsonl", asked, completion(1))
    code, _, said = run(folder, source, tmp_path / "out.jsonl", "--served-model-name", "toy")
    assert (code, "1 done + 1 failed" in said) == (1, True)
    answer = read(tmp_path / "out.jsonl")["a"]["response"]
    assert answer["status_code"] == 400
    assert "received 'poet', expected the name of a loaded adapter" in answer["body"]["error"]["message"]
    code, _, said = run(folder, source, tmp_path / "other.jsonl", "--adapter", f"poet={tmp_path}")
    assert (code, "'poet': received it for a bundle without slots" in said) == (2, True)
