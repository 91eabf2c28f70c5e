"""What `speccompile serve` makes of a request: what the service is asked, and what is refused, in OpenAI's form."""

import json
import logging

import pytest

from speccompile.errors import EngineError, OverloadedError, UsageError
from speccompile.serving.http import fields
from speccompile.serving.http.app import Settings
from speccompile.serving.http.keys import Keys, read_keys
from tests.light.serve_example import Puppet, asked, chat_bundle, puppet_server, toy_server, toy_text

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(scope="module")
def server():
    with toy_server() as running:
        yield running


@pytest.fixture
def puppet():
    with puppet_server(sampling=True, batch_size=4) as found:
        yield found


REFUSED = [
    # what is not there, or has another type or value
    (COMPLETIONS, {}, "prompt", "prompt: received null, expected it, which is required"),
    (COMPLETIONS, {"prompt": None}, "prompt", "expected string or array"),
    (COMPLETIONS, {"prompt": ""}, "prompt", "expected 1 characters or more"),
    (COMPLETIONS, {"prompt": []}, "prompt", "expected string or 1 items or more"),
    (COMPLETIONS, {"prompt": ["a", 1]}, "prompt[1]", "prompt[1]: received 1, expected string"),
    (COMPLETIONS, {"prompt": [1, 258]}, "prompt", "token id 258 is out of range: expected 0 to 257"),
    (COMPLETIONS, {"prompt": "x", "stop_token_ids": [1, 258]}, "stop_token_ids", "token id 258 is out of range"),
    (COMPLETIONS, {"prompt": "\ud800"}, "prompt", "prompt: received a text with half a surrogate pair"),
    (COMPLETIONS, {"prompt": "x", "max_tokens": 0}, "max_tokens", "max_tokens: received 0, expected 1 or more"),
    (COMPLETIONS, {"prompt": "x", "max_tokens": "9"}, "max_tokens", 'received "9", expected integer or null'),
    (COMPLETIONS, {"prompt": "x", "max_tokens": True}, "max_tokens", "received true, expected integer or null"),
    (COMPLETIONS, {"prompt": "x", "max_tokens": 1.5}, "max_tokens", "received 1.5, expected integer or null"),
    (COMPLETIONS, {"prompt": "x", "temperature": -1}, "temperature", "expected 0 or more"),
    (COMPLETIONS, {"prompt": "x", "temperature": 2.5}, "temperature", "expected at most 2"),
    (COMPLETIONS, {"prompt": "x", "top_p": 0}, "top_p", "expected more than 0"),
    (COMPLETIONS, {"prompt": "x", "stop": ["a"] * 17}, "stop", "expected string or at most 16 items"),
    (COMPLETIONS, {"prompt": "x", "stop": ""}, "stop", "expected 1 characters or more"),
    (COMPLETIONS, {"prompt": "x", "logprobs": 21}, "logprobs", "expected at most 20"),
    (COMPLETIONS, {"prompt": "x", "stream_options": {}}, "stream_options", "received it without stream"),
    (COMPLETIONS, {"prompt": "x", "stream": True, "stream_options": {"include_usage": 1}},
     "stream_options.include_usage", "expected boolean or null"),
    (CHAT, {"messages": []}, "messages", "received [], expected 1 items or more"),
    (CHAT, {"messages": {"a": 1}}, "messages", 'received {"a": 1}, expected array'),
    (CHAT, {"messages": [{"role": "me", "content": "x"}]}, "messages[0].role", "expected system or developer or user"),
    (CHAT, {"messages": [{"content": "x"}]}, "messages[0].role", "expected it, which is required"),
    (CHAT, {"messages": [{"role": "user"}]}, "messages[0].content", "received nothing, expected a text"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
     "messages[0].content[0].type", 'received "image_url", but this model takes no images'),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "input_audio", "text": "x"}]}]},
     "messages[0].content[0].type", 'received "input_audio", but this model takes no audio'),
    (CHAT, {"messages": [{"role": "user", "content": "x", "images": ["AA=="]}]}, "messages[0].images",
     "received pictures beside the content, expected them as its parts"),
    (CHAT, {"messages": [{"role": "assistant", "content": "x", "tool_calls": 5}]}, "messages[0].tool_calls",
     "received 5, expected a list of calls"),
    (CHAT, {"messages": [{"role": "user", "content": "x", "tool_calls": 0}]}, "messages[0].tool_calls", "received 0"),
    (COMPLETIONS, {"prompt": "x", "guided_choice": ["a", "\ud800"]}, "guided_choice[1]", "half a surrogate pair"),
    (COMPLETIONS, {"prompt": "x", "guided_json": {"\udfff": 1}}, "guided_json", "half a surrogate pair"),
    (CHAT, {"messages": [{"role": "user", "content": "x"}], "top_logprobs": 2}, "top_logprobs", "without logprobs"),
    (CHAT, {"messages": [{"role": "user", "content": "x"}], "continue_final_message": True,
            "add_generation_prompt": True}, "continue_final_message", "expected one of them"),
    (CHAT, {"messages": [{"role": "user", "content": "x" * 160}]}, "messages", "maximum context length is 160 tokens"),
    # what is known, and not supported
    (COMPLETIONS, {"prompt": "x", "suffix": "y"}, "suffix", "which is not supported"),
    (COMPLETIONS, {"prompt": "x", "best_of": 2}, "best_of", "best_of: received 2, expected n, which is 1"),
    (COMPLETIONS, {"prompt": "x", "echo": True, "logprobs": 0}, "echo", "log-probabilities of a prompt"),
    (COMPLETIONS, {"prompt": "x", "min_tokens": 4}, "min_tokens", "only supported where nothing ends an answer"),
    (COMPLETIONS, {"prompt": "x", "prompt_logprobs": 1}, "prompt_logprobs", "which is not supported"),
    (CHAT, {"messages": [{"role": "user", "content": "x"}], "modalities": ["text", "audio"]}, "modalities", "not sup"),
    (CHAT, {"messages": [{"role": "user", "content": "x"}], "functions": [{}]}, "functions", "not supported"),
    (CHAT, {"messages": [{"role": "user", "content": "x"}], "chat_template": "{{ 1 }}"}, "chat_template", "supported"),
    # what a greedy bundle does not do
    (COMPLETIONS, {"prompt": "x", "temperature": 0.7}, "temperature", "this model was compiled for greedy decoding"),
    (COMPLETIONS, {"prompt": "x", "logit_bias": {"5": 1}}, "logit_bias", 'received {"5": 1}, but this model was compi'),
    (COMPLETIONS, {"prompt": "x", "frequency_penalty": 0.1}, "frequency_penalty", "0.1, but this model was compiled"),
    (COMPLETIONS, {"prompt": "x", "presence_penalty": -1}, "presence_penalty", "-1, but this model was compiled"),
    # ranges of biases and penalties, as OpenAI has them
    (COMPLETIONS, {"prompt": "x", "frequency_penalty": 2.1}, "frequency_penalty", "received 2.1, expected at most 2"),
    (COMPLETIONS, {"prompt": "x", "presence_penalty": -3}, "presence_penalty", "received -3, expected -2 or more"),
    (COMPLETIONS, {"prompt": "x", "logit_bias": 5}, "logit_bias", "received 5, expected object or null"),
    (COMPLETIONS, {"prompt": "x", "logit_bias": {"5": 101}}, "logit_bias.5", "received 101, expected at most 100"),
    (COMPLETIONS, {"prompt": "x", "logit_bias": {"1": 1, "a": "b"}}, "logit_bias.a", 'received "b", expected number'),
    (COMPLETIONS, {"prompt": "x", "logit_bias": {"a": 1}}, "logit_bias", 'the key "a", expected token ids from 0 to'),
    (COMPLETIONS, {"prompt": "x", "logit_bias": {"05": 1}}, "logit_bias", 'the key "05", expected token ids from 0'),
    (COMPLETIONS, {"prompt": "x", "logit_bias": {"258": 0}}, "logit_bias", 'the key "258", expected token ids from 0'),
    (COMPLETIONS, {"prompt": "x", "logit_bias": dict.fromkeys(map(str, range(1025)), 1)}, "logit_bias",
     "received an object of 1025 entries, expected at most 1024 keys"),
    (COMPLETIONS, {"prompt": "x", "n": 2}, "n", "n: received 2, but this model was compiled for greedy decoding"),
    (COMPLETIONS, {"prompt": "x", "repetition_penalty": 1.1}, "repetition_penalty", "compiled for greedy decoding"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "param", "words"), REFUSED)
