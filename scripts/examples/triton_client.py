"""Stream text from a bundle in Triton Inference Server.

pip install 'tritonclient[grpc]'
speccompile triton build/demo --output models && tritonserver --model-repository models
python scripts/examples/triton_client.py --prompt 'def read_file(path):'
"""

import argparse
import queue

import numpy as np
from tritonclient import grpc


def stream(url: str, model: str, prompt: str, max_tokens: int) -> None:
    """Print pieces of text as they come. Raise tritonclient's InferenceServerException for what the model refuses."""
    text = grpc.InferInput("text_input", [1, 1], "BYTES")
    text.set_data_from_numpy(np.array([[prompt.encode()]], object))
    limit = grpc.InferInput("max_tokens", [1, 1], "INT32")
    limit.set_data_from_numpy(np.array([[max_tokens]], np.int32))
    streaming = grpc.InferInput("stream", [1, 1], "BOOL")
    streaming.set_data_from_numpy(np.array([[True]]))
    answers: queue.Queue = queue.Queue()
    with grpc.InferenceServerClient(url) as client:
        client.start_stream(lambda result, error: answers.put(error or result))
        client.async_stream_infer(model, [text, limit, streaming], enable_empty_final_response=True)
        while True:
            answer = answers.get()
            if isinstance(answer, Exception):
                raise answer
            if answer.get_response().parameters["triton_final_response"].bool_param:
                break
            (piece,) = answer.as_numpy("text_output").ravel()
            print(piece.decode(), end="", flush=True)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="localhost:8001", help="of gRPC (%(default)s)")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--prompt", default="def read_file(path):")
    parser.add_argument("--max-tokens", type=int, default=48)
    given = parser.parse_args()
    stream(given.url, given.model, given.prompt, given.max_tokens)


if __name__ == "__main__":
    main()
