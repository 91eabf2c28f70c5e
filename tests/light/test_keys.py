"""API keys: nothing but a whole key is one."""

import hashlib

import pytest

from speccompile.serving.http.app import Settings
from speccompile.serving.http.errors import RequestError
from speccompile.serving.http.keys import Keys, read_keys
from tests.light.serve_example import puppet_server

KEY, OTHER = "sk-0123456789abcdef", "sk-0123456789abcdeg"
"""As long as each other, and the same but for the last character."""
SHORT = "k1"


def changed(key: str, place: int) -> str:
    """Return the key with another character at a place."""
    return key[:place] + chr(ord(key[place]) ^ 1) + key[place + 1 :]


WRONG = {
    "nothing": "",
    "a suffix": f"{KEY}x",
    "a suffix of a zero": f"{KEY}\0",
    "a suffix of itself": KEY + KEY,
    "a prefix": f"x{KEY}",
    "only its beginning": KEY[:-1],
    "only its first eight": KEY[:8],
    "only its end": KEY[1:],
    "another case": KEY.upper(),
    "a space within": f"{KEY[:5]} {KEY[5:]}",
    "two keys": f"{KEY} {SHORT}",
    "a list of keys": f"{KEY},{SHORT}",
    "the last of another": OTHER,
    "a short one and more": f"{SHORT}{KEY}",
    "a star": "*",
    **{f"another character at {place}": changed(KEY, place) for place in range(len(KEY))},
}


@pytest.fixture(scope="module")
def keys() -> Keys:
    return Keys((SHORT, KEY, "zwölf"))


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_what_is_no_whole_key_is_refused(keys, wrong, scheme):
    with pytest.raises(RequestError) as caught:
        keys.authenticate(f"{scheme} {WRONG[wrong]}")
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    assert caught.value.headers == {"WWW-Authenticate": "Bearer"}
    assert "an API key that is not known" in str(caught.value)
    assert KEY not in str(caught.value)


def test_one_key_s_wrong_ends_are_not_another_s():
    """Limit each of two keys that begin alike: neither opens for a third."""
    alike = Keys((KEY, f"{KEY}-more"))
    for right in alike.keys:
        assert alike.authenticate(f"Bearer {right}")
    for wrong in (f"{KEY}-", f"{KEY}-mor", f"{KEY}-morf", f"{KEY}-more2"):
        with pytest.raises(RequestError):
            alike.authenticate(f"Bearer {wrong}")


@pytest.mark.parametrize("scheme", ["", "Basic ", "Bearer", "Token ", "Bear ", "Bearers ", "x Bearer ", "Bearer\t"])
def test_a_key_under_another_scheme_is_refused(keys, scheme):
    for header in (scheme, scheme + KEY):
        with pytest.raises(RequestError):
            keys.authenticate(header)


def test_who_sends_nothing_is_told_so(keys):
    with pytest.raises(RequestError) as caught:
        keys.authenticate(None)
    assert caught.value.status == 401
    assert "received no API key" in str(caught.value)


@pytest.mark.parametrize("key", [SHORT, KEY, "zwölf"])
def test_every_key_has_a_client_of_its_own(keys, key):
    given = key.encode().decode("latin-1")  # as servers read a header
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    for header in (f"Bearer {given}", f"bearer {given}", f"BEARER   {given} "):
        assert keys.authenticate(header) == name


def test_without_keys_everybody_is_nobody():
    for header in (None, "", f"Bearer {KEY}"):
        assert Keys().authenticate(header) == ""


def test_over_http():
    with puppet_server(Settings(Keys((SHORT, KEY)))) as (running, _):
        for key in (SHORT, KEY):
            assert running.ask("GET", "/v1/models", Authorization=f"Bearer {key}").status == 200
        for name in set(WRONG) - {"a suffix of a zero"}:  # which no header can have
            answered = running.ask("GET", "/v1/models", Authorization=f"Bearer {WRONG[name]}")
            assert (answered.status, answered.error["code"]) == (401, "invalid_api_key"), name


def test_a_file_s_lines():
    lines = ["# keys", "one", "", "  # two", "  three  ", "four # five", "\t", "six#", "one"]
    assert read_keys(lines) == ("one", "three", "four # five", "six#", "one")
    assert read_keys([]) == ()