def test_what_is_wrong_is_named(server, path, body, param, words):
    answered = server.ask("POST", path, body)
    assert answered.status == 400
    assert answered.error["param"] == param
    assert words in answered.error["message"]
    assert answered.error["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [
    b"", b"{", b"[1", b"nul", b"\xff\xfe", b'{"prompt": NaN}', b'{"a": 1e400', b"[" * 9000,
    b'{"prompt": ' + b"9" * 5000 + b"}", b'{"y": -1e400}', b'{"a":' * 501 + b"1" + b"}" * 501,
])  # fmt: skip
def test_what_is_no_json_is_refused(server, body):
    answered = server.ask("POST", COMPLETIONS, body)
    assert (answered.status, answered.error["code"]) == (400, "invalid_json")


@pytest.mark.parametrize("body", [[], "text", 5, None, True])
def test_a_body_is_an_object(server, body):
    answered = server.ask("POST", CHAT, json.dumps(body).encode())
    assert (answered.status, answered.error["param"]) == (400, None)
    assert answered.error["message"].endswith("expected object")


def test_other_types_and_sizes_of_bodies_are_refused(server):
    answered = server.ask("POST", COMPLETIONS, b"prompt=x", Content_Type="application/x-www-form-urlencoded")
    assert answered.status == 415
    assert "'application/x-www-form-urlencoded', expected application/json" in answered.error["message"]
    with toy_server(Settings(max_body_bytes=100)) as small:
        answered = small.complete("x" * 100)
        assert (answered.status, answered.error["code"]) == (413, "body_too_large")
        with small.asked("POST", COMPLETIONS, iter([b" " * 60] * 3)) as response:  # in pieces, of no length said before
            assert response.status == 413
        assert small.complete("x", max_tokens=1).status == 200


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/v1/nothing", 404), ("POST", "/", 405), ("GET", CHAT, 405), ("DELETE", "/v1/models", 405),
    ("POST", "/health", 405), ("GET", "/v1/models/other", 404), ("GET", "/v1/models/", 404),
])  # fmt: skip
def test_what_is_not_there_is_said_in_the_same_form(server, method, path, status):
    assert server.ask(method, path).status == status
    assert server.ask(method, path).error["message"]


