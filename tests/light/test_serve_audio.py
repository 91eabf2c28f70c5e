"""Forms of /v1/audio/transcriptions and translations: parts, fields, and what is refused."""

import pytest

from speccompile.serving.http.audio import audio_request
from speccompile.serving.http.errors import RequestError
from speccompile.serving.http.multipart import read_form

MEDIA = "multipart/form-data; boundary=XX"


def form(*parts):
    """Return the body of a form: names with values, bytes for a file."""
    found = b""
    for name, value in parts:
        is_file = isinstance(value, bytes)
        found += b'--XX\r\nContent-Disposition: form-data; name="%s"' % name.encode()
        found += b'; filename="a \\"b\\".wav"\r\nContent-Type: audio/wav' if is_file else b""
        found += b"\r\n\r\n" + (value if is_file else value.encode()) + b"\r\n"
    return found + b"--XX--\r\n"


def test_parts_of_a_form_keep_every_byte():
    data = bytes(range(256)) + b"\r\n\r\n--X\r\n"
    first, second = read_form(form(("file", data), ("model", "ü")), 'multipart/form-data; boundary="XX"')
    assert (first.name, first.filename, first.data) == ("file", 'a "b".wav', data)
    assert (second.filename, second.text) == (None, "ü")


def test_a_boundary_and_a_name_are_those_that_came_first():
    """Read what the runtime in C++ reads: the header's bytes, and the first of several names."""
    body = '--é\r\nContent-Disposition: form-data; name="a"; name="b"\r\n\r\nx\r\n--é--'.encode()
    assert read_form(body, MEDIA.replace("XX", "é".encode().decode("latin-1"))) == [("a", None, b"x")]


DAMAGED = [
    (b"", MEDIA, "does not end with its boundary"),
    (form(("file", b"x"))[:-6], MEDIA, "does not end with its boundary"),
    (form(("file", b"x")), "multipart/form-data", "Content-Type without a boundary"),
    (b"--XX\r\nA: b\r\n\r\nx\r\n--XX--\r\n", MEDIA, "a part of the form has no name"),
    (form(*[("a", "b")] * 70), MEDIA, "more than 64 fields"),
    (b'--XX\r\nContent-Disposition: form-data; name="model"\r\n\r\nw\r\n--XX--', MEDIA, "file: received 0 files"),
]
"""Bodies that are no forms, and what is said about them."""


@pytest.mark.parametrize(("body", "media", "message"), DAMAGED)
def test_damaged_forms_are_refused(body, media, message):
    with pytest.raises(RequestError, match=message):
        audio_request(body, media, "transcribe")


def test_fields_are_read():
    asked = audio_request(
        form(("file", b"RIFF"), ("model", "w"), ("language", "de"), ("temperature", "0.4"), ("prompt", ""),
             ("timestamp_granularities[]", "segment"), ("response_format", "verbose_json"), ("stream", "false")),
        MEDIA, "transcribe",
    )  # fmt: skip
    assert (asked.sound, asked.model, asked.language, asked.prompt) == (b"RIFF", "w", "de", None)
    assert (asked.temperature, asked.form, asked.stream) == (0.4, "verbose_json", False)
    assert audio_request(form(("file", b"x")), MEDIA, "translate").form == "json"


WRONG = [
    ((), "file: received 0 files, expected one sound"),
    ((("file", b""),), "file: received an empty file"),
    ((("file", b"x"), ("language", "de"), ("language", "en")), "language: received 2 values, expected one"),
    ((("file", b"x"), ("response_format", "xml")), "response_format: received 'xml', expected one of json, text"),
    ((("file", b"x"), ("temperature", "hot")), "temperature: received 'hot', expected a number from 0 to 1"),
    ((("file", b"x"), ("temperature", " 0.5")), "temperature: received ' 0.5', expected a number from 0 to 1"),
    ((("file", b"x"), ("temperature", "\u0661")), "temperature: received '\u0661', expected a number from 0 to 1"),
    ((("file", b"x"), ("", "x")), "^: there is no such field"),
    ((("file", b"x"), ("timestamp_granularities[]", "word")), "received another than 'segment'"),
    ((("file", b"x"), ("stream", "yes")), "stream: expected true or false"),
    ((("file", b"x"), ("stream", "true"), ("response_format", "srt")), "true with the formats json and text"),
    ((("file", b"x"), ("include[]", "logprobs")), "include\\[\\]: there is no such field"),
    ((("file", b"x"), ("model", b"\xff")), "model: received bytes that are not UTF-8"),
]
"""Fields that are wrong, and what is said about them."""


@pytest.mark.parametrize(("parts", "message"), WRONG)
def test_wrong_fields_are_named(parts, message):
    with pytest.raises(RequestError, match=message) as caught:
        audio_request(form(*parts), MEDIA, "transcribe")
    assert (caught.value.status, caught.value.to_json()["error"]["type"]) == (400, "invalid_request_error")


def test_translations_have_no_language():
    with pytest.raises(RequestError, match="language: there is no such field"):
        audio_request(form(("file", b"x"), ("language", "de")), MEDIA, "translate")
