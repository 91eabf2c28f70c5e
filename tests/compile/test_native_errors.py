"""Every bad input of the tests of Python's runtime, over the C ABI: the same kind of error, and the same words where
both have them. The library itself prints nothing.

Broken manifests and hashes are compared one by one in test_native_bundle.py; here they are opened as a bundle is.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from speccompile.bundle.manifest import CHAT, TOKENIZER
from speccompile.runtime import Bundle
from tests.light import test_chat, test_runtime_loop, test_sampling_options, test_text
from tests.light.fake_bundle import write_toy_bundle
from tests.light.test_bundle_reader import edit, hash_again
from tests.native.native_api import NUMBERS
from tests.native.native_errors import NativeError
from tests.native.refusals import cases, in_python


def as_numbers(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return options as the C ABI takes them, None for a type that it does not have."""

    def as_number(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError
        return float(value) if name in NUMBERS or value >= 2**64 else value

    try:
        return {
            name: [as_number(name, each) for each in value]
            if isinstance(value, list) and value
            else as_number(name, value)
            for name, value in options.items()
        }
    except TypeError:
        return None


def speakable(test: Any) -> list[dict[str, Any]]:
    return [options for each in cases(test) if (options := as_numbers(each[0]))]


@pytest.mark.parametrize("options", speakable(test_sampling_options.test_values_that_are_refused), ids=str)
def test_values_that_are_refused(two, sampling, options):
    ours, theirs = two.refuse(sampling, [[3, 1, 4], [9]], **options)
    assert ours == theirs


def test_a_value_for_a_prompt_that_is_not_there(two, sampling):
    ours, theirs = two.refuse(sampling, [[3], [9]], seed=[1, 2, 3])
    assert ours[1] == "seed: received a value for prompt 3 of 2"
    assert theirs[1] == "seed: received 3 values, expected one, or one for each of 2 prompts"


@pytest.mark.parametrize("options", speakable(test_sampling_options.test_a_greedy_bundle_refuses_to_sample), ids=str)
def test_a_greedy_bundle_refuses_to_sample(two, lookup, options):
    prompts = [[3], [9]] if "num_return_sequences" not in options else [[3]]
    ours, theirs = two.refuse(lookup, prompts, **options)
    if not any(isinstance(value, list) for value in options.values()):  # of those Python shows all
        assert ours == theirs


@pytest.mark.parametrize(
    ("prompts", "options"),
    [
        ([[3]] * 4, {}),
        ([], {}),
        ([[3], [4]], {"num_return_sequences": 2}),
        ([[3]], {"max_new_tokens": 0}),
        ([[3]], {"max_new_tokens": 1.5}),
        ([[3]], {"stop": ["a", ""]}),
        (["text"], {"chat": True}),
        *(([each[0]], {}) for each in cases(test_runtime_loop.test_prompts_that_are_refused) if each[0] != [5, 258]),
        (["x" * 97], {}),
        ([[272]], {}),
    ],
    ids=str,
)
def test_requests_that_are_refused(two, lookup, prompts, options):
    ours, theirs = two.refuse(lookup, prompts, **options)
    assert ours == theirs


@pytest.mark.parametrize(("prompts", "options"), [(["text"], {}), ([[3]], {"stop": ["."]})])
def test_what_needs_a_tokenizer(two, silent, prompts, options):
    ours, theirs = two.refuse(silent, prompts, **options)
    assert ours == theirs
    bundle = two.native(silent)
    for call in (lambda: bundle.encode("text"), lambda: bundle.decode([1])):
        kind, message, hint = two.in_native(call)
        assert (kind, message) == ("PROMPT", "this bundle has no tokenizer")
        assert hint


def test_a_refused_request_leaves_the_session_as_it_was(two, lookup):
    session = two.native(lookup, threads=1).session()
    (expected,) = session.generate([[5, 6]], max_new_tokens=5)
    session.start([[5, 6]], max_new_tokens=5)
    session.step()
    with pytest.raises(NativeError):
        session.start([[-1]])
    while not session.step():
        pass
    assert session.result_tokens() == expected["token_ids"]


# Bundles


def unlink(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def write(name: str, content: bytes, again: bool = True) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(content)
        if again:
            hash_again(folder)

    return change


def change_manifest(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        edit(folder / "manifest.json", lambda data: data.update(values))
        hash_again(folder)

    return change


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "no hashes": unlink("hashes.json"),
    "no manifest": unlink("manifest.json"),
    "no tokenizer": unlink(TOKENIZER),
    "edited": write("lock.json", b"{ }", again=False),
    "of the same size": write("proof.json", b'{"speculative":  null}', again=False),
    "no JSON": write("manifest.json", b"{"),
    "a list": write("proof.json", b"[]"),
    "newer": change_manifest(format=99),
    "older": change_manifest(contract=0),
    "no number": change_manifest(tokens=None),
    "unknown": change_manifest(colour=1),
    "escapes": lambda folder: edit(
        folder / "hashes.json", lambda data: data["files"].update({"../x": {"blake3": "", "bytes": 1}})
    ),
    "not there": shutil.rmtree,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_broken_bundles(two, copied, damage):
    DAMAGES[damage](copied)
    assert two.refuse_to_open(copied)[0] == "BUNDLE"


def test_a_section_of_sources_without_their_graph_is_refused_alike(two, copied):
    names = {"start_token_id": 0, "forced_bos_token_id": None, "languages": {}, "language_is_start": False}
    change_manifest(source={"max_length": 8, **names})(copied)
    assert two.refuse_to_open(copied)[0] == "BUNDLE"


def test_one_flipped_byte_of_any_file(two, copied):
    for file in [path for path in copied.rglob("*") if path.is_file()]:
        content = file.read_bytes()
        file.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        kind, message, _ = two.refuse_to_open(copied)
        assert (kind, file.name in message) == ("BUNDLE", True)
        file.write_bytes(content)


def test_a_graph_that_is_no_onnx_file(two, tmp_path):
    folder = write_toy_bundle(tmp_path / "toy")
    ours = two.in_native(lambda: two.native(folder))
    theirs = in_python(lambda: Bundle.open(folder))
    assert (ours[0], ours[2]) == (theirs[0], theirs[2]) == ("ENGINE", theirs[2])
    assert ours[1].split(" does not take ")[0] == theirs[1].split(" does not take ")[0]
    assert "rotobuf" in ours[1]


@pytest.mark.parametrize("content", [case[0] for case in cases(test_text.test_a_file_that_is_no_tokenizer_is_named)])
def test_a_file_that_is_no_tokenizer(two, copied, content):
    write(TOKENIZER, content)(copied)
    ours, theirs = two.in_native(lambda: two.native(copied)), in_python(lambda: Bundle.open(copied))
    assert ours[0] == theirs[0] == "BUNDLE"
    expected = f"{copied}/{TOKENIZER}: expected a tokenizer: "
    assert ours[1].startswith(expected)
    assert theirs[1].startswith(expected)


BROKEN_CHATS = [
    *(case[0].encode() for case in cases(test_chat.test_a_chat_file_of_another_structure_is_named)),
    *(case[0] for case in cases(test_chat.test_a_chat_file_that_is_no_json_is_named)),
    b'{"template": "", "special_tokens": {"bos_token": 1}}',
]


@pytest.mark.parametrize("content", BROKEN_CHATS)
def test_a_chat_file_that_is_none(two, copied, content):
    write(CHAT, content)(copied)
    ours, theirs = two.in_native(lambda: two.native(copied)), in_python(lambda: Bundle.open(copied))
    assert ours[0] == theirs[0] == "BUNDLE"
    if b"\xff" not in content:  # Python says which of its decoders failed
        assert ours == theirs


def test_a_chat_template_that_does_not_take_a_message(two, copied):
    """Show the template's own words and their place; tests/native/test_native_templates.py compares the engines."""
    template = b"{% if messages[0].content %}\n{{ raise_exception('no ' + messages[0].role) }}\n{% endif %}"
    write(CHAT, b'{"special_tokens": {}, "template": ' + json.dumps(template.decode()).encode() + b"}")(copied)
    ours, theirs = two.refuse(copied, ["text"], chat=True)
    assert ours == theirs
    assert "does not take these messages: no user (its line 2)" in ours[1]
