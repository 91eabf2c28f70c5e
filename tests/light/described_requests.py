"""Requests that schemathesis makes of openapi.json, and their answers. tests/light/test_serve_fuzz.py runs this file.

$SPECCOMPILE_TEST_EXAMPLES: how many are drawn for each operation. $SPECCOMPILE_TEST_LIMITS: 1 adds the limits of all
fields, over a thousand requests."""

import json
import os

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from speccompile.serving.http import openapi
from tests.light.test_serve_fuzz import server

__all__ = ["server"]  # a fixture

CHECKS = [not_a_server_error, content_type_conformance, negative_data_rejection, response_schema_conformance,
          status_code_conformance]  # fmt: skip
EXAMPLES = int(os.environ["SPECCOMPILE_TEST_EXAMPLES"])
described = schemathesis.openapi.from_dict(json.loads(openapi.FILE.read_text(encoding="utf-8")))
described.config.phases.coverage.enabled = os.environ["SPECCOMPILE_TEST_LIMITS"] == "1"


@described.parametrize()
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None, database=None)
def test_an_answer_is_as_described(case, server):
    case.call_and_validate(base_url=server.address, checks=CHECKS, timeout=60)