def test_the_name_of_the_model_is_checked(server):
    for path in (COMPLETIONS, CHAT, "/tokenize", "/detokenize"):
        answered = server.ask("POST", path, {"model": "gpt-4"})
        assert (answered.status, answered.error["code"]) == (404, "model_not_found")
        assert answered.error["message"] == "the model 'gpt-4' does not exist: expected 'toy'"
    assert server.complete(model="toy", max_tokens=1).status == 200


def test_unknown_fields_are_ignored_and_logged_once(server, caplog, monkeypatch):
    monkeypatch.setattr(fields, "_logged", set())
    with caplog.at_level(logging.INFO, "speccompile"):
        plain = server.complete(max_tokens=4).json["choices"]
        for _ in range(3):
            assert (
                server.complete(max_tokens=4, user="me", store=True, prediction={"type": "content"}).json["choices"]
                == plain
            )
    assert sorted(caplog.messages) == [
        f"the field {name!r} of a request is not known here, and ignored" for name in ("prediction", "store", "user")
    ]
    server.complete(max_tokens=1, **{f"field{number}": 1 for number in range(300)})
    assert len(fields._logged) == 100


@pytest.mark.parametrize("harmless", [
    {"logit_bias": {}, "frequency_penalty": 0, "presence_penalty": 0.0, "suffix": None, "best_of": 1, "n": 1.0},
    {"temperature": 0, "top_p": 0.9, "top_k": -1, "min_p": 0.5, "seed": 7, "repetition_penalty": 1},
    {"response_format": {"type": "text"}, "tools": [], "tool_choice": "auto"},
    {"ignore_eos": True, "min_tokens": 4},
    {"stop": None, "stream": False, "logprobs": None, "max_tokens": 4.0},
])  # fmt: skip
def test_what_changes_nothing_is_taken(server, harmless):
    assert (
        server.complete(**{"max_tokens": 4} | harmless).json["choices"] == server.complete(max_tokens=4).json["choices"]
    )


