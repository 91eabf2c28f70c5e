"""The client of scripts/examples/triton_client.py, against a server that answers as Triton does.

tests/native/test_triton_server.py has the real one."""

import json
import runpy
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "scripts/examples/triton_client.py"
PIECES = [
    {"model_name": "demo", "text_output": "\n  ", "output_ids": 262},
    {
        "model_name": "demo",
        "text_output": "return é",
        "output_ids": [5, 6],
        "num_output_tokens": 3,
        "finish_reason": "length",
    },
]


class Handler(BaseHTTPRequestHandler):
    """Streams `pieces` of the server, or refuses models of another name than `demo`; the status of a stream is that of
    its first piece."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        known = self.path == "/v2/models/demo/generate_stream"
        self.send_response(200 if known and "error" not in self.server.pieces[0] else 400)
        self.end_headers()
        if known:
            for piece in self.server.pieces:
                self.wfile.write(f"data: {json.dumps(piece)}\n\n".encode())
        else:
            self.wfile.write(b'{"error":"Request for unknown model"}')

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.asked, server.pieces = [], PIECES
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def run(server):
    main = runpy.run_path(str(EXAMPLE))["main"]
    return lambda *arguments: main([*arguments, "--address", f"http://127.0.0.1:{server.server_port}"])


def test_pieces_are_written_as_they_come(server, run, capsys):
    assert run("demo", "def main(", "--max-tokens", "3") == 0
    assert capsys.readouterr() == ("\n  return é", "\n3 tokens, finish reason length\n")
    path, body = server.asked[0]
    assert path == "/v2/models/demo/generate_stream"
    assert body == {"text_input": "def main(", "max_tokens": 3, "stream": True}


def test_errors_of_the_server_end_it(server, run, capsys):
    assert run("other", "x") == 1
    assert capsys.readouterr() == ("", "error: Request for unknown model\n")
    server.pieces = [{"error": "max_new_tokens is 0"}]
    assert run("demo", "x") == 1
    assert capsys.readouterr() == ("", "error: max_new_tokens is 0\n")
    server.pieces = [PIECES[0], {"error": "the prompt is too long (hint: shorten it)"}]
    assert run("demo", "x") == 1
    assert capsys.readouterr() == ("\n  ", "error: the prompt is too long (hint: shorten it)\n")


def test_a_server_that_is_not_there_is_told(capsys):
    main = runpy.run_path(str(EXAMPLE))["main"]
    assert main(["demo", "x", "--address", "http://127.0.0.1:1"]) == 1  # where nothing listens
    said = capsys.readouterr()
    assert (said.out, said.err.startswith("error: ")) == ("", True)
