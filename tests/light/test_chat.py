import sys
from datetime import datetime

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from speccompile.errors import BundleError, EngineError, PromptError
from speccompile.runtime.text import chat
from speccompile.runtime.text.chat import apply_chat_template, read_chat

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

CHATML = """{% for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content | trim + '<|im_end|>' + '\\n' }}
{% endfor %}
{% if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{% endif %}"""

LLAMA_3 = """{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = strftime_now("%d %b %Y") %}{% endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}{{- "Environment: ipython\\n" }}{% endif %}
{{- "Today Date: " + date_string + "\\n\\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {%- if message.tool_calls is defined %}
        {%- for call in message.tool_calls %}{{ call | tojson(indent=2) }}{% endfor %}
    {%- else %}
        {{- message['content'] | trim }}
    {%- endif %}
    {{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}"""

MISTRAL = """{{ bos_token }}{% set state = namespace(previous='assistant') %}
{% for message in messages %}
    {% if message['role'] == state.previous %}
        {{ raise_exception('Roles must alternate: user/assistant/user/...') }}
    {% endif %}
    {% set state.previous = message['role'] %}
    {% if message['role'] == 'system' %}{% continue %}{% endif %}
    {% if message['role'] == 'user' %}
        {{- '[INST] ' + message['content'] + ' [/INST]' }}
    {% else %}
        {% generation %}{{ message['content'] + eos_token }}{% endgeneration %}
    {%- endif %}
{% endfor %}"""

CONVERSATIONS = {
    "question": [{"role": "user", "content": " What is <b>größer</b> & 'better'? 你好 "}],
    "system": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi\n"}],
    "turns": [
        {"role": "user", "content": "1 < 2?"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "sure?"},
    ],
    "tools": [{"role": "user", "content": "x", "tool_calls": [{"name": "größe", "arguments": {"a": [1, 2.5, None]}}]}],
}


@pytest.fixture(scope="module")
def reference() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **SPECIAL)


@pytest.mark.parametrize("template", [CHATML, LLAMA_3, MISTRAL], ids=["chatml", "llama_3", "mistral"])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_prompts_are_those_of_transformers(reference, template, conversation, add_generation_prompt):
    messages = CONVERSATIONS[conversation]
    expected = reference.apply_chat_template(
        messages, chat_template=template, tokenize=False, add_generation_prompt=add_generation_prompt
    )
    assert apply_chat_template(template, messages, SPECIAL, add_generation_prompt) == expected


def test_a_template_may_know_the_day():
    written = apply_chat_template("{{ strftime_now(format='%Y') }}", [], {})
    assert int(written) in (datetime.now().year, datetime.now().year - 1)


def test_a_template_that_refuses_says_why():
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    message = "the chat template does not take these messages: Roles must alternate: user/assistant/user/"
    with pytest.raises(PromptError, match=message) as caught:
        apply_chat_template(MISTRAL, messages, SPECIAL)
    assert caught.value.hint == "change the messages"
    with pytest.raises(PromptError) as caught:
        apply_chat_template(MISTRAL, messages, SPECIAL, instead="leave out --chat (chat=True)")
    assert caught.value.hint == "change the messages, or leave out --chat (chat=True)"


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''['__class__'].mro() }}",
        "{{ messages[0] | attr('__class__') }}{{ messages.__init__.__globals__ }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ strftime_now.__globals__.json.codecs.open('/etc/passwd') }}",
        "{{ '{0.__class__.__init__.__globals__}'.format(raise_exception) }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
    ],
)
def test_a_template_that_reaches_into_python_is_refused(template):
    with pytest.raises(
        PromptError, match=r"the chat template does not take these messages: .*(unsafe|undefined|not safe)"
    ):
        apply_chat_template(template, [{"role": "user", "content": "a"}], {})


@pytest.mark.parametrize(
    "template", ["{% include '/etc/passwd' %}", "{{ open('/etc/passwd') }}", "{{ 1 + messages }}", "{{ 1 // 0 }}"]
)
def test_a_template_that_fails_is_a_refusal(template):
    with pytest.raises(PromptError, match=r"the chat template does not take these messages: ."):
        apply_chat_template(template, [], {})


