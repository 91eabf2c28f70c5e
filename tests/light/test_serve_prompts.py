"""Prompts of requests to `speccompile serve`: conversations in a template, texts, token ids, and back."""

import pytest

from tests.light.serve_example import asked, chat_bundle, toy_server, toy_text
from tests.light.test_serve_requests import CHAT, puppet, server

__all__ = ["puppet", "server"]  # fixtures


def written(*messages, end="assistant:"):
    return toy_text().encode("<s>" + "".join(f"{role}:{text}\n" for role, text in messages) + end, special_tokens=False)


@pytest.mark.parametrize(("body", "prompt"), [
    ({}, written(("user", "def"))),
    ({"messages": [{"role": "developer", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"},
                   {"type": "text", "text": "c"}]}]}, written(("system", "a"), ("user", "b\nc"))),
    ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": []}]},
     written(("user", "a"), ("assistant", ""))),
    ({"add_generation_prompt": False}, written(("user", "def"), end="")),
    ({"chat_template_kwargs": {"tone": "short!", "bos_token": "no", "messages": []}},
     written(("user", "def"), end="short!assistant:")),
    ({"messages": [{"role": "assistant", "content": " x y "}], "continue_final_message": True},
     written(("assistant", " x y "), end="")[:-2]),
])  # fmt: skip
def test_conversations_are_written_in_the_template(puppet, body, prompt):
    found, options = asked(*puppet, path=CHAT, **body)
    assert found == prompt
    assert options["max_new_tokens"] == 160 - len(prompt)


def test_what_a_template_does_not_take_is_refused(server, monkeypatch):
    answered = server.chat(chat_template_kwargs={"tone": {"a": 1}}, max_tokens=1)
    assert answered.status == 200
    monkeypatch.setattr(server.model.bundle, "chat_template", ("{{ raise_exception('no system here') }}", {}))
    assert "no system here" in server.chat().error["message"]
    assert server.chat().error["param"] == "messages"
    monkeypatch.setattr(server.model.bundle, "chat_template", ("{{ 'changed' }}", {}))
    answered = server.chat(continue_final_message=True)
    assert "the chat template changes the last message" in answered.error["message"]


def test_bundles_without_a_template_or_a_tokenizer_say_so():
    with toy_server(chat=False) as plain:
        assert "no chat template (hint: use /v1/completions)" in plain.chat().error["message"]
        assert plain.complete(max_tokens=2).status == 200
    with toy_server(text=False) as plain:
        for answered in (
            plain.chat(),
            plain.complete(),
            plain.post("/tokenize", prompt="x"),
            plain.complete([1], echo=True),
        ):
            assert (answered.status, "no tokenizer" in answered.error["message"]) == (400, True)
        assert plain.complete([1], stop="x").error["param"] == "stop"
        answered = plain.complete([3, 1, 4], max_tokens=3, return_token_ids=True, logprobs=0)
        (choice,) = answered.json["choices"]
        alone = chat_bundle(text=False).generate([3, 1, 4], max_new_tokens=3).token_ids
        assert (choice["text"], choice["token_ids"], answered.json["prompt_token_ids"]) == ("", alone, [3, 1, 4])
        assert choice["logprobs"]["tokens"] == [f"token_id:{token}" for token in alone]


def test_tokens_there_and_back(server):
    answered = server.post("/tokenize", prompt="dé", return_token_strs=True).json
    assert answered == {"count": 4, "max_model_len": 160, "tokens": toy_text().encode("dé"),
                        "token_strs": ["<s>", "d", "Ã", "©"]}  # fmt: skip
    assert server.post("/tokenize", prompt="d", add_special_tokens=False).json["count"] == 1
    messages = [{"role": "user", "content": "def"}]
    assert server.post("/tokenize", messages=messages).json["tokens"] == written(("user", "def"))
    assert server.post("/detokenize", tokens=answered["tokens"]).json == {"prompt": "dé"}
    assert "expected one of them" in server.post("/tokenize").error["message"]
    assert server.post("/detokenize", tokens=[999]).error["param"] == "tokens"


CALLED = "{% for m in messages %}{% if 'tool_calls' in m %}{% for c in m.tool_calls %}{{ c.function.arguments.items() | list }}{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}"  # noqa: E501
"""As some templates of models ask: whether the key is there."""


@pytest.mark.parametrize(("calls", "said"), [
    (None, "x"), ([], "x"), ([{"type": "function", "function": {"name": "f", "arguments": ""}}], "[]"),
    ([{"type": "function", "function": {"name": "f", "arguments": None}}], "[]"),
    ([{"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}], "[('a', 1)]"),
])  # fmt: skip
def test_calls_that_clients_send_back(server, monkeypatch, calls, said):
    monkeypatch.setattr(server.model.bundle, "chat_template", (CALLED, {}))
    messages = [{"role": "assistant", "content": "x", "tool_calls": calls}]
    assert server.post("/tokenize", messages=messages).json["tokens"] == toy_text().encode(said, special_tokens=False)
