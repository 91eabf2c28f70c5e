"""Both backends in the real Triton Inference Server, over HTTP and gRPC. One server for all tests of this file."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from speccompile.compiler.build import build
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from speccompile.serving.triton.repository import RepositoryOptions, write
from tests import zoo
from tests.compile.tiny_bundles import noisy, save
from tests.native.triton_server import ABSENT, PYTHON, Server, serving

pytestmark = [
    pytest.mark.skipif(ABSENT is not None, reason=str(ABSENT)),
    pytest.mark.sweep("a server of its own; the protocol is in the first tier, over a stand-in"),
]

EXAMPLE = Path(__file__).resolve().parents[2] / "scripts" / "examples" / "triton_client.py"
PROMPT = "def self("
SAMPLED = {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.1, "seed": 2**64 - 1}
LONG = 4000
"""Tokens of a generation that takes seconds."""

RECIPE = """name: tiny
target: {model: target}
decoding: sampling
drafter: {kind: model, model: drafter, tokens: 3}
cache: {max_length: 4096, prefill_chunk: 16, batch_size: 3}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle that samples and has room for a long text."""
    base = tmp_path_factory.mktemp("served")
    for name, model in (("target", zoo.model("llama")), ("drafter", noisy("llama", 0.01))):
        model.config.max_position_embeddings = 4096
        save(model, base / name)
    (base / "recipe.yaml").write_text(RECIPE)
    build(make_plan(load_recipe(base)), base / "bundle", prove=False)
    return base / "bundle"


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Bundle:
    return Bundle.open(folder, threads=1)


@pytest.fixture(scope="module")
def server(folder: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve the bundle as the model `python`, and as `native` where that can be compiled."""
    base = tmp_path_factory.mktemp("repository")
    environment = PYTHON.parents[1]
    write(
        folder, base / "models", RepositoryOptions(name="python", backend="python", threads=1, environment=environment)
    )
    with suppress(pytest.skip.Exception):
        libraries = request.getfixturevalue("native_build")
        write(
            folder, base / "models", RepositoryOptions(name="native", backend="native", threads=1, libraries=libraries)
        )
    with serving(base / "models", base / "log") as running:
        yield running


@pytest.fixture(params=["python", "native"])
def model(server: Server, request: pytest.FixtureRequest) -> str:
    if not server.has(request.param):
        pytest.skip("the native backend cannot be compiled here")
    return str(request.param)


def test_one_answer_over_http_has_the_tokens_of_the_bundle(server: Server, model: str, bundle: Bundle) -> None:
    answer = server.generate(model, text_input=PROMPT, max_tokens=40)
    expected = bundle.generate(PROMPT, max_new_tokens=40)
    assert (answer["output_ids"], answer["text_output"]) == (expected.token_ids, expected.text)
    assert (answer["num_input_tokens"], answer["num_output_tokens"]) == (expected.prompt_tokens, 40)
    generation = json.loads(answer["generation"])
    assert list(generation) == list(expected.to_json())
    assert (generation["mode"], generation["finish_reason"]) == ("speculative", answer["finish_reason"])


def test_a_seed_gives_the_tokens_and_logprobs_of_the_bundle(server: Server, model: str, bundle: Bundle) -> None:
    ids = bundle.token_ids(PROMPT)
    answer = server.generate(model, input_ids=ids, max_tokens=30, logprobs=True, **SAMPLED)
    expected = bundle.generate(ids, max_new_tokens=30, logprobs=True, **SAMPLED)
    generation = json.loads(answer["generation"])
    assert (answer["output_ids"], generation["seed"]) == (expected.token_ids, 2**64 - 1)
    np.testing.assert_allclose(generation["logprobs"], expected.logprobs, rtol=0, atol=1e-9)
    alone = server.generate(model, text_input=PROMPT, max_tokens=30, autoregressive=True)
    assert json.loads(alone["generation"])["mode"] == "autoregressive"


