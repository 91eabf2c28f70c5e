"""Whatever a body holds, it is answered or refused as openapi.json says, and never with 500."""

import json
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from speccompile.serving.http import openapi
from speccompile.serving.http.fields import CHAT, COMPLETION
from tests.light.serve_example import toy_server

CHECKS = [not_a_server_error, content_type_conformance, negative_data_rejection, response_schema_conformance,
          status_code_conformance]  # fmt: skip
described = schemathesis.openapi.from_dict(json.loads(openapi.FILE.read_text(encoding="utf-8")))
QUICK = {"suppress_health_check": list(HealthCheck), "deadline": None}

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


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


@described.parametrize()
@settings(max_examples=8, **QUICK)
def test_bodies_that_fit_the_description_and_some_that_do_not(case, server):
    case.call_and_validate(base_url=server.address, checks=CHECKS, timeout=60)


@pytest.mark.sweep("10,000 requests")
@described.parametrize()
@settings(max_examples=1000, **QUICK)
def test_ten_thousand_requests_end_in_no_server_error(case, server):
    case.call_and_validate(base_url=server.address, checks=CHECKS, timeout=60)


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
