"""Requests that end before their time, and servers that begin and end."""

import socket
import threading

import pytest

from speccompile.errors import BundleError, EngineError
from speccompile.runtime import Generation
from speccompile.serving.http.model import ServedModel
from speccompile.serving.http.run import ListenAddress, listen
from speccompile.serving.scheduler import OutputDelta
from tests.light.serve_example import chat_bundle, puppet_server, serving


def generation(text="ab", tokens=(1, 2), reason="length", **changes):
    given = {"prefill_seconds": 0.1, "verify_seconds": 0.2, "draft_seconds": 0.1, "path_lengths": [3, 1],
             "draft_lengths": [4, 4], "round_starts": [1, 4], "round_seconds": [0.2, 0.1],
             "first_token_seconds": 0.5, "queue_seconds": 0.25,
             "cached_tokens": 2} | changes  # fmt: skip
    return Generation(text, list(tokens), 4, 2, 2.0, 1.0, 2.0, reason, "speculative", "toy", **given)


@pytest.fixture
def puppet():
    with puppet_server() as found:
        yield found


def test_pieces_are_sent_when_they_come(puppet):
    running, service = puppet
    with running.asked("POST", "/v1/completions", {"prompt": "x", "stream": True}) as response:
        service.came.acquire()
        (request,) = service.requests
        request.deliver(OutputDelta(0, "a", [1]))
        assert b'"text":"a"' in response.readline()  # while the rest is not there yet
        request.deliver(OutputDelta(0, "b", [2], generation=generation()))
        rest = response.read()
        assert b'"text":"b"' in rest
        assert rest.endswith(b"data: [DONE]\n\n")


def test_how_a_single_sequence_went_is_told_as_vllm_tells_it(puppet):
    running, service = puppet
    threading.Thread(target=lambda: (service.came.acquire(), service.requests[0].deliver(
        OutputDelta(0, "ab", [1, 2], generation=generation())))).start()  # fmt: skip
    found = running.complete().json
    assert found["metrics"] == {
        "time_to_first_token_ms": 500.0, "generation_time_ms": 1000.0, "queue_time_ms": 250.0, "mean_itl_ms": 300.0,
        "tokens_per_second": 2.0,
        "speculative_decoding": {
            "mean_acceptance_length": 2.0, "draft_acceptance_rate": 0.25, "acceptance_histogram": [1, 0, 1, 0, 0],
            "num_spec_steps": 2, "num_accepted_draft_tokens": 2, "num_draft_tokens": 8, "num_spec_tokens": 4,
        },
    }  # fmt: skip
    assert found["usage"]["prompt_tokens_details"]["cached_tokens"] == 2
    details = found["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] == 1  # the answer ends behind the first of the two
    assert details["rejected_prediction_tokens"] == 7


def test_an_answer_of_one_token_has_had_no_drafts(puppet):
    running, service = puppet
    alone = generation(
        "a", (1,), path_lengths=[], draft_lengths=[], round_starts=[], round_seconds=[], first_token_seconds=None
    )
    threading.Thread(target=lambda: (service.came.acquire(), service.requests[0].deliver(
        OutputDelta(0, "a", [1], generation=alone)))).start()  # fmt: skip
    found = running.complete().json["metrics"]
    assert (found["mean_itl_ms"], found["time_to_first_token_ms"]) == (None, None)
    assert found["speculative_decoding"]["mean_acceptance_length"] == 1
    assert found["speculative_decoding"]["acceptance_histogram"] == [0] * 5


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_cancels_its_request(puppet, stream):
    running, service = puppet
    with running.asked_without_answer("/v1/completions", {"prompt": "x", "stream": stream}):
        service.came.acquire()
        (request,) = service.requests
        request.deliver(OutputDelta(0, "a", [1]))
        assert not request.cancelled
    wait_until(lambda: request.cancelled)


def wait_until(condition):
    moment = threading.Event()
    while not condition():
        moment.wait(0.01)


@pytest.mark.parametrize(("reason", "tokens", "status", "code"), [
    ("cancelled", (1,), 503, "draining"), ("timeout", (), 503, "timeout"), ("timeout", (1, 2), 504, "timeout"),
])  # fmt: skip
def test_what_did_not_come_to_its_end_is_an_error(puppet, reason, tokens, status, code):
    running, service = puppet
    end = OutputDelta(0, "", [], generation=generation("", tokens, reason))

    def answer():
        service.came.acquire()
        service.requests[-1].deliver(end)

    threading.Thread(target=answer).start()
    answered = running.complete()
    assert (answered.status, answered.error["code"]) == (status, code)
    assert (answered.headers["x-should-retry"] == "false") == (status == 504)
    threading.Thread(target=answer).start()
    *_, last = running.complete(stream=True).events
    assert last["error"]["code"] == code


def test_an_error_in_the_middle_of_a_stream_is_an_event(puppet):
    running, service = puppet

    def answer():
        service.came.acquire()
        service.requests[0].deliver(OutputDelta(0, "a", [1]))
        service.requests[0].deliver(EngineError("the engine is gone"))

    threading.Thread(target=answer).start()
    first, last = running.complete(stream=True).events
    assert first["choices"][0]["text"] == "a"
    assert last["error"]["message"] == "the engine is gone"


def test_a_server_is_ready_when_its_bundle_is_open():
    model = ServedModel("toy")
    with serving(model) as running:
        for answered in (running.complete(), running.ask("GET", "/v1/models"), running.ask("GET", "/metrics")):
            assert (answered.status, answered.error["code"], answered.headers["Retry-After"]) == (503, "loading", "1")
        health = running.ask("GET", "/health")
        assert (health.status, health.json) == (503, {"status": "loading"})
        model.start(chat_bundle())
        assert running.ask("GET", "/health").json == {"status": "ready"}
        assert running.complete(max_tokens=1).status == 200
        model.close(10)
        health = running.ask("GET", "/health")
        assert (health.status, health.json) == (503, {"status": "draining"})
        answered = running.complete()
        assert (answered.status, answered.error["code"]) == (503, "draining")


def test_a_bundle_that_cannot_be_opened_is_told(tmp_path):
    model = ServedModel("toy")
    with pytest.raises(BundleError):
        model.open(tmp_path)
    with serving(model) as running:
        assert running.ask("GET", "/health").json == {"status": "failed"}
        assert "it could not be opened" in running.complete().error["message"]


def test_an_engine_that_has_failed_is_told(puppet):
    running, service = puppet
    service.failure = EngineError("out of memory")
    health = running.ask("GET", "/health")
    assert (health.status, health.json) == (503, {"status": "failed"})
    answered = running.complete()
    assert (answered.status, answered.error["code"]) == (503, "failed")
    assert "its engine has failed: out of memory" in answered.error["message"]


def test_connections_send_what_they_have_at_once():
    """Small pieces of a stream do not wait for the client's acknowledgement of those before (Nagle's algorithm)."""
    listening, _ = listen(ListenAddress(port=0))
    with listening, socket.create_connection(listening.getsockname()), listening.accept()[0] as accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