@pytest.mark.parametrize("template", ["a\n{% if %}", "a\n{{ 1 | nothing }}", "a\n{% for x in y %}"])
def test_a_broken_template_says_the_line(template):
    with pytest.raises(PromptError, match="the chat template is broken in line 2: "):
        apply_chat_template(template, [], {})


def test_messages_that_are_no_plain_data_are_refused():
    with pytest.raises(PromptError, match="does not take these messages: Object of type object is not JSON"):
        apply_chat_template(CHATML, [{"role": "user", "content": object()}], {})


def test_a_missing_package_is_named(monkeypatch):
    chat._compile.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(EngineError, match="chat templates need the Python package jinja2, which is not installed"):
        apply_chat_template(CHATML, [], {})


def test_a_chat_file_is_read(tmp_path):
    (tmp_path / "chat.json").write_text('{"template": "größe", "special_tokens": {"bos_token": "<s>"}}', "utf-8")
    assert read_chat(tmp_path / "chat.json") == ("größe", {"bos_token": "<s>"})


@pytest.mark.parametrize("content", ["[]", '{"template": 1, "special_tokens": {}}', '{"template": ""}'])
def test_a_chat_file_of_another_structure_is_named(tmp_path, content):
    (tmp_path / "chat.json").write_text(content)
    with pytest.raises(BundleError, match=r'chat\.json: expected {"template": text, "special_tokens": {name: text}}'):
        read_chat(tmp_path / "chat.json")


def test_a_chat_file_with_other_tokens_is_named(tmp_path):
    (tmp_path / "chat.json").write_text('{"template": "", "special_tokens": {"bos_token": 1}}')
    with pytest.raises(BundleError, match=r'chat\.json: expected {"template"'):
        read_chat(tmp_path / "chat.json")


@pytest.mark.parametrize("content", [b"{", b"\xff"])
def test_a_chat_file_that_is_no_json_is_named(tmp_path, content):
    (tmp_path / "chat.json").write_bytes(content)
    with pytest.raises(BundleError, match=r"chat\.json: expected JSON: "):
        read_chat(tmp_path / "chat.json")


def test_named_templates_are_chosen_as_transformers_chooses_them(reference):
    """Tools take `tool_use`, everything else `default`; any by its name."""
    named = {"default": "plain", "tool_use": "with {{ tools | length }} tools", "rag": "rag"}
    messages, tools = [{"role": "user", "content": "a"}], [{"type": "function", "function": {"name": "f"}}]
    reference.chat_template = named
    for variables in ({}, {"tools": tools}, {"chat_template": "rag"}, {"tools": tools, "chat_template": "default"}):
        expected = reference.apply_chat_template(messages, tokenize=False, **variables)
        assert apply_chat_template(named, messages, SPECIAL, variables=variables) == expected
    with pytest.raises(PromptError, match="has no chat template 'other', only default, rag, tool_use"):
        apply_chat_template(named, messages, SPECIAL, variables={"chat_template": "other"})
    with pytest.raises(PromptError, match="has no chat template 'default', only rag"):
        apply_chat_template({"rag": "rag"}, messages, SPECIAL)


def test_a_chat_file_of_named_templates_is_read(tmp_path):
    (tmp_path / "chat.json").write_text('{"templates": {"default": "a", "rag": "b"}, "special_tokens": {}}', "utf-8")
    assert read_chat(tmp_path / "chat.json") == ({"default": "a", "rag": "b"}, {})


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("a\n{% break %}", "broken in line 2: 'break' stands outside a loop"),
        ("{% for a in [1] %}{% macro f() %}{% continue %}{% endmacro %}{% endfor %}", "'continue' stands outside"),
        ("{% if 1 %}" * 400 + "{% endif %}" * 400, "broken or nested too deep"),
        ("{{ " + "(" * 4000 + "1" + ")" * 4000 + " }}", "broken or nested too deep"),
        (
            "a\n{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "takes more than 0 seconds (its line 2)",
        ),
        ("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}", "it takes more"),
        ("{% for i in range(9999) %}{{ 'a' * 9999 }}{% endfor %}", "makes a text of more than 16777216 characters"),
        ("\n\n{{ 'a' * 10 ** 10 }}", "characters (its line 3)"),
        (
            "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
            "a text of more",
        ),
        (
            "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
            "a text of more",
        ),
        ("{{ 2 ** (10 ** 9) }}", "it computes a power of 1000000000, the largest is 64"),
        ("{{ '%99999999d' % 1 }}", "it formats to a width of 99999999"),
        ("{{ '{:99999999}'.format(1) }}", "it formats to a width of 99999999"),
        ("{{ 'a'.ljust(10 ** 10) }}", "a text of more"),
    ],
)
def test_templates_without_end_are_ended_and_their_line_is_named(monkeypatch, template, message):
    monkeypatch.setattr("speccompile.runtime.text.template_limits.SECONDS", 0.3)
    with pytest.raises(PromptError) as caught:
        apply_chat_template(template, [], {})
    assert message in str(caught.value)


