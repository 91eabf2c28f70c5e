#!/usr/bin/env python3
"""Serve a model to load.py by OpenVINO GenAI's continuous batching, the engine inside OpenVINO Model Server.

    peers/openvino/bin/python scripts/serving/openvino_engine.py convert MODEL FOLDER
    peers/openvino/bin/python scripts/serving/openvino_engine.py serve FOLDER --port N --rows N --threads N

It runs in the environment that `scripts/peers/setup` makes, and replaces OpenVINO Model Server, which comes as a
container. It offers streams of /v1/completions only. The settings are that server's defaults: prefix caching, 256
tokens in a step, keys and values in the processor's default precision. `convert` writes the model in 4 bits with groups
of 128, its head too: the smallest of the formats of scripts/peers/run.py.
"""

import argparse
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

FORM = "int4, group 128, head too"


def opened(folder: Path, rows: int, threads: int) -> tuple[Any, Any]:
    """Return the library and a pipeline over a converted model."""
    import openvino_genai

    scheduled = openvino_genai.SchedulerConfig()
    scheduled.max_num_seqs, scheduled.enable_prefix_caching = rows, True
    settings = {"INFERENCE_NUM_THREADS": threads}
    return openvino_genai, openvino_genai.ContinuousBatchingPipeline(str(folder), scheduled, "CPU", settings)


def generation_config(library: Any, tokens: int) -> Any:
    """Return the generation config of a greedy request for `tokens` new tokens."""
    config = library.GenerationConfig()
    config.max_new_tokens, config.ignore_eos, config.do_sample = tokens, True, False
    config.apply_chat_template = False
    config.eos_token_id, config.stop_token_ids = 0, {0}  # ignored, but refused where the model has none
    return config


class Engine:
    """A pipeline, and the thread that steps it."""

    def __init__(self, folder: Path, rows: int, threads: int) -> None:
        self._library, self._pipeline = opened(folder, rows, threads)
        self._numbers, self._tokenizer = count(), self._pipeline.get_tokenizer()
        self._changed = threading.Condition()
        self._asked: list[tuple[Any, SimpleQueue[list[int] | None]]] = []
        threading.Thread(target=self._run, daemon=True).start()

    def tokens(self, prompt: str, most: int) -> Iterator[tuple[int, str]]:
        """Yield the number and the text of tokens that arrive together."""
        config, given = generation_config(self._library, most), SimpleQueue[list[int] | None]()
        with self._changed:
            self._asked.append((self._pipeline.add_request(next(self._numbers), prompt, config), given))
            self._changed.notify()
        while (found := given.get()) is not None:
            yield len(found), self._tokenizer.decode(found)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._asked))
            self._pipeline.step()
            with self._changed:
                asked = list(self._asked)
            for each in asked:
                handle, given = each
                while handle.can_read():
                    for output in handle.read().values():
                        given.put(list(output.generated_ids))
                if handle.get_status() != self._library.GenerationStatus.RUNNING:
                    given.put(None)
                    with self._changed:
                        self._asked.remove(each)


def handler(engine: Engine) -> type[BaseHTTPRequestHandler]:
    """Return the request handler: /health, and streams of /v1/completions."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            total = 0
            for number, text in engine.tokens(body["prompt"], body["max_tokens"]):
                total += number
                self._event({"choices": [{"index": 0, "text": text}]})
            self._event({"choices": [], "usage": {"completion_tokens": total}})
            self.wfile.write(b"data: [DONE]\n\n")

        def _event(self, event: dict[str, Any]) -> None:
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")

        def log_message(self, *values: object) -> None:
            pass

    return Handler


class Server(ThreadingHTTPServer):
    """Server with a queue that is long enough for the connections of load.py."""

    request_queue_size = 256
    daemon_threads = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    converting, serving = commands.add_parser("convert"), commands.add_parser("serve")
    converting.add_argument("model", type=Path)
    for each in (converting, serving):
        each.add_argument("folder", type=Path, help="of the converted model")
    for name in ("--port", "--rows", "--threads"):
        serving.add_argument(name, type=int, required=True)
    args = parser.parse_args()
    if args.command == "serve":
        engine = Engine(args.folder, args.rows, args.threads)
        Server(("127.0.0.1", args.port), handler(engine)).serve_forever()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))
    from peer_openvino import FORMS, prepare_with_tokenizer

    prepare_with_tokenizer(args.model, args.folder, FORMS[FORM])


if __name__ == "__main__":
    main()
