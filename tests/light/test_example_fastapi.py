"""The application of scripts/examples/fastapi_app.py, by FastAPI's own test client."""

import runpy
from pathlib import Path

import pytest

from tests.light.serve_example import chat_bundle

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install fastapi")
try:
    from fastapi.testclient import TestClient
except (ImportError, RuntimeError) as error:  # starlette raises the second
    pytest.skip(f"FastAPI's test client lacks a package: {error}", allow_module_level=True)

EXAMPLE = Path(__file__).resolve().parents[2] / "scripts/examples/fastapi_app.py"
SIZES = {"batch_size": 2}


@pytest.fixture
def client():
    create_app = runpy.run_path(str(EXAMPLE))["create_app"]
    with TestClient(create_app(chat_bundle(**SIZES))) as client:
        yield client


@pytest.fixture
def expected():
    """Return the bundle's own generation."""
    with chat_bundle(**SIZES) as bundle:
        return bundle.generate("def", max_new_tokens=6)


def test_an_answer_and_a_stream_have_the_text_of_the_bundle(client, expected):
    body = {"prompt": "def", "max_new_tokens": 6}
    answer = client.post("/continue", json=body).json()
    assert (answer["text"], answer["tokens"]) == (expected.text, 6)
    assert answer["acceptance_length"] >= 1
    assert client.post("/continue/stream", json=body).text == expected.text


def test_openais_api_is_beside_it(client, expected):
    assert client.get("/openai/v1/models").json()["data"][0]["id"] == "bundle"
    answer = client.post("/openai/v1/completions", json={"prompt": "def", "max_tokens": 6, "temperature": 0})
    assert answer.json()["choices"][0]["text"] == expected.text


def test_a_refused_prompt_has_a_status_and_a_hint(client):
    for path in ("/continue", "/continue/stream"):
        refused = client.post(path, json={"prompt": "def " * 5000})
        assert refused.status_code == 400
        assert refused.json()["hint"]
    assert client.post("/continue", json={"prompt": "def", "max_new_tokens": 0}).status_code == 422


def test_the_application_closes_the_bundle_that_it_serves(client):
    bundle = chat_bundle(**SIZES)
    create_app = runpy.run_path(str(EXAMPLE))["create_app"]
    with TestClient(create_app(bundle)) as other:
        assert other.post("/continue", json={"prompt": "def"}).status_code == 200
    with pytest.raises(Exception, match="closed"):
        bundle.generate("def")
