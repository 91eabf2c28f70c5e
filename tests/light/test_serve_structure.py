"""What `speccompile serve` makes of the form that a request asks for, and of tools: by the demo's tokenizer."""

import json
from types import SimpleNamespace

import pytest

from speccompile.runtime.constraints import GrammarCompiler
from speccompile.serving.http.errors import RequestError
from speccompile.serving.http.fields import CHAT, validate
from speccompile.serving.http.requests import read_chat
from speccompile.serving.http.structured_outputs import constraint_of
from speccompile.serving.http.tools import Tools, find_tool_call_format
from speccompile.serving.scheduler import OutputDelta
from tests.light.serve_example import chat_bundle, puppet_server
from tests.light.test_constraints import END, TOKENIZER, manifest
from tests.light.test_serve_lives import generation

SAID = "{% for message in messages %}{{ message.content }}{% endfor %}"
TEMPLATES = {
    "Hermes": "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}<tool_call>{% endif %}" + SAID,
    "Mistral": "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[TOOL_CALLS]{% endif %}" + SAID,
    "Llama": '{% if tools %}{"name": function name, "parameters": dictionary}{{ tools | tojson }}{% endif %}' + SAID,
}
CALLS = {
    "Hermes": '<tool_call>\n{{"name": "{}", "arguments": {}}}\n</tool_call>',
    "Mistral": '[TOOL_CALLS] [{{"name": "{}", "arguments": {}}}]',
    "Llama": '{{"name": "{}", "parameters": {}}}',
}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Of a city.", "parameters": {
    "type": "object", "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"type": "integer"}},
    "required": ["city"], "additionalProperties": False, "$defs": {"city": {"type": "string"}}}}}  # fmt: skip
CLOCK = {"type": "function", "function": {"name": "now"}}
ONE = {"city": "Bonn", "days": 2}


def bundle_of(family="Hermes", *, taken=True):
    grammars = GrammarCompiler(manifest(taken=taken), TOKENIZER, "hash")
    template = TEMPLATES.get(family, family)
    return SimpleNamespace(grammars=grammars, constraint=grammars.compile, chat_template=(template, {}))


def asked(**fields):
    return validate({"messages": [{"role": "user", "content": "x"}]} | fields, CHAT)


def takes(bundle, constraint, text: str) -> bool:
    """Return whether a text, as it is, is what the constraint wants."""
    matcher, tokens = constraint.matcher([END]), bundle.grammars._tokenizer._tokenizer.tokenize_str(text)
    return matcher.accept_tokens(tokens) == len(tokens) and (matcher.is_complete or bool(matcher.mask()[END]))


FORMS = [
    ({"response_format": {"type": "json_object"}}, "json_object", '{"a": [1]}', "[1]"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {
        "type": "integer"}}}}, "json_schema", "12", "x"),
    ({"structured_outputs": {"json": {"type": "boolean"}}}, "json_schema", "true", "1"),
    ({"structured_outputs": {"regex": "a+", "choice": None}}, "regex", "aaa", "b"),
    ({"structured_outputs": {"json_object": True}}, "json_object", "{}", "1"),
    ({"guided_json": '{"type": "null"}'}, "json_schema", "null", "1"),
    ({"guided_choice": ["yes", "no"]}, "choice", "no", "n"),
    ({"guided_grammar": 'start: "x" "y"'}, "grammar", "xy", "x"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "kind", "good", "bad"), FORMS)
def test_the_form_that_is_asked_for_is_imposed(fields, kind, good, bad):
    bundle = bundle_of()
    constraint = constraint_of(asked(**fields), bundle)
    assert constraint.kind == kind
    assert takes(bundle, constraint, good)
    assert not takes(bundle, constraint, bad)


@pytest.mark.parametrize("fields", [{}, {"response_format": {"type": "text"}}, {"structured_outputs": {"regex": None}}])
def test_an_answer_is_free_where_nothing_is_asked(fields):
    assert constraint_of(asked(**fields), bundle_of(taken=False)) is None


WRONG = [
    ({"response_format": {"type": "json_schema"}}, "expected a schema at json_schema.schema"),
    ({"response_format": {"type": "xml"}}, "response_format.type: received"),
    ({"structured_outputs": {"structural_tag": {}}}, "structured_outputs.structural_tag: received"),
    ({"structured_outputs": {"regex": 0}}, "received 0, expected a text"),
    ({"structured_outputs": {"regex": "("}}, "llguidance does not take it"),
    ({"guided_json": {"type": "string", "not": {}}}, "Unimplemented keys"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "received it beside guided_regex, expected one of them"),
    ({"guided_choice": [""]}, "none of them empty"),
]


@pytest.mark.parametrize(("fields", "said"), WRONG)
def test_what_cannot_be_imposed_is_refused(fields, said):
    with pytest.raises(RequestError) as caught:
        constraint_of(asked(**fields), bundle_of())
    assert said in str(caught.value)
    assert caught.value.param.startswith(next(iter(fields))) or len(fields) > 1


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_call_that_must_be_is_certain_and_is_read(family):
    bundle = bundle_of(family)
    tools = Tools.of(asked(tools=[WEATHER, CLOCK], tool_choice="required"), bundle)
    assert tools.family.name == family
    constraint = tools.constraint(bundle)
    for name, arguments in (("get_weather", ONE), ("now", {})):
        written = CALLS[family].format(name, json.dumps(arguments, separators=(", ", ": ")))
        assert takes(bundle, constraint, written)
        said, calls = tools.read(written)
        assert (said, [(call.name, json.loads(call.arguments)) for call in calls]) == ("", [(name, arguments)])
    for text in ("hello", CALLS[family].format("other", "{}"), CALLS[family].format("get_weather", "{}")):
        assert not takes(bundle, constraint, text)


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_named_function_is_the_one_that_is_called(family):
    bundle = bundle_of(family)
    choice = {"type": "function", "function": {"name": "now"}}
    constraint = Tools.of(asked(tools=[WEATHER, CLOCK], tool_choice=choice), bundle).constraint(bundle)
    assert takes(bundle, constraint, CALLS[family].format("now", "{}"))
    assert not takes(bundle, constraint, CALLS[family].format("get_weather", json.dumps(ONE)))