TWICE = "{% set twice = namespace(x=[1]) %}{% for i in range(60) %}{% set twice.x = [twice.x, twice.x] %}{% endfor %}"
"""twice.x becomes a list that holds a list twice, which holds a list twice, and so on: 2 ** 60 values to write."""
DEEP = "{% set deep = namespace(x=1) %}{% for i in range(9999) %}{% set deep.x = (deep.x,) %}{% endfor %}"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("'a' | center(10 ** 9)", "a text of more"),
        ("'a\t'.expandtabs(tabsize=10 ** 9)", "a text of more"),
        ("'a'.encode().center(10 ** 9)", "a text of more"),
        ("(1).to_bytes(10 ** 9, 'big')", "a text of more"),
        ("'%*d' % (10 ** 9, 3)", "a text of more"),
        ("'%*d' | format(10 ** 9, 3)", "a text of more"),
        ("('%999999d' * 999) % 3", "a text of more"),
        ("('%(x)s' * 9999) % {'x': 'a' * 9999}", "a text of more"),
        ("'{:>{w}}'.format(3, w=10 ** 9)", "a width that it computes"),
        ("('{0}' * 9999).format('a' * 9999)", "a text of more"),
        ("('a' * 10 ** 6) | replace('', 'b' * 10 ** 6)", "a text of more"),
        ("('a' * 10 ** 5) | indent(10 ** 9, first=true)", "a text of more"),
        ("('a\\n' * 10 ** 4) | indent(10 ** 4)", "a text of more"),
        ("('a ' * 10 ** 4) | wordwrap(1, wrapstring='b' * 10 ** 5)", "a text of more"),
        ("('http://a.b/ ' * 1000) | urlize(rel='b' * 10 ** 5)", "a text of more"),
        ("('a' * 10 ** 6) | striptags", "the filter striptags more than 65536 characters"),
        ("(['a' * 10 ** 6] * 99) | join", "a text of more"),
        ("range(999) | map('string') | join('a' * 10 ** 5)", "a text of more"),
        ("'b'.join(['a' * 10 ** 6] * 99)", "a text of more"),
        ("('a' * 10 ** 5).translate({97: 'b' * 10 ** 5})", "a text of more"),
        ("range(99999) | map('center', 10 ** 4) | list", "a text of more"),
        ("{'a': [1] * 10 ** 5} | tojson(indent=10 ** 5)", "a text of more"),
        ("[1] * 10 ** 9", "a list of more than 1048576 elements"),
        ("[1] | batch(10 ** 9, 0) | list", "a list of more"),
        ("[1] | slice(10 ** 9) | list", "a list of more"),
        ("('a,' * 10 ** 6 * 2).split(',')", "a list of more"),
        ("('a' * 10 ** 7) | list", "a list of more"),
        ("[[1]] | sum(start=[])", "sums up values that are no numbers"),
        ("((10 ** 60) ** 60) ** 60", "an integer of more than 16384 bits"),
        ("3.5 | round(10 ** 9, 'ceil')", "rounds to a precision of more than 308 digits"),
        ("('a' * 10 ** 6).rfind('b' ~ 'a' * 10 ** 5)", "searches a text of 1000000 characters"),
        ("('b' * 10 ** 6) | trim('a' * 10 ** 6)", "strips more characters"),
        ("lipsum(10 ** 6)", "'lipsum' is undefined"),
        ("twice.x", "a list of more"),
        ("twice.x ~ ''", "a list of more"),
        ("twice.x == [1]", "a list of more"),
        ("twice.x | tojson", "a list of more"),
        ("twice.x in [1]", "a list of more"),
        ("{deep.x: 1}", "nests values more than 200 deep"),
        ("messages[deep.x]", "nests values more than 200 deep"),
        ("[deep.x] | unique | list", "nests values more than 200 deep"),
    ],
)  # fmt: skip
def test_one_call_that_would_take_minutes_or_gigabytes_is_refused_before(expression, message):
    template = TWICE + DEEP + "\n{{ " + expression + " }}"
    with pytest.raises(PromptError) as caught:
        apply_chat_template(template, [], {})
    assert message in str(caught.value)
    assert "(its line 2)" in str(caught.value)


