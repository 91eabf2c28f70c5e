"""Servers over toy bundles, in a thread of the test's process, and how to ask them."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from speccompile.errors import UsageError
from speccompile.runtime import Bundle
from speccompile.runtime.text.tokenizer import Tokenizer
from speccompile.serving.http.app import Settings, make_app
from speccompile.serving.http.connection_limits import ConnectionLimits
from speccompile.serving.http.model import ServedModel
from speccompile.serving.http.run import ListenAddress, configure, listen
from speccompile.serving.scheduler import Limits, Request
from tests.light.fake_bundle import toy_manifest, toy_tokenizer
from tests.light.toy_engine import ToyEngine

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message.role }}:{{ message.content }}\n{% endfor %}"
    "{% if tone %}{{ tone }}{% endif %}{% if add_generation_prompt %}assistant:{% endif %}"
)


@cache
def toy_text() -> Tokenizer:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        toy_tokenizer().save(str(file))
        return Tokenizer(file)


def chat_bundle(*, text: bool = True, chat: bool = True, **changes: Any) -> Bundle:
    """Return a toy bundle that lies in no folder, with a tokenizer and a chat template."""
    made = toy_manifest(**changes)
    template = (TEMPLATE, {"bos_token": "<s>", "eos_token": "</s>"}) if chat else None
    return Bundle(made, ToyEngine(made), made.engines[0], toy_text() if text else None, template)


@dataclass
class Answered:
    """A response, read to its end."""

    status: int
    headers: http.client.HTTPMessage
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def error(self) -> dict[str, Any]:
        """Return the error of a response that has nothing else, and all its keys."""
        assert list(self.json) == ["error"]
        assert list(self.json["error"]) == ["message", "type", "param", "code"]
        return self.json["error"]

    @property
    def events(self) -> list[Any]:
        """Return the data of server-sent events, up to [DONE]."""
        *events, done = self.data.decode().removesuffix("\n\n").split("\n\n")
        assert done == "data: [DONE]"
        return [json.loads(event.removeprefix("data: ")) for event in events]


@dataclass
class Running:
    """A server that listens."""

    address: str
    model: ServedModel

    @contextmanager
    def asked(self, method: str, path: str, body: Any = None, **headers: str) -> Iterator[http.client.HTTPResponse]:
        """Yield a response whose body is not read yet."""
        where = urlsplit(self.address)
        connection = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        headers = {"Content-Type": "application/json"} | {name.replace("_", "-"): it for name, it in headers.items()}
        try:
            connection.request(method, path, data, headers)
            yield connection.getresponse()
        finally:
            connection.close()

    @contextmanager
    def asked_without_answer(self, path: str, body: Any) -> Iterator[None]:
        """Yield a request whose client hangs up at the end, whatever has come."""
        where, data = urlsplit(self.address), json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
        with socket.create_connection((where.hostname, where.port)) as connection:
            connection.sendall(head.encode() + b"\r\n\r\n" + data)
            yield

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answered:
        with self.asked(method, path, body, **headers) as response:
            return Answered(response.status, response.headers, response.read())

    def post(self, path: str, **body: Any) -> Answered:
        return self.ask("POST", path, body)

    def complete(self, prompt: Any = "def", **body: Any) -> Answered:
        return self.post("/v1/completions", prompt=prompt, **body)

    def chat(self, content: Any = "def", **body: Any) -> Answered:
        return self.post("/v1/chat/completions", messages=[{"role": "user", "content": content}], **body)


@contextmanager
def serving(
    model: ServedModel, settings: Settings | None = None, connections: ConnectionLimits | None = None
) -> Iterator[Running]:
    """Yield a server over a model, whatever its state, on a free port."""
    listening, address = listen(ListenAddress(port=0))
    server = uvicorn.Server(configure(make_app(model, settings), connections or ConnectionLimits(), grace=10))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield Running(address, model)
    finally:
        server.should_exit = True
        thread.join()
        model.close(10)


@contextmanager
def toy_server(settings: Settings | None = None, limits: Limits | None = None, **changes: Any) -> Iterator[Running]:
    """Yield a server over a toy bundle of the name `toy`."""
    model = ServedModel("toy", limits)
    model.start(chat_bundle(**changes))
    with serving(model, settings) as running:
        yield running


class Puppet:
    """A service whose requests are answered by the test. Only what HTTP asks of a service is here."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.asked: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self.failure: Exception | None = None
        self.came = threading.Semaphore(0)
        """Released for every request."""

    def submit(self, prompt: list[int], **options: Any) -> Request:
        if self.error is not None:
            raise self.error
        request = Request(options.get("num_return_sequences", 1))
        self.requests.append(request)
        self.asked.append({"prompt": prompt} | options)
        self.came.release()
        return request

    def close(self, *, drain: bool = True, timeout: float | None = None) -> None:
        pass


@contextmanager
def puppet_server(settings: Settings | None = None, **changes: Any) -> Iterator[tuple[Running, Puppet]]:
    """Yield a server whose service does what the test says."""
    model, puppet, bundle = ServedModel("toy"), Puppet(), chat_bundle(**changes)
    bundle.serve = lambda limits, observer, sessions: puppet  # type: ignore[method-assign,assignment,return-value]
    model.start(bundle)
    with serving(model, settings) as running:
        yield running, puppet


def asked(
    running: Running, puppet: Puppet, path: str = "/v1/completions", **body: Any
) -> tuple[list[int], dict[str, Any]]:
    """Return what the service is asked for a body; no answer is waited for."""
    puppet.error = UsageError("seen")
    given = {"prompt": "def"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "def"}]}
    seen = []
    puppet.submit = lambda prompt, **options: seen.append((prompt, options)) or Puppet.submit(puppet, prompt)
    assert running.ask("POST", path, given | body).error["message"] == "seen"
    (found,) = seen
    return found


def status_over_unix(path: Path) -> int:
    """Return the status of GET /version over a Unix socket."""
    connection = http.client.HTTPConnection("unix")
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.connect(str(path))
    connection.request("GET", "/version")
    status = connection.getresponse().status
    connection.close()
    return status