@pytest.mark.parametrize(("body", "param", "words"), [
    ({"response_format": {"type": "json_object"}}, "response_format", "compiled without constraints"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema",
     "json_schema.schema"),
    ({"structured_outputs": {"choice": ["a"]}}, "structured_outputs.choice", "compiled without constraints"),
    ({"tools": [{"type": "function"}]}, "tools[0].function", "which is required"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "chat template takes none"),
    ({"tool_choice": "required"}, "tool_choice", "without tools"),
])  # fmt: skip
def test_a_form_that_cannot_be_imposed_is_refused(server, body, param, words):
    answered = server.chat(**body)
    assert (answered.status, answered.error["param"]) == (400, param)
    assert words in answered.error["message"]


def test_the_service_is_asked_what_the_body_says(puppet):
    prompt, options = asked(*puppet)
    assert prompt == toy_text().encode("def")
    assert options == {
        "client": "", "salt": ":", "priority": 0, "max_new_tokens": 16, "stop": [], "stop_token_ids": [],
        "ignore_eos": False, "autoregressive": False, "logprobs": False, "temperature": 1.0, "num_return_sequences": 1,
    }  # fmt: skip
    said = {
        "max_tokens": 5, "stop": "x", "stop_token_ids": [3], "ignore_eos": True, "speculative": False, "logprobs": 3,
        "temperature": 0.5, "top_k": 7, "top_p": 1e-9, "min_p": 0.1, "repetition_penalty": 1.5, "n": 2, "seed": -1,
        "cache_salt": "mine", "priority": -3,
    }  # fmt: skip
    assert asked(*puppet, **said)[1] == {
        "client": "", "salt": ":mine", "priority": -3, "max_new_tokens": 5, "stop": ["x"], "stop_token_ids": [3],
        "ignore_eos": True, "autoregressive": True, "logprobs": True, "top_logprobs": 3, "temperature": 0.5, "top_k": 7,
        "top_p": 1e-9, "min_p": 0.1, "repetition_penalty": 1.5, "num_return_sequences": 2, "seed": 2**64 - 1,
    }  # fmt: skip


def test_the_last_tokens_of_a_prompt_are_read(server):
    ids = [number % 7 + 1 for number in range(200)]
    most = chat_bundle().manifest.max_length
    for last, kept in ((9, ids[-9:]), (-1, ids[-(most - 20) :]), (1000, [5]), (None, [5, 6])):
        prompt = ids if len(kept) > 2 else kept
        found = server.complete(prompt=prompt, truncate_prompt_tokens=last, max_tokens=20, return_token_ids=True).json
        expected = server.complete(prompt=kept, max_tokens=20).json
        assert found["prompt_token_ids"] == kept
        assert found["choices"][0]["text"] == expected["choices"][0]["text"]
        assert found["usage"]["prompt_tokens"] == len(kept)
    text = "x" * 2000  # more bytes than the model takes tokens
    assert server.complete(prompt=text, max_tokens=4).status == 400
    assert server.complete(prompt=text, max_tokens=4, truncate_prompt_tokens=3).json["usage"]["prompt_tokens"] == 3
    assert server.chat(text, truncate_prompt_tokens=7, max_tokens=4).json["usage"]["prompt_tokens"] == 7
    refused = server.complete(prompt=ids, truncate_prompt_tokens=0)
    assert (refused.status, refused.error["param"]) == (400, "truncate_prompt_tokens")
    refused = server.complete(prompt=ids, truncate_prompt_tokens=most)
    assert (refused.status, refused.error["code"]) == (400, "context_length_exceeded")