def test_a_template_that_keeps_what_it_makes_is_ended_at_its_memory(monkeypatch):
    monkeypatch.setattr("speccompile.runtime.text.template_limits.MEMORY_MIB", 100)
    template = """{% set n = namespace(x=[]) %}{% for i in range(999) %}
        {% set n.x = [n.x, 'a' * 10 ** 7 ~ i] %}{% endfor %}"""
    with pytest.raises(PromptError, match=r"takes more than 100 MiB of memory \(its line 2\)"):
        apply_chat_template(template, [], {})


def test_the_line_that_writes_too_much_is_named():
    template = "a\n{% for i in range(9999) %}\n" + "b" * 9999 + "\n{% endfor %}"
    with pytest.raises(PromptError, match=r"a text of more than 16777216 characters \(its line [23]\)"):
        apply_chat_template(template, [], {})


def test_a_template_that_is_too_long_is_refused():
    with pytest.raises(PromptError, match="it has 300000 characters, expected at most 262144"):
        apply_chat_template("a" * 300_000, [], {})


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages | map(attribute='content') | join(', ') }}",
        "{% for role, group in messages | groupby('role') %}{{ role }}: {{ group | length }}{% endfor %}",
        "{{ messages | selectattr('role', 'equalto', 'user') | list | tojson(indent=4) }}",
        "{{ messages | rejectattr('role', 'in', ['user']) | first | default('none', true) }}",
        "{{ messages | tojson(separators=(', ', ': '), sort_keys=true) }}{{ messages[0].content | tojson }}",
        "{{ messages[0].items() | list | sort }}{{ messages[0] | dictsort }}{{ messages[0] | items | list }}",
        "{{ ['b', 'a', 'b'] | unique | sort | reverse | join }}{{ [3, 1] | sum }}{{ 2.5 | round(1) }}",
        "{{ 'a b' | title | center(9) | trim | replace(' ', '-') | indent(2, true) | wordwrap(3) }}",
        "{{ 'x={} {:>4}'.format(1, 2) }}{{ '%s-%04d' % ('a', 3) }}{{ '%s' | format('é') }}{{ 'a,b'.split(',') }}",
        "{% set n = namespace(t='') %}{% for m in messages %}{% set n.t = n.t ~ m.role + '\n' %}{% endfor %}{{ n.t }}",
        "{% macro f(x, y=2) %}{{ x * y }}{{ caller() if caller }}{% endmacro %}{% call f('a') %}b{% endcall %}",
        "{% filter upper %}{{ messages[-1].content[:3] }}{% endfilter %}{% set x %}a{{ 1 }}{% endset %}{{ x ~ [x] }}",
        "{% for a in range(3) if a is odd %}{{ loop.index }}{{ loop.last }}{{ cycler('a', 'b').next() }}{% endfor %}",
        "{{ messages[0].content.strip().startswith('W') and 'role' in messages[0] and messages[0] is mapping }}",
        "{{ {(1, 2): 'a'}[(1, 2)] }}{{ dict(a=1).get('a') }}{{ 7 // 2 ** 2 }}{{ [1] * 2 + [3] }}{{ (1,) < (2,) }}",
    ],
)
def test_filters_and_methods_are_those_of_transformers(reference, template):
    """Looking at the size of what they make changes nothing."""
    messages = CONVERSATIONS["turns"] + CONVERSATIONS["question"]
    expected = reference.apply_chat_template(messages, chat_template=template, tokenize=False)
    assert apply_chat_template(template, messages, SPECIAL, add_generation_prompt=False) == expected