def test_several_calls_may_be_made_unless_they_may_not():
    bundle, call = bundle_of(), CALLS["Hermes"].format("now", "{}")
    for parallel in (True, False):
        tools = Tools.of(asked(tools=[CLOCK], tool_choice="required", parallel_tool_calls=parallel), bundle)
        assert takes(bundle, tools.constraint(bundle), f"{call}\n{call}") is parallel
        assert len(tools.read(f"{call}\n{call}")[1]) == 1 + parallel


def test_a_model_that_may_call_is_free():
    tools = Tools.of(asked(tools=[CLOCK]), bundle_of(taken=False))
    assert tools.constraint(bundle_of(taken=False)) is None
    assert Tools.of(asked(tools=[CLOCK], tool_choice="none"), bundle_of()) is None
    assert Tools.of(asked(), bundle_of()) is None


@pytest.mark.parametrize("text", [
    "It is noon.", '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>',
    "<tool_call>\n{broken\n</tool_call>",
    '<tool_call>\n{"name": "now", "arguments": []}\n</tool_call>', "12", "",
])  # fmt: skip
def test_what_is_no_call_is_said(text):
    assert Tools.of(asked(tools=[CLOCK]), bundle_of()).read(text) == (text, [])


def test_what_is_said_before_a_call_stays():
    tools = Tools.of(asked(tools=[CLOCK]), bundle_of())
    said, calls = tools.read("Let me see.\n" + CALLS["Hermes"].format("now", "{}"))
    assert (said, [call.name for call in calls]) == ("Let me see.", ["now"])
    assert tools.read('{"name": "now", "arguments": {}}\n{"name": "now", "arguments": {}}')[1] == calls * 2


def test_templates_of_other_forms_are_of_no_family():
    assert find_tool_call_format("{{ tools }}<tool_call><function=") is None
    assert find_tool_call_format("{{ tools }}[TOOL_CALLS]name[ARGS]") is None
    assert find_tool_call_format("<tool_call>") is None


REFUSED = [
    ({"tool_choice": "required"}, 'tool_choice: received "required" without tools'),
    ({"tools": [CLOCK], "tool_choice": {"type": "function", "function": {"name": "f"}}}, "expected one of the tools"),
    ({"tools": [{"type": "function"}]}, "tools[0].function: received null, expected it, which is required"),
    ({"tools": [CLOCK], "tool_choice": "always"}, "tool_choice: received"),
]


@pytest.mark.parametrize(("fields", "said"), REFUSED)
def test_tools_that_are_wrong_are_refused(fields, said):
    with pytest.raises(RequestError) as caught:
        Tools.of(asked(**fields), bundle_of())
    assert said in str(caught.value)


def test_a_template_without_tools_takes_none():
    with pytest.raises(RequestError, match="chat template takes none"):
        Tools.of(asked(tools=[CLOCK]), bundle_of(SAID))
    free = bundle_of(taken=False)
    tools = Tools.of(asked(tools=[CLOCK], tool_choice="required"), free)
    with pytest.raises(RequestError, match="compiled without constraints"):
        tools.constraint(free)


def test_tools_and_another_form_are_refused_together():
    bundle = chat_bundle()
    made = bundle_of()
    bundle.grammars, bundle.chat_template = made.grammars, (TEMPLATES["Hermes"], {})
    body = {"messages": [{"role": "user", "content": "x"}], "tools": [CLOCK]}
    with pytest.raises(RequestError, match="received them beside another form of the answer"):
        read_chat(body | {"response_format": {"type": "json_object"}}, bundle)
    found = read_chat(body | {"tool_choice": "required"}, bundle)
    assert found.options["constraint"].kind == "grammar"
    assert "<tool_call>" in bundle.text.decode(found.prompts[0])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("is_call", [False, True])
def test_calls_come_back_as_openai_writes_them(stream, is_call):
    text = "Ah.\n" + CALLS["Hermes"].format("now", "{}") if is_call else "It is noon."
    with puppet_server() as (running, puppet):
        running.model.bundle.chat_template = (TEMPLATES["Hermes"], {})

        def answer(request):
            request.deliver(OutputDelta(0, text[:4], [1]))
            request.deliver(OutputDelta(0, text[4:], [2], generation=generation(text, reason="stop")))

        puppet.submit, submit = lambda *given, **options: answered(submit(*given, **options), answer), puppet.submit
        got = running.chat("what time is it?", tools=[CLOCK], stream=stream)
    if stream:
        deltas = [choice["delta"] for event in got.events for choice in event["choices"]]
        message = {key: value for delta in deltas for key, value in delta.items() if value}
        reasons = [choice["finish_reason"] for event in got.events for choice in event["choices"]]
        reason = reasons[-1]
        assert set(reasons[:-1]) == {None}
    else:
        choice = got.json["choices"][0]
        message, reason = choice["message"], choice["finish_reason"]
    assert message["role"] == "assistant"
    if not is_call:
        assert (message["content"], reason) == (text, "stop")
        return
    (call,) = message["tool_calls"]
    assert (message["content"], reason) == ("Ah.", "tool_calls")
    assert call.pop("id").startswith("call_")
    assert call.pop("index", 0) == 0
    assert call == {"type": "function", "function": {"name": "now", "arguments": "{}"}}


def answered(request, answer):
    answer(request)
    return request
