"""Constraints over the C ABI: sessions and schedulers give the tokens of Python's runtime, refuse what they lack."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from speccompile.errors import UsageError
from speccompile.runtime import Bundle
from tests.native.native_api import NativeBundle, NativeRequest
from tests.native.native_service import NativeService
from tests.native.toy_onnx import write_arithmetic_bundle

PROMPT = "some text"
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 22]}}, "required": ["a"], "additionalProperties": False}
KINDS: list[tuple[str, Any, str]] = [
    ("choice", ["yes", "no, never"], '["yes", "no, never"]'),
    ("regex", "[a-c]{3,9}", "[a-c]{3,9}"),
    ("json_schema", SCHEMA, json.dumps(SCHEMA)),
    ("json_object", "", ""),
    ("grammar", 'start: "a" ("b" | "cd")+ "e"', 'start: "a" ("b" | "cd")+ "e"'),
]
WRONG = [
    ("json", "", "received the kind 'json', expected one of json_schema, json_object, regex, grammar, choice"),
    ("json_object", "{}", "constraint json_object: received a text of 2 bytes, expected none"),
    ("regex", b"\xff", "constraint regex: received a text that is no UTF-8"),
    ("choice", "yes", "constraint choice: the texts are no JSON"),
    ("choice", '["yes", 1]', 'received ["yes", 1], expected a list of texts'),
]
REFUSED = [
    ("choice", "[]", "expected one text or more, none of them empty"),
    ("regex", "", "expected a text"),
    ("regex", "(", "constraint regex: this runtime does not take it"),
    ("json_schema", "{", "the schema is no JSON"),
    ("json_schema", '{"type": "string", "format": "nothing"}', "this runtime does not take it"),
    ("grammar", "a" * 65537, "received a constraint of 65537 bytes, expected at most 65536: the limit grammar_bytes"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("constrained")
    return write_arithmetic_bundle(made / "b", constrained=True, eos_token_ids=(257,))


@pytest.fixture(scope="module")
def bundle(folder) -> Bundle:
    return Bundle.open(folder, threads=1)


@pytest.fixture(scope="module")
def native(folder, native_library, onnxruntime_library) -> NativeBundle:
    return NativeBundle(folder, library=native_library, onnxruntime=onnxruntime_library, threads=1)


@pytest.fixture(scope="module")
def service(native) -> Iterator[NativeService]:
    made = NativeService(native)
    yield made
    made.close()


@pytest.mark.parametrize(("kind", "python", "text"), KINDS, ids=[kind for kind, _, _ in KINDS])
def test_tokens_are_python_s(bundle, native, service, kind: str, python: Any, text: str):
    expected = bundle.generate(PROMPT, max_new_tokens=30, constraint=bundle.grammars.compile(kind, python))
    (found,) = native.session().generate([PROMPT], max_new_tokens=30, constraint=(kind, text))
    served = service.generate(PROMPT, [], max_new_tokens=30, constraint=(kind, text))
    for each in (found, served):
        assert (each["text"], each["token_ids"], each["finish_reason"]) == (
            expected.text, expected.token_ids, expected.finish_reason)  # fmt: skip
    assert expected.text != bundle.generate(PROMPT, max_new_tokens=30).text


@pytest.mark.parametrize(("kind", "text", "message"), WRONG)
def test_what_is_no_constraint_is_refused_at_once(native, kind, text, message):
    with pytest.raises(UsageError) as found:
        NativeRequest(native.library, [PROMPT], [], {"constraint": (kind, text)})
    assert message in str(found.value)


@pytest.mark.parametrize(("kind", "text", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_compiled_is_refused_where_it_is_taken(native, service, kind, text, message):
    with pytest.raises(UsageError) as one:
        native.session().generate([PROMPT], constraint=(kind, text))
    with pytest.raises(UsageError) as other:
        service.generate(PROMPT, [], constraint=(kind, text))
    assert str(one.value) == str(other.value)
    assert message in str(one.value)


def test_a_constraint_is_taken_away_and_needs_a_bundle_that_takes_it(
    bundle, native, native_library, onnxruntime_library, tmp_path
):
    request = NativeRequest(native.library, [PROMPT], [], {"constraint": ("choice", '["a"]'), "max_new_tokens": 9})
    native.library.spc_request_set_constraint(request.handle, None, None, 0)
    session = native.session()
    session.library.spc_session_start(session.handle, request.handle)
    while not session.step():
        pass
    assert session.result_tokens() == bundle.generate(PROMPT, max_new_tokens=9).token_ids
    free = write_arithmetic_bundle(tmp_path / "free")
    other = NativeBundle(free, library=native_library, onnxruntime=onnxruntime_library)
    with pytest.raises(UsageError, match="this bundle was built without constraints"):
        other.session().generate([PROMPT], constraint=("regex", "a"))