def test_a_text_ends_before_a_stop_word(server: Server, model: str, bundle: Bundle) -> None:
    whole = str(bundle.generate(PROMPT, max_new_tokens=40).text)
    stops = [whole[20:22], "never there"]
    answer = server.generate(model, text_input=PROMPT, max_tokens=40, stop_words=stops)
    expected = bundle.generate(PROMPT, max_new_tokens=40, stop=stops)
    assert (answer["text_output"], answer["finish_reason"]) == (expected.text, "stop")
    assert answer["output_ids"] == expected.token_ids


def test_pieces_over_http_are_the_whole(server: Server, model: str, bundle: Bundle) -> None:
    pieces = list(server.stream(model, text_input=PROMPT, max_tokens=40))
    expected = bundle.generate(PROMPT, max_new_tokens=40)
    assert len(pieces) > 5
    assert "".join(piece["text_output"] for piece in pieces) == expected.text
    ids = [piece["output_ids"] for piece in pieces]  # Triton writes a list of one without its brackets
    assert [token for each in ids for token in (each if isinstance(each, list) else [each])] == expected.token_ids
    assert ["finish_reason" in piece for piece in pieces] == [False] * (len(pieces) - 1) + [True]


def test_the_example_client_writes_the_text_of_the_bundle(server: Server, model: str, bundle: Bundle) -> None:
    command = [sys.executable, EXAMPLE, model, PROMPT, "--max-tokens", "40"]
    address = f"http://127.0.0.1:{server.http_port}"
    done = subprocess.run([*command, "--address", address], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, bundle.generate(PROMPT, max_new_tokens=40).text)
    assert done.stderr == "\n40 tokens, finish reason length\n"
    refused = subprocess.run(
        [sys.executable, EXAMPLE, model, PROMPT, "--max-tokens", "0", "--address", address],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "error: max_new_tokens is 0" in refused.stderr


def test_a_stream_over_grpc_with_all_that_the_openai_front_end_sends(
    server: Server, model: str, bundle: Bundle
) -> None:
    sent = {
        "model": model, "text_input": PROMPT, "max_tokens": 20, "stream": True, "temperature": 0.5, "top_p": 1.0,
        "frequency_penalty": 0.0, "presence_penalty": 0.0, "seed": 7, "stop_words": ["never there"],
        "return_num_input_tokens": True, "return_num_output_tokens": True, "exclude_input_in_output": True,
    }  # fmt: skip
    expected = bundle.generate(PROMPT, max_new_tokens=20, temperature=0.5, seed=7)
    ((responses,), (single,)) = server.grpc({"stream": [sent]}, {"stream": [sent | {"stream": False}]})
    assert [token for each in responses for token in each["output_ids"]] == expected.token_ids
    assert "".join(each["text_output"][0] for each in responses) == expected.text
    assert [each["final"] for each in responses] == [False] * (len(responses) - 1) + [True]
    assert (responses[-1]["num_input_tokens"], responses[-1]["num_output_tokens"]) == ([expected.prompt_tokens], [20])
    assert len(single) == 1
    assert (single[0]["final"], single[0]["text_output"]) == (True, [expected.text])
    assert single[0]["finish_reason"] == ["length"]


def cancelled(server: Server) -> list[int]:
    """Return the tokens after which requests were cancelled, as the server's log has them."""
    return [int(part.split()[0]) for part in server.log.read_text().split("a request was cancelled after ")[1:]]


def check_one_more_is_cancelled(server: Server, model: str, before: list[int]) -> None:
    """Check that the next request is served, and the log tells of one that stopped before its end."""
    assert server.generate(model, text_input=PROMPT, max_tokens=4)["num_output_tokens"] == 4
    end = time.monotonic() + 30
    while len(cancelled(server)) == len(before) and time.monotonic() < end:
        time.sleep(0.05)
    *others, tokens = cancelled(server)
    assert others == before
    assert tokens < LONG


def test_a_cancelled_request_stops(server: Server, model: str) -> None:
    before = cancelled(server)
    (ended,) = server.grpc({"cancel": {"model": model, "text_input": PROMPT, "max_tokens": LONG, "stream": True}})
    assert ended["responses"] < LONG
    check_one_more_is_cancelled(server, model, before)


def test_a_client_over_http_that_hangs_up_stops_its_request(server: Server, model: str) -> None:
    before = cancelled(server)
    for _ in zip(range(3), server.stream(model, text_input=PROMPT, max_tokens=LONG), strict=False):
        pass
    check_one_more_is_cancelled(server, model, before)


def test_two_clients_at_once_have_their_own_answers(server: Server, model: str, bundle: Bundle) -> None:
    prompts = [PROMPT, "import the "]
    asked = [{"model": model, "text_input": prompt, "max_tokens": 60, "stream": True} for prompt in prompts]
    with ThreadPoolExecutor(2) as pool:
        over_grpc, over_http = pool.submit(server.grpc, {"stream": asked}), [
            pool.submit(lambda prompt=prompt: list(server.stream(model, text_input=prompt, max_tokens=60)))
            for prompt in prompts
        ]  # fmt: skip
        (answers,) = over_grpc.result()
        for prompt, responses, pieces in zip(prompts, answers, over_http, strict=True):
            expected = bundle.generate(prompt, max_new_tokens=60)
            assert [token for each in responses for token in each["output_ids"]] == expected.token_ids
            assert "".join(piece["text_output"] for piece in pieces.result()) == expected.text


def batches(server: Server, model: str) -> int:
    """Return executions of several requests together."""
    sizes = server.statistics(model)["batch_stats"]
    return sum(each["compute_infer"]["count"] for each in sizes if each["batch_size"] > 1)


def test_requests_that_wait_run_side_by_side(server: Server, model: str, bundle: Bundle) -> None:
    """Send three while one runs: of these, two agree in what must be equal."""
    arrived, before = threading.Event(), batches(server, model)

    def occupy() -> None:
        for _ in server.stream(model, text_input=PROMPT, max_tokens=2500):
            arrived.set()

    def ask(number: int) -> dict[str, Any]:
        most = 20 if number < 2 else 30
        return server.generate(model, text_input=PROMPT * (number + 1), max_tokens=most, temperature=0.9, seed=number)

    with ThreadPoolExecutor(4) as pool:
        occupied = pool.submit(occupy)
        assert arrived.wait(30)
        answers = list(pool.map(ask, range(3)))
        occupied.result()
    for number, answer in enumerate(answers):
        most = 20 if number < 2 else 30
        expected = bundle.generate(PROMPT * (number + 1), max_new_tokens=most, temperature=0.9, seed=number)
        assert answer["output_ids"] == expected.token_ids
    assert batches(server, model) == before + 1


BAD = {
    "no prompt": ({"max_tokens": 3}, "received no prompt, expected text_input or input_ids"),
    "two prompts": ({"text_input": "x", "input_ids": [5]}, "received text_input and input_ids, expected"),
    "empty": ({"text_input": ""}, "the prompt is empty"),
    "token": ({"input_ids": [5, 10**6]}, "token id 1000000 is out of range"),
    "too long": ({"input_ids": [5] * 5000}, "the prompt has 5000 tokens, more than this bundle's capacity of 4096"),
    "no tokens": ({"text_input": "x", "max_tokens": 0}, "max_new_tokens is 0: expected at least 1"),
    "temperature": ({"text_input": "x", "temperature": -0.3}, "temperature: received -0.3, expected a number from 0"),
    "top_k": ({"text_input": "x", "temperature": 1, "top_k": -1}, "top_k: received -1"),
    "penalty": ({"text_input": "x", "presence_penalty": 2.5}, "presence_penalty: received 2.5, expected a number"),
    "echo": ({"text_input": "x", "exclude_input_in_output": False}, "exclude_input_in_output: received false"),
    "stop": ({"text_input": "x", "stop_words": [""]}, "empty stop string"),
    "chat": ({"text_input": "x", "chat": True}, "chat"),
    "rows": ({"text_input": ["x", "y"]}, "text_input: received shape [2, 1], expected one row"),
    "type": ({"text_input": "x", "max_tokens": "many"}, ""),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_is_told_and_leaves_the_server_alive(server: Server, model: str, case: str) -> None:
    inputs, words = BAD[case]
    error = server.generate(model, **inputs)["error"]
    assert words in error
    assert "Traceback" not in error
    assert not words or "(hint: " in error
    assert server.generate(model, text_input=PROMPT, max_tokens=2)["num_output_tokens"] == 2


def test_bad_requests_over_grpc(server: Server, model: str) -> None:
    bad = {"model": model, "text_input": "x", "max_tokens": 0}
    good = bad | {"max_tokens": 2}
    ((failed,),), refused, ((answer,),) = server.grpc({"stream": [bad]}, {"unary": good}, {"stream": [good]})
    assert "max_new_tokens is 0: expected at least 1 (hint: give a whole number)" in failed["error"]
    assert "decoupled" in refused  # Triton's own word for models that stream
    assert answer["num_output_tokens"] == [2]


def test_the_configuration_is_one_of_tritons(server: Server, folder: Path, tmp_path: Path) -> None:
    written = write(folder, tmp_path / "models", RepositoryOptions(backend="python", instances=2, threads=3))
    (config,) = server.grpc({"config": (written.folder / "config.pbtxt").read_text()})
    assert (config["name"], config["max_batch_size"]) == ("tiny", 3)
    assert config["model_transaction_policy"] == {"decoupled": True}
    assert config["instance_group"] == [{"count": 2, "kind": "KIND_CPU"}]
    assert config["parameters"] == {"threads": {"string_value": "3"}}


def test_a_server_that_reads_arrays_of_numpy_wrongly_is_refused(folder: Path, tmp_path: Path) -> None:
    """Server 24.10 and numpy 2, as the environment of the tests has it."""
    if np.__version__ < "2" or PYTHON.resolve() != Path(sys.executable).resolve():
        pytest.skip("needs numpy 2 in the environment of the tests, of the Python that the server's stub is for")
    write(folder, tmp_path / "models", RepositoryOptions(backend="python", environment=Path(sys.prefix)))
    with pytest.raises(AssertionError, match="not ready"), serving(tmp_path / "models", tmp_path / "log"):
        pass
    log = (tmp_path / "log").read_text()
    assert f"does not read arrays of numpy {np.__version__} as they are" in log
    assert "pip install 'numpy<2'" in log


def test_numpy_1_gives_the_same_tokens(folder: Path, bundle: Bundle) -> None:
    """Run the runtime by itself, in the environment of the server."""
    code = """if True:
        import json, sys, numpy
        from speccompile.runtime import Bundle
        bundle = Bundle.open(sys.argv[1], threads=1)
        options = dict(max_new_tokens=30, temperature=[0, 0.8], seed=7, repetition_penalty=1.1, logprobs=True)
        rows = bundle.generate_batch(["def self(", "a"], **options)
        print(json.dumps([numpy.__version__, [row.token_ids for row in rows], [row.logprobs for row in rows]]))
    """
    run = subprocess.run([PYTHON, "-c", code, folder], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    version, tokens, logprobs = json.loads(run.stdout)
    options: dict[str, Any] = {"temperature": [0, 0.8], "seed": 7, "repetition_penalty": 1.1, "logprobs": True}
    expected = bundle.generate_batch(["def self(", "a"], max_new_tokens=30, **options)
    assert version.startswith("1.")
    assert tokens == [row.token_ids for row in expected]
    for found, row in zip(logprobs, expected, strict=True):
        np.testing.assert_allclose(found, row.logprobs, rtol=0, atol=1e-9)