def test_ends_of_other_kinds_are_taken(server):
    tokens = chat_bundle().generate("def", max_new_tokens=20).token_ids
    answered = server.complete(max_tokens=20, stop_token_ids=[tokens[6]], return_token_ids=True)
    (choice,) = answered.json["choices"]
    end = tokens.index(tokens[6]) + 1
    assert (choice["token_ids"], choice["finish_reason"]) == (tokens[:end], "stop")
    events = server.complete(max_tokens=20, stop_token_ids=[tokens[6]], return_token_ids=True, stream=True).events
    pieces = [event["choices"][0].get("token_ids", []) for event in events]
    assert [token for piece in pieces for token in piece] == tokens[:end]
    with toy_server(eos_token_ids=(tokens[3],)) as ending:
        assert ending.complete(max_tokens=9).json["choices"][0]["finish_reason"] == "stop"
        assert ending.complete(max_tokens=9, ignore_eos=True).json["usage"]["completion_tokens"] == 9


@pytest.mark.parametrize(("error", "status", "retry", "kind"), [
    (OverloadedError("9 requests wait already", retry_after=1.5), 429, "2", "rate_limit_error"),
    (OverloadedError("closing", retry_after=None), 503, "1", "unavailable_error"),
    (EngineError("the engine is gone", hint="restart"), 500, None, "server_error"),
    (ZeroDivisionError("secret"), 500, None, "server_error"),
])  # fmt: skip
def test_errors_of_the_service_are_told(puppet, error, status, retry, kind):
    running, service = puppet
    service.error = error
    answered = running.complete()
    assert (answered.status, answered.headers["Retry-After"], answered.error["type"]) == (status, retry, kind)
    assert "secret" not in answered.error["message"]


def test_nothing_is_asked_where_not_all_prompts_find_room(puppet):
    running, service = puppet
    first = Puppet()

    def submit(prompt, **options):
        if first.requests:
            raise OverloadedError("full", retry_after=1)
        return first.submit(prompt, **options)

    service.submit = submit
    assert running.complete(["a", "b"]).status == 429
    assert first.requests[0].cancelled


def test_keys_are_checked_where_requests_are_taken():
    with puppet_server(Settings(Keys(("one", "zwölf")))) as (running, service):
        for path in (COMPLETIONS, CHAT, "/tokenize", "/detokenize"):
            answered = running.ask("POST", path, {})
            assert (answered.status, answered.error["code"]) == (401, "invalid_api_key")
            assert "received no API key" in answered.error["message"]
        for wrong in ("Bearer two", "Basic one", "one", "Bearer", "Bearer on\xe9"):
            assert running.ask("GET", "/v1/models", Authorization=wrong).status == 401
        for path in ("/health", "/metrics", "/version", "/openapi.json"):
            assert running.ask("GET", path).status == 200
        service.error = UsageError("seen")
        clients = set()
        for key in ("one", "zwölf"):
            service.submit = lambda prompt, client, salt, **options: (
                clients.add((client, salt)) or Puppet.submit(service, prompt)
            )
            answered = running.ask(
                "POST", COMPLETIONS, {"prompt": "x"}, Authorization=f"bearer {key.encode().decode('latin-1')}"
            )
            assert answered.error["message"] == "seen"
        assert len(clients) == 2
        assert all("one" not in client and salt == f"{client}:" for client, salt in clients)


def test_a_file_of_keys_has_one_a_line():
    assert read_keys(["# mine", "one", "", "  two "]) == ("one", "two")


def test_what_watches_gets_its_answers(server):
    assert server.ask("GET", "/health").json == {"status": "ready"}
    assert list(server.ask("GET", "/version").json) == ["version"]
    assert server.ask("GET", "/openapi.json").json["openapi"] == "3.1.0"


def test_pages_of_other_origins_are_let_in_only_where_that_is_said(server):
    assert "Access-Control-Allow-Origin" not in server.ask("GET", "/health", Origin="http://page").headers
    with toy_server(Settings(origins=("http://page",))) as open_server:
        headers = open_server.ask("GET", "/health", Origin="http://page").headers
        assert headers["Access-Control-Allow-Origin"] == "http://page"
        assert "Access-Control-Allow-Origin" not in open_server.ask("GET", "/health", Origin="http://other").headers


def test_a_server_may_draft_only_for_those_who_ask():
    with puppet_server(Settings(speculative=False)) as running:
        assert asked(*running)[1]["autoregressive"]
        assert not asked(*running, speculative=True)[1]["autoregressive"]
