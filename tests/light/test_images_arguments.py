"""Pictures as arguments: of which prompt each is, and what is refused."""

import pytest

from speccompile.errors import PromptError, UsageError
from speccompile.runtime.images.bundle_prompts import read_prompt
from speccompile.runtime.images.conversations import split_images
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


def test_a_bundle_of_text_refuses_pictures():
    with pytest.raises(PromptError, match="received 1 pictures for a bundle that sees none"):
        read_prompt("what", ["a.png"], None, None, None, chat=False)


def test_every_placeholder_that_is_typed_is_marked():
    mark = unused_mark("<i><i> <i>", "\ue000")
    assert mark == "\ue001"
    assert marked("<i><i> <i>", ["<i>", "<j>"], "!") == "<!i><!i> <!i>"
