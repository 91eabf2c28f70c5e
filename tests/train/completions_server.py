"""A server of OpenAI's completions in a thread, as vLLM is one, or with less, or failing as it is told."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, dict[str, str], Any]
"""Status, headers, and the body: bytes as they are, anything else as JSON."""


@dataclass
class Completions:
    """reply: to the body of a request, the how manyth it is said with it. asked: path, headers and body of each."""

    reply: Callable[[dict[str, Any], int], Reply]
    port: int = 0
    asked: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serving(reply: Callable[[dict[str, Any], int], Reply]) -> Iterator[Completions]:
    """Yield the server, until the end."""
    served, lock = Completions(reply), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                served.asked.append((self.path, dict(self.headers), body))
                status, headers, found = reply(body, len(served.asked))
            content = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with suppress(ConnectionError):  # who asked has been interrupted
                self.wfile.write(content)

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def said(text: str, finish: str = "length", **more: Any) -> Reply:
    """Return an answer."""
    return 200, {}, {"choices": [{"index": 0, "text": text, "finish_reason": finish, **more}]}


def refused(status: int, message: str, **headers: str) -> Reply:
    """Return an error, as OpenAI writes it."""
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, {"error": {"message": message}}
