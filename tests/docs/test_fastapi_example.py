"""The FastAPI application of scripts/examples answers by its own route and by OpenAI's, as the bundle does alone."""

import importlib.util

import pytest

from speccompile import load
from tests.docs.running import ROOT

pytest.importorskip("fastapi")


def test_the_application_answers(built_demo, monkeypatch):
    from starlette.testclient import TestClient

    monkeypatch.setenv("BUNDLE", str(built_demo))
    spec = importlib.util.spec_from_file_location("fastapi_app", ROOT / "scripts/examples/fastapi_app.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with load(built_demo) as bundle:
        expected = bundle.generate("def main(", max_new_tokens=16).text
    with TestClient(module.app) as client:
        answer = client.post("/complete", json={"text": "def main(", "max_new_tokens": 16})
        assert answer.json()["text"] == expected
        body = {"model": "demo", "prompt": "def main(", "max_tokens": 16}
        assert client.post("/llm/v1/completions", json=body).json()["choices"][0]["text"] == expected
        assert client.post("/complete", json={"text": ""}).status_code == 422
