"""Streams text from a bundle in Triton Inference Server, with the standard library alone.

speccompile triton build/demo --output models && tritonserver --model-repository models
python scripts/examples/triton_client.py demo 'def main('
"""

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

SECONDS = 60
"""Without a response for so long, the client gives up."""


def stream(address: str, model: str, **inputs: Any) -> Iterator[dict[str, Any]]:
    """Yield the responses of a request as they come. Raise RuntimeError with the server's message."""
    request = urllib.request.Request(
        f"{address}/v2/models/{model}/generate_stream",
        json.dumps(inputs | {"stream": True}).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        lines = urllib.request.urlopen(request, timeout=SECONDS)
    except urllib.error.HTTPError as refused:
        lines = refused  # its body has the message
    with lines:
        for line in lines:
            if line.strip():
                yield _read(line)


def _read(line: bytes) -> dict[str, Any]:
    """Read a response. Triton writes `data: ` before all but the error of an unknown model."""
    response: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
    if "error" in response:
        raise RuntimeError(response["error"])
    return response


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("prompt")
    parser.add_argument("--address", default="http://localhost:8000")
    parser.add_argument("--max-tokens", type=int, default=64)
    args = parser.parse_args(arguments)
    last: dict[str, Any] = {}
    try:
        for response in stream(args.address, args.model, text_input=args.prompt, max_tokens=args.max_tokens):
            print(response["text_output"], end="", flush=True)
            last = response
    except (RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"\n{last['num_output_tokens']} tokens, finish reason {last['finish_reason']}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
