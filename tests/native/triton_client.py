"""A client over gRPC, run by the Python of scripts/triton_server/setup: commands from stdin, answers to
stdout, in JSON.

{"stream": [{model, input: value, ..}, ..]}     all at once on one stream: for each the responses, or an error
{"cancel": {model, input: value, ..}}           breaks off at the third response: how many came, and the last error
{"unary": {model, input: value, ..}}            the error of a call that takes one response
{"config": text of a config.pbtxt}              the configuration
"""

import json
import queue
import sys
import time
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2

TYPES = {
    "text_input": "BYTES", "stop_words": "BYTES", "input_ids": "INT64", "max_tokens": "INT32", "stream": "BOOL",
    "temperature": "FP32", "top_p": "FP32", "top_k": "INT32", "seed": "UINT64", "logprobs": "BOOL",
    "frequency_penalty": "FP32", "presence_penalty": "FP32", "return_num_input_tokens": "BOOL",
    "return_num_output_tokens": "BOOL", "exclude_input_in_output": "BOOL",
}  # fmt: skip
DTYPES = {"BYTES": object, "INT64": np.int64, "INT32": np.int32, "BOOL": bool, "FP32": np.float32, "UINT64": np.uint64}
SECONDS = 30


def inputs(request: dict[str, Any]) -> list[triton.InferInput]:
    """Return inputs in the shapes that NVIDIA's OpenAI front end sends: [1, 1], [1, n]."""
    made = []
    for name, value in request.items():
        if name == "model":
            continue
        values = value if isinstance(value, list) else [value]
        kind = TYPES[name]
        array = np.array([[each.encode() if kind == "BYTES" else each for each in values]], DTYPES[kind])
        made.append(triton.InferInput(name, list(array.shape), kind))
        made[-1].set_data_from_numpy(array)
    return made


def shown(result: triton.InferResult) -> dict[str, Any]:
    response = result.get_response()
    found: dict[str, Any] = {"final": response.parameters["triton_final_response"].bool_param}
    for output in response.outputs:
        values = result.as_numpy(output.name).reshape(-1).tolist()
        found[output.name] = [each.decode() if isinstance(each, bytes) else each for each in values]
    return found


def open_stream(address: str) -> tuple[triton.InferenceServerClient, "queue.Queue[tuple[Any, Any]]"]:
    client, arrived = triton.InferenceServerClient(address), queue.Queue()
    client.start_stream(lambda result, error: arrived.put((result, error)))
    return client, arrived


def stream(address: str, requests: list[dict[str, Any]]) -> list[Any]:
    client, arrived = open_stream(address)
    for number, request in enumerate(requests):
        client.async_stream_infer(
            request["model"], inputs(request), request_id=str(number), enable_empty_final_response=True
        )
    answers: list[list[Any]] = [[] for _ in requests]
    waiting = len(requests)
    while waiting:
        result, error = arrived.get(timeout=SECONDS)
        if error is not None:
            assert len(requests) == 1, "an error does not tell whose it is"
            answers[0].append({"error": str(error)})
            break
        answer = shown(result)
        answers[int(result.get_response().id)].append(answer)
        waiting -= answer["final"]
    client.stop_stream()
    return answers


def cancel(address: str, request: dict[str, Any]) -> dict[str, Any]:
    client, arrived = open_stream(address)
    client.async_stream_infer(request["model"], inputs(request))
    for _ in range(3):
        arrived.get(timeout=SECONDS)
    client.stop_stream(cancel_requests=True)
    time.sleep(0.05)
    left = list(arrived.queue)
    return {"responses": 3 + len(left), "errors": [str(error) for _, error in left if error is not None]}


def unary(address: str, request: dict[str, Any]) -> str:
    try:
        triton.InferenceServerClient(address).infer(request["model"], inputs(request))
    except triton.InferenceServerException as error:
        return str(error)
    return ""


def config(_: str, text: str) -> dict[str, Any]:
    parsed = text_format.Parse(text, model_config_pb2.ModelConfig())
    return json_format.MessageToDict(parsed, preserving_proto_field_name=True)


ACTIONS = {"stream": stream, "cancel": cancel, "unary": unary, "config": config}

if __name__ == "__main__":
    json.dump([ACTIONS[name](sys.argv[1], value) for each in json.load(sys.stdin) for name, value in each.items()],
              sys.stdout)  # fmt: skip
