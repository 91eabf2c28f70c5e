"""Pictures as arguments: of which prompt each is, and what is refused."""

from base64 import b64encode

import pytest

from speccompile.errors import PromptError, UsageError
from speccompile.runtime.images.bundle_prompts import read_prompt
from speccompile.runtime.images.conversations import split_images
from speccompile.runtime.images.data_urls import data_url
from speccompile.runtime.images.prompts import marked, unused_mark
from speccompile.runtime.images.reader import images_per_prompt


@pytest.mark.parametrize(
    ("asked", "prompts", "found"),
    [(None, 2, [[], []]), ("a.png", 1, [["a.png"]]), (["a", b"b"], 1, [["a", b"b"]]), ([["a"], []], 2, [["a"], []]),
     ([["a", "b"]], 1, [["a", "b"]]), ([None, ["a"]], 2, [[], ["a"]])],
)  # fmt: skip
def test_pictures_belong_to_prompts(asked, prompts, found):
    assert images_per_prompt(asked, prompts) == found


@pytest.mark.parametrize(("asked", "prompts"), [(7, 1), (["a", "b"], 2), ([["a"]], 2), ({"a": 1}, 1)])
def test_pictures_of_no_prompt_are_refused(asked, prompts):
    with pytest.raises(UsageError, match=r"images: received"):
        images_per_prompt(asked, prompts)


def test_parts_of_messages_are_pictures_in_their_order():
    url = "data:image/png;base64,aGVsbG8="
    plain, sources = split_images(
        [{"role": "system", "content": "be brief"},
         {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "and"},
                                      {"type": "image_url", "image_url": {"url": url}}]},
         {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    )  # fmt: skip
    assert sources == [None, b"hello"]
    for detail in (None, "auto", "high"):
        part = {"type": "image_url", "image_url": {"url": url, "detail": detail}}
        assert split_images([{"role": "user", "content": [part]}])[1] == [b"hello"]
    assert plain[0]["content"] == "be brief"
    assert plain[1]["content"] == [{"type": "image"}, {"type": "text", "text": "and"}, {"type": "image"}]
    assert plain[2]["content"] == "a\nb"


@pytest.mark.parametrize(
    ("url", "said"),
    [("https://example.com/a.png", "received the URL 'https://example.com/a.png', expected data:"),
     ("file:///etc/passwd", "received the URL"), (7, "received the URL 7"), (None, "received the URL None"),
     ("data:image/png;base64,????", "the picture is no base64"),
     ("data:text/html;base64,aGVsbG8=", "received the URL")],
)  # fmt: skip
def test_other_urls_are_refused(url, said):
    with pytest.raises(PromptError, match=said):
        split_images([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}])


BASE64 = {
    "aGVsbG8g\nd29y": ("character 9 is '\\n', expected A to Z, a to z, 0 to 9, + and /", "as base64 -w0 FILE does"),
    "aGVsb_8h": ("character 6 is '_'", "/ in place of _"),
    "aGVsbG8%3D": ("character 8 is '%'", "not percent-encoded"),
    "aGV\u00e4": ("character 4 is '\u00e4'", "encode the whole file"),
    "aGV\u0000": (r"character 4 is '\x00'", "encode the whole file"),
    "aG=sbG8=": ("character 3 is '='", "encode the whole file"),
    "aGVsbG8": ("it has 7 letters and then 0 times '=', expected 1 times", "encode the whole file"),
    "aGVs====": ("it has 4 letters and then 4 times '=', expected 0 times", "encode the whole file"),
    "aGVsb": ("it has 5 letters, which no number of bytes has", "encode the whole file"),
    "aGVsbG9=": ("its last letter has bits that belong to no byte", "encode the whole file"),
}
"""Texts that are no base64 -> what is said about them, and the hint."""


@pytest.mark.parametrize("text", BASE64)
def test_what_is_no_base64_is_told(text: str) -> None:
    said, hint = BASE64[text]
    with pytest.raises(PromptError) as refused:
        data_url(f"data:image/png;base64,{text}", "messages[0].content[1]")
    assert f"messages[0].content[1]: the picture is no base64: {said}" in str(refused.value)
    assert refused.value.hint is not None
    assert refused.value.hint.endswith(hint)


def test_base64_of_every_length_is_read() -> None:
    for size in range(9):
        data = bytes(range(250, 250 + min(size, 6))) + b"x" * max(0, size - 6)
        assert data_url(f"DATA:image/PNG;Base64,{b64encode(data).decode()}", "") == data


def test_a_bundle_of_text_refuses_pictures():
    with pytest.raises(PromptError, match="received pictures for a bundle that sees none"):
        read_prompt("what", ["a.png"], None, None, None, chat=False)


def test_every_placeholder_that_is_typed_is_marked():
    mark = unused_mark("<i><i> <i>", "\ue000")
    assert mark == "\ue001"
    assert marked("<i><i> <i>", ["<i>", "<j>"], "!") == "<!i><!i> <!i>"
