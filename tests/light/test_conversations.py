"""Messages of a conversation, and answers to them."""

import pytest

from speccompile.errors import PromptError
from tests.light.serve_example import chat_bundle
from tests.light.toy_models import autoregressive

PROMPT = [3, 1, 4, 1, 5]
CHAT = [{"role": "user", "content": "ab"}]


def test_a_chat_is_its_template_continued():
    bundle = chat_bundle()
    messages = [
        {"role": "developer", "content": "be"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "c"},
    ]
    written = "<s>system:be\nuser:a\nb\nassistant:\nuser:c\nassistant:"
    prompt = bundle.text.encode(written, special_tokens=False)
    assert bundle.chat_token_ids(messages) == prompt
    whole = bundle.chat(messages, max_new_tokens=12)
    assert whole.token_ids == autoregressive(prompt, 12)
    stream = bundle.stream_chat(tuple(messages), max_new_tokens=12)
    assert "".join(stream) == whole.text == stream.generation.text
    assert bundle.chat(CHAT, max_new_tokens=5).token_ids == bundle.generate("ab", chat=True, max_new_tokens=5).token_ids
    toned = bundle.chat_token_ids(CHAT, {"tone": "now "})
    assert bundle.text.decode(toned) == "user:ab\nnow assistant:"
    assert bundle.chat(CHAT, chat_template_kwargs={"tone": "now "}).prompt_tokens == len(toned)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("ab", "messages: received 'ab', expected a list of messages"),
        (CHAT[0], "messages: received {'role': 'user', 'content': 'ab'}, expected a list of messages"),
        (None, "messages: received None, expected a list of messages"),
        ([], "messages: received none, expected at least one"),
        (["ab"], r"messages\[0\]: received 'ab', expected a message"),
        ([*CHAT, {"content": "x"}], r"messages\[1\]\.role: received nothing, expected one of system, developer, user"),
        ([{"role": "usr", "content": "x"}], r"messages\[0\]\.role: received 'usr', expected one of"),
        ([{"role": ["user"], "content": "x"}], r"messages\[0\]\.role: received \['user'\], expected one of"),
        ([{"role": "user"}], r"messages\[0\]\.content: received nothing, expected a text"),
        ([{"role": "user", "content": 5}], r"messages\[0\]\.content: received 5, expected a text"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}],
            r"messages\[0\]\.content: received the part {'type': 'image_url'}, expected parts with a text",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
            r"messages\[0\]\.tool_calls: received the call .*, expected a function with its arguments as JSON",
        ),
        (
            [{"role": "user", "content": "x", "images": ["AA=="]}],
            r"messages\[0\]\.images: received pictures beside the",
        ),
        ([{"role": "assistant", "tool_calls": 3}], r"messages\[0\]\.tool_calls: received 3, expected a list of calls"),
        (
            [{"role": "user", "content": "x" * 200}],
            "the prompt has 2.. tokens, more than this bundle's capacity of 160",
        ),
    ],
)
def test_messages_that_are_refused(messages, message):
    for way in ("chat", "stream_chat", "chat_token_ids"):
        with pytest.raises(PromptError, match=message) as caught:
            getattr(chat_bundle(), way)(messages)
        assert caught.value.hint


def test_templates_are_told_the_arguments_of_calls_as_values():
    template = "{{ messages[0].tool_calls[0].function.arguments.a + 1 }}"
    bundle = chat_bundle()
    bundle.chat_template = (template, {})
    told = {"id": "1", "type": "function", "function": {"name": "now", "arguments": '{"a": 1}'}}
    assert bundle.text.decode(bundle.chat_token_ids([{"role": "assistant", "tool_calls": [told]}])) == "2"


def test_a_chat_without_what_it_needs():
    with pytest.raises(PromptError, match="this bundle's tokenizer has no chat template"):
        chat_bundle(chat=False).chat(CHAT)
    with pytest.raises(PromptError, match="this bundle has no tokenizer"):
        chat_bundle(text=False).stream_chat(CHAT)
