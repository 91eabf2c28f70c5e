"""The page of `speccompile serve`: how its files are served. test_page_browser.py looks at it in a browser."""

import asyncio
import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from speccompile.cli.main import group
from speccompile.serving.cluster.proxy import Proxy
from speccompile.serving.cluster.replica import Replica
from speccompile.serving.http import page_files, run
from speccompile.serving.http.app import Settings
from speccompile.serving.http.keys import Keys
from speccompile.serving.http.model import ServedModel
from tests.light.fake_bundle import write_toy_bundle
from tests.light.serve_example import chat_bundle, serving, toy_server

FILES = {entry.name: entry.read_text() for entry in files("speccompile.serving.http").joinpath("page").iterdir()}
POLICY = {
    "default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "connect-src": "'self'",
    "img-src": "'self' data:", "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'",
}  # fmt: skip
HTML_FROM_TEXT = r"innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|document\.write|srcdoc|DOMParser"


@pytest.fixture(scope="module")
def server():
    with toy_server(Settings(Keys(("secret",)))) as running:
        yield running


class Reader(HTMLParser):
    """The elements of a page, with their attributes and the text inside."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, text):
        self.texts.append((self.elements[-1][0] if self.elements else "", text.strip()))


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


@pytest.mark.parametrize("path", ["/", "/page/page.css", "/page/main.js", "/page/index.html"])
def test_files_come_without_a_key_and_with_the_headers_that_fence_them_in(server, path):
    got = server.ask("GET", path)
    kinds = {"css": "text/css", "js": "text/javascript"}
    assert got.status == 200
    assert got.headers["content-type"] == f"{kinds.get(path.rpartition('.')[2], 'text/html')}; charset=utf-8"
    policy = dict(part.strip().split(" ", 1) for part in got.headers["content-security-policy"].split(";"))
    assert policy == POLICY
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["referrer-policy"] == "no-referrer"
    assert got.data.decode() == FILES[path.rpartition("/")[2] or "index.html"]


def test_a_browser_asks_whether_a_file_has_changed_and_is_told_that_it_has_not(server):
    got = server.ask("GET", "/")
    tag = got.headers["etag"]
    assert got.headers["cache-control"] == "no-cache"
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = server.ask("GET", "/", If_None_Match=known)
        assert (again.status, again.data, again.headers["etag"]) == (304, b"", tag)
        assert again.headers["content-security-policy"] == got.headers["content-security-policy"]
    assert server.ask("GET", "/", If_None_Match='"other"').status == 200
    assert server.ask("GET", "/page/main.js").headers["etag"] != tag


def test_head_has_the_headers_alone(server):
    got, head = server.ask("GET", "/"), server.ask("HEAD", "/")
    assert (head.status, head.data) == (200, b"")
    assert head.headers["content-length"] == str(len(got.data))


@pytest.mark.parametrize("path", ["/page/", "/page/other.js", "/page/../app.py", "/page/%2e%2e%2fapp.py", "/page/a/b"])
def test_no_other_file_is_there(server, path):
    assert server.ask("GET", path).status == 404


def test_an_icon_that_browsers_ask_for_is_no_error(server):
    assert server.ask("GET", "/favicon.ico").status == 204


def test_what_the_page_asks_needs_the_key(server):
    for path in ("/v1/models", "/bundle"):
        assert server.ask("GET", path).error["code"] == "invalid_api_key"
        assert server.ask("GET", path, Authorization="Bearer secret").status == 200


def test_the_page_is_there_before_the_model():
    with serving(ServedModel("toy")) as running:
        assert running.ask("GET", "/").status == 200
        assert running.ask("GET", "/bundle").error["code"] == "loading"


def test_without_the_page_there_is_nothing():
    with toy_server(Settings(page=False)) as running:
        for path in ("/", "/page/main.js", "/favicon.ico"):
            assert running.ask("GET", path).status == 404
        assert running.ask("GET", "/bundle").status == 200


@pytest.mark.parametrize(("options", "has_page"), [([], True), (["--no-page"], False)])
def test_the_option_leaves_it_out(tmp_path, monkeypatch, options, has_page):
    seen = []
    monkeypatch.setattr(run, "serve", lambda model, settings, listening, *_, **__: seen.append((settings, listening)))
    group.main(["serve", str(write_toy_bundle(tmp_path / "toy")), "--port", "0", *options], standalone_mode=False)
    ((settings, listening),) = seen
    listening.close()
    assert settings.page is has_page


def test_the_page_runs_nothing_that_stands_in_it_and_names_no_other_host():
    page = read(FILES["index.html"])
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        for name in ("src", "href", "action"):
            assert re.match(r"page/[a-z]+\.(css|js)$|#|data:image/svg", attributes.get(name) or "#"), attributes
    assert all(not text for tag, text in page.texts if tag in ("script", "style"))
    for name, text in FILES.items():
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)\w", text), name


def test_no_text_becomes_html():
    for name, text in FILES.items():
        if name.endswith(".js"):
            assert not re.search(HTML_FROM_TEXT + r"|\beval\b|new Function|setTimeout\(\s*[\"'`]", text), name


def test_every_file_is_used_and_every_import_is_there():
    used = set(re.findall(r"page/([a-z]+\.\w+)", FILES["index.html"]))
    used |= {name for text in FILES.values() for name in re.findall(r'from "\./([a-z]+\.js)"', text)}
    assert used | {"index.html"} == set(FILES)
    assert {name.rpartition(".")[2] for name in FILES} <= page_files._TYPES.keys()
    assert max(len(text.splitlines()) for text in FILES.values()) <= 300


def test_fields_and_buttons_have_names():
    page = read(FILES["index.html"])
    labels = {attributes.get("for") for tag, attributes in page.elements if tag == "label"}
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in page.elements:
        if tag in ("select", "textarea") or (tag == "input" and attributes["type"] != "checkbox"):
            assert attributes["id"] in labels
        for name in ("aria-labelledby", "aria-describedby"):
            assert attributes.get(name, ids[0]) in ids


def test_it_also_comes_from_a_replica_of_a_cluster():
    """Forward everything but /metrics to a replica, as the proxy of `speccompile ray serve` does, and return its
    messages."""

    class Handle:
        def __init__(self, replica):
            self.ask = self
            self.replica = replica

        def options(self, **_):
            return self

        def remote(self, key, scope, body):
            return self.replica.ask(key, scope, body)

    class Local(Replica):
        def __init__(self, model):
            self._begin(model, Settings())

    model = ServedModel("toy")
    model.start(chat_bundle())
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/page/main.js", "query_string": b"", "headers": []}
    asyncio.run(Proxy(Handle(Local(model)), 1000, BlockingIOError)(scope, receive, send))
    assert sent[0]["status"] == 200
    assert b"".join(message.get("body", b"") for message in sent[1:]).decode() == FILES["main.js"]
