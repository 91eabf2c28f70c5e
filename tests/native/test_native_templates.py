"""Chat templates in C++ write what jinja2 writes, byte for byte, and end where jinja2's sandbox would."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from speccompile.errors import PromptError
from speccompile.runtime.text.chat import apply_chat_template
from tests.light.test_chat import CHATML, CONVERSATIONS, LLAMA_3, MISTRAL, SPECIAL

TOOLS = """{%- macro kind(parameter, deep=false) -%}
    {{- parameter.type if parameter.type is string else parameter.type | join(' or ') }}{% if deep %}!{% endif %}
{%- endmacro -%}
{% set ns = namespace(found=false, count=0) %}
{% for tool in tools or [] %}
  {# a comment -#}
  {{- loop.index ~ '/' ~ loop.length }} {{ tool.function.name | upper }}
  {%- for name, parameter in tool['function'].parameters.properties.items() if name != 'hidden' %}
    {{- ', ' if not loop.first }}{{ name }}: {{ kind(parameter, deep=loop.last) }}
    {%- set ns.count = ns.count + 1 %}{% set ns.found = true %}
  {%- else %}
 nothing
  {%- endfor %}

{% endfor -%}
{{ ns.count }}{{ ns.found }}{{ tools | tojson(indent=2) if tools }}
{% raw %}{{ not read }}{% endraw %}"""

PARAMETERS = {
    "type": "object",
    "properties": {"town": {"type": "string"}, "days": {"type": ["integer", "null"]}, "hidden": {"type": "string"}},
}
VARIABLES: dict[str, Any] = {
    "text": "  Größe <b>&'\"  \n zwei  ", "empty": "", "number": 7, "real": 2.5, "none": None, "true_": True,
    "list": [3, 1, 2], "words": ["b", "a", "C", "a"], "nested": [[1, 2], [3]],
    "dict": {"b": 1, "a": {"c": "ä"}, "items": 5},
    "people": [{"name": "x", "age": 3}, {"name": "y", "age": 1}, {"name": "z", "age": 3, "ok": True}],
}  # fmt: skip
EXPRESSIONS = [
    "1 + 2 * 3 - 4 // 3 % 2", "7 / 2", "-7 // 2", "-7 % 3", "2 ** 3 ** 2", "-2 ** 2", "1.5 + 1", "10 / 4 * 2", "7.5 // 2", "1e3",
    "'a' + 'b' ~ 1 ~ none ~ true_ ~ 1.0", "'a' * 3", "[1] + [2]", "(1, 2) + (3,)", "(1,)", "[]", "{}", "{'a': 1, 'b': [2]}",
    "1 < 2 < 3", "1 < 2 > 5", "'a' in 'abc'", "1 in list", "'b' in dict", "4 not in list", "not 1", "1 == 1.0", "true_ == 1",
    "none is none", "missing is defined", "missing is not defined", "text is string", "dict is mapping", "list is iterable",
    "number is number and number is integer", "real is float", "number is odd", "4 is even", "9 is divisibleby 3", "9 is divisibleby(3)",
    "true_ is true", "true_ is boolean", "number is boolean", "text is sequence", "'a' is in 'abc'", "1 is eq 1", "3 is gt 2",
    "text[2]", "text[-1]", "text[2:7]", "text[::-1]", "list[1:]", "list[-2:]", "list[::2]", "list[5:]", "list[9] is defined",
    "dict.a.c", "dict['a']['c']", "dict['items']", "dict.items() | list", "dict.get('x', 'y')", "dict.get('b')", "dict.keys() | list",
    "dict.values() | first", "dict.missing is undefined", "missing or 'x'", "empty or 'x'", "number and text | trim",
    "'yes' if number > 5 else 'no'", "'yes' if number > 9", "('a' if none else 'b') + 'c'",
    "text.strip()", "text | trim", "text.lstrip() ~ '|'", "text.rstrip('\\n ei')", "'xxabxx'.strip('x')", "'a,b,,c'.split(',')",
    "'a,b,c'.split(',', 1)", "'a  b c '.split()", "' a b c'.split(none, 1)", "'a,b,c'.rsplit(',', 1)", "'a\\nb\\r\\nc'.splitlines()",
    "'abc'.startswith('ab')", "'abc'.startswith(('x', 'a'))", "'abc'.endswith('bc')", "'abc'.replace('b', 'XX')", "'aaa'.replace('a', 'b', 2)",
    "'abc' | replace('', '-')", "'abc'.find('c')", "'äbc'.find('c')", "'abcabc'.count('bc')", "'aBc'.upper() ~ 'aBc'.lower()",
    "'hello world'.title() ~ ('hello wORLD' | capitalize)", "'prefix-x'.removeprefix('prefix-')", "'x.py'.removesuffix('.py')", "'12'.isdigit()",
    "', '.join(words)", "words | join(', ')", "people | join('/', attribute='name')", "list | sort", "words | sort", "words | sort(reverse=true)",
    "people | sort(attribute='age') | map(attribute='name') | join", "words | unique | list", "list | reverse | list", "'abc' | reverse",
    "list | first ~ (list | last)", "list | length", "dict | length", "text | length", "'äöü' | length", "list | sum", "list | min ~ (list | max)",
    "people | selectattr('age', 'equalto', 3) | list | length", "people | rejectattr('ok') | map(attribute='name') | list",
    "list | select('odd') | list", "list | reject('odd') | list", "words | map('upper') | list", "people | map(attribute='ok', default='-') | list",
    "dict | tojson", "dict | tojson(indent=2)", "[1.0, 1e20, true_, none, 'ä<>&\\''] | tojson", "dict | dictsort", "dict | items | list", "dict | string",
    "['a', 1.5, none, {'b': 'it\\'s'}] | string", "number | float", "'3.7' | int", "'x' | int(5)", "real | round", "2.567 | round(2)", "-3 | abs",
    "text | e", "missing | default('x')", "empty | default('x', true)", "none | default('x')", "'a\\nb\\n\\nc' | indent(2)", "'a\\nb' | indent(2, true)",
    "'abc' | list", "range(3) | list", "range(1, 10, 3) | list", "range(3, 0, -1) | list", "'%' ~ 'a' 'b'", "'\\u00e4\\x41\\t|'",
    "[1, [2, 3]] == [1, [2, 3]]", "{'a': 1} == {'a': 1.0}", "nested | map('first') | list", "'a' < 'b'", "[1, 2] < [1, 3]", "messages is defined",
    "1_000", "list | tojson(separators=(',', ':'))", "words | join | upper", "1 if 2 if 0 else 3", "not none == true_", "('a', 'b')[1]", "[1, 2, 3][-1]",
]  # fmt: skip
BLOCKS = [
    "{% for x in list %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}",
    "{% for x in list if x > 1 %}{{ loop.index }}{{ x }}{% else %}none{% endfor %}|{% for x in [] %}{% else %}none{% endfor %}",
    "{% for x in list %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% endfor %}",
    "{% for a, b in nested[:1] %}{{ a }}-{{ b }}{% endfor %}{% for k, v in dict.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% set x = 1 %}{% for y in list %}{% set x = x + y %}{{ x }}{% endfor %}{{ x }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c %}  in a block {{ a }}{% endset %}{{ c | trim }}{% set d | upper %}x{% endset %}{{ d }}",
    "{% set ns = namespace(a=1) %}{% for y in list %}{% set ns.a = ns.a + y %}{% endfor %}{{ ns.a }}{{ ns.b is defined }}",
    "{% macro f(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, c=3) }}{{ f(1, 2, 3) }}{{ f() }}",
    "{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}inside {{ number }}{% endcall %}",
    "{% filter upper %}a{{ words[0] }}{% endfilter %}{% with y = 3, z = 4 %}{{ y + z }}{% endwith %}{{ y is defined }}",
    "  {% if number %}\n    a\n  {% elif none %}\n b\n  {% else %}\n c\n  {% endif %}\n  d\n",
    "a  {%- if number -%}  b  {%- endif -%}  c\n  {%+ if number %}\n d {% endif +%}\n e",
    "x {#- comment -#} y {# other #}\n z {{- 1 -}} w {{ 2 }}\n\n",
    "{{ 'a' }}\n{{- 'b' }}\n{% if 1 %}\n\n{% endif %}\n{{ {'a': {'b': 1}}['a']['b'] }}",
    "{% raw %}  {{ x }} {% if %}{% endraw %}|{%- raw -%}  a  {%- endraw %} b",
    "{% if missing is defined and missing.x %}a{% endif %}{% if 'a' in missing %}b{% endif %}{{ missing }}{{ dict.none }}{{ missing | length }}",
    "a\r\nb\r\n{% if 1 %}\r\nc{% endif %}",
    "{% for r in people %}{{ loop.cycle('a', 'b') }}{{ loop.previtem is defined and loop.previtem.name }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% if (number > 1 and\n   real < 3) or none %}\n  {{- 'lines' }}\n{%- endif %}",
]  # fmt: skip
REFUSED = [
    "{{ raise_exception('no') }}", "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ missing.x }}", "{{ missing() }}", "{{ 1 / 0 }}", "{{ [1] + 'a' }}", "{{ messages.append(1) }}",
    "{{ dict.update(a=1) }}", "{{ messages.__class__.__mro__ }}", "{{ 1 < 'a' }}", "{{ 5 | length }}", "{% for x in 5 %}{% endfor %}", "{{ range(10 ** 6) | list }}",
    "{% for a, b in list %}{% endfor %}", "a\n{% if %}", "a\n{{ 1 | nothing }}", "a\n{% for x in y %}", "{% break %}", "{% endif %}", "{{ (1 }}", "{{ 'a }}",
    "{% unknown %}", "{{ 1 2 }}", "{% set list.x = 1 %}", "{% include 'x' %}", "{{ none.x.y }}", "{{ {}.a.b }}",
]  # fmt: skip
ENDLESS = {
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}": "more than",  # 1024 MiB, or 5 seconds
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}": "more than 5 seconds",
    "{% for i in range(9999) %}{{ 'a' * 9999 }}{% endfor %}": "it makes a text of more than",
    "\n\n{{ 'a' * 10 ** 10 }}": "it makes a text of more than",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}": "it makes a text of more",
    "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}": "others inside",
    "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x | tojson }}": "others",
    "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}"
    "{% endfor %}{{ n.x == n.y }}": "others inside",
    "{% set n = namespace(x=1) %}{% for i in range(9999) %}{% set n.x = (n.x,) %}{% endfor %}": "deeper than 200",
    "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}": "deeper than",
    "{% if 1 %}" * 400 + "{% endif %}" * 400: "deeper than",
    "{{ " + "(" * 4000 + "1" + ")" * 4000 + " }}": "deeper than",
    "{{ " + "not " * 4000 + "1 }}": "deeper than",
    "{{ [1] * 10 ** 9 }}": "a list of more",
    "{{ 2 ** 64 }}": "more than 64 bits",
    "{{ 9 ** 9 ** 9 }}": "more than 64 bits",
    "x" * 2**18 + "x": "expected at most 262144",
}  # fmt: skip
UNSUPPORTED = ["{{ '%d' % 1 }}", "{{ 'ä' | upper }}", "{{ 1 | wordwrap }}", "{{ text.center(9) }}", "{% for x in list recursive %}{% endfor %}"]


@pytest.fixture(scope="module")
def rendered(native_build: Path) -> Iterator[Any]:
    """Yield what renders a template in C++: text, or (message, line)."""
    running = subprocess.Popen([native_build / "template_lines"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def render(template: str, variables: dict[str, Any]) -> str | tuple[str, int]:
        assert running.stdin
        assert running.stdout
        running.stdin.write(json.dumps({"template": template, "variables": variables}) + "\n")
        running.stdin.flush()
        found = json.loads(running.stdout.readline())
        return found["text"] if "text" in found else (found["error"], found["line"])

    yield render
    running.communicate()
    assert running.returncode == 0


def expected(template: str, variables: dict[str, Any]) -> str:
    """Return what jinja2 writes, in the environment of Python's runtime."""
    return apply_chat_template(template, [], {}, False, variables)


@pytest.mark.parametrize("template", [CHATML, LLAMA_3.replace('strftime_now("%d %b %Y")', '"today"'), MISTRAL, TOOLS], ids=["chatml", "llama_3", "mistral", "tools"])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("opens", [True, False])
def test_prompts_are_those_of_python(rendered, template, conversation, opens):
    tools = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
    for given in (None, [], tools):
        messages = CONVERSATIONS[conversation]
        variables = {"tools": given, "documents": None, **SPECIAL, "add_generation_prompt": opens, "messages": messages}
        assert rendered(template, variables) == apply_chat_template(template, messages, SPECIAL, opens, {"tools": given})


def test_expressions_are_those_of_jinja2(rendered):
    for expression in EXPRESSIONS:
        template = f"[{{{{ {expression} }}}}]"
        assert rendered(template, VARIABLES | {"messages": []}) == expected(template, VARIABLES), expression


@pytest.mark.parametrize("template", BLOCKS, ids=range(len(BLOCKS)))
def test_blocks_are_those_of_jinja2(rendered, template):
    assert rendered(template, VARIABLES | {"messages": []}) == expected(template, VARIABLES)


@pytest.mark.parametrize("template", REFUSED)
def test_what_jinja2_refuses_is_refused(rendered, template):
    with pytest.raises(PromptError):
        expected(template, VARIABLES)
    message, line = rendered(template, VARIABLES | {"messages": []})
    assert message
    assert line == (2 if template.startswith("a\n") else 1)


@pytest.mark.parametrize("template", ENDLESS, ids=range(len(ENDLESS)))
def test_templates_without_end_are_ended(rendered, template):
    message, _ = rendered(template, VARIABLES)
    assert ENDLESS[template] in message
    assert rendered("{{ 1 }}", {}) == "1"


@pytest.mark.parametrize("template", UNSUPPORTED)
def test_what_is_not_supported_is_named_and_never_left_out(rendered, template):
    message, _ = rendered(template, VARIABLES)
    assert "not supported here" in message or "undefined" in message or "has no attribute" in message


def test_namespaces_that_hold_themselves_are_no_leak(rendered):
    assert rendered("{% set n = namespace() %}{% set n.x = n %}{% set n.y = [n] %}{{ n.x.y is defined }}", {}) == "True"
