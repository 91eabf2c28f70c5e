"""Whatever a body holds, it is answered or refused as openapi.json says, and never with 500."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speccompile.serving.http import openapi
from speccompile.serving.http.fields import CHAT, COMPLETION
from tests.light.serve_example import toy_server

ROOT = Path(__file__).resolve().parents[2]
QUICK = {"suppress_health_check": list(HealthCheck), "deadline": None}

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
OPERATIONS = [(path, method) for path, methods in openapi.document()["paths"].items() for method in methods]


@pytest.fixture(scope="module")
def server():
    with toy_server(sampling=True, batch_size=4) as running:
        yield running


def test_the_file_is_what_the_code_says():
    assert openapi.FILE.read_text(encoding="utf-8") == openapi.written()


def test_all_that_is_served_is_described():
    from speccompile.serving.http.app import Settings, make_app
    from speccompile.serving.http.model import ServedModel

    served = {route.path.replace(":path", "") for route in make_app(ServedModel("toy"), Settings(page=False)).routes}
    assert served - {"/openapi.json"} == set(openapi.document()["paths"])


def ask_as_described(examples: int, *, limits: bool) -> None:
    """Run described_requests.py in a process of its own: pytest's plugin of schemathesis makes hundreds of requests
    where tests are collected, in every process that collects them."""
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--noconftest", "-p", "no:cacheprovider"]
    command += ["--rootdir", str(ROOT), "tests/light/described_requests.py"]
    settings = {"SPECCOMPILE_TEST_EXAMPLES": str(examples), "SPECCOMPILE_TEST_LIMITS": str(int(limits))}
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout[-8000:]
    assert f"{len(OPERATIONS)} passed" in done.stdout


def test_bodies_that_fit_the_description_and_some_that_do_not():
    ask_as_described(8, limits=False)


@pytest.mark.sweep("11,000 requests")
def test_ten_thousand_requests_end_in_no_server_error():
    ask_as_described(1000, limits=True)


@given(
    path=st.sampled_from([("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)]),
    data=st.data(),
)
@settings(max_examples=60, **QUICK)
def test_known_fields_of_any_value(server, path, data):
    where, schema = path
    right = {"prompt": "x", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
    names = st.sampled_from(sorted({*schema["properties"], "logit_bias", "tools", "response_format", "suffix"}))
    body = {name: right[name] for name in right if name in schema["properties"]}
    answered = server.ask("POST", where, body | data.draw(st.dictionaries(names, anything, max_size=4)))
    assert answered.status in (200, 400, 404)


@given(st.binary(max_size=200))
@settings(max_examples=40, **QUICK)
def test_any_bytes(server, body):
    assert server.ask("POST", "/v1/completions", body).status == 400


def test_the_description_ships():
    pyproject = Path(openapi.__file__).parents[3] / "pyproject.toml"
    assert '"speccompile.serving.http" = ["openapi.json", "page/*"]' in pyproject.read_text(encoding="utf-8")
