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
CASES = json.loads(Path(__file__).with_name("template_cases.json").read_text())
VARIABLES: dict[str, Any] = CASES["variables"]
ENDLESS: dict[str, str] = CASES["endless"] | {
    "{% if 1 %}" * 400 + "{% endif %}" * 400: "deeper than",
    "{{ " + "(" * 4000 + "1" + ")" * 4000 + " }}": "deeper than",
    "{{ " + "not " * 4000 + "1 }}": "deeper than",
    "x" * 2**18 + "x": "expected at most 262144",
}
LARGE = [template for template, said in ENDLESS.items() if "seconds" not in said]
"""Templates that a size ends."""


@pytest.fixture(scope="module")
def rendered(native_build: Path) -> Iterator[Any]:
    """Yield what renders a template in C++: text, or (message, line)."""
    running = subprocess.Popen(
        [native_build / "template_lines"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

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


def jinja2_writes(template: str, variables: dict[str, Any]) -> str:
    """Return what jinja2 writes, in the environment of Python's runtime."""
    return apply_chat_template(template, [], {}, False, variables)


@pytest.mark.parametrize(
    "template",
    [CHATML, LLAMA_3.replace('strftime_now("%d %b %Y")', '"today"'), MISTRAL, TOOLS],
    ids=["chatml", "llama_3", "mistral", "tools"],
)
@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("opens", [True, False])
def test_prompts_are_those_of_python(rendered, template, conversation, opens):
    tools = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
    for given in (None, [], tools):
        messages = CONVERSATIONS[conversation]
        variables = {"tools": given, "documents": None, **SPECIAL, "add_generation_prompt": opens, "messages": messages}
        assert rendered(template, variables) == apply_chat_template(
            template, messages, SPECIAL, opens, {"tools": given}
        )


def test_expressions_are_those_of_jinja2(rendered):
    for expression in CASES["expressions"]:
        template = f"[{{{{ {expression} }}}}]"
        assert rendered(template, VARIABLES | {"messages": []}) == jinja2_writes(template, VARIABLES), expression


@pytest.mark.parametrize("template", CASES["blocks"])
def test_blocks_are_those_of_jinja2(rendered, template):
    assert rendered(template, VARIABLES | {"messages": []}) == jinja2_writes(template, VARIABLES)


@pytest.mark.parametrize("template", CASES["refused"])
def test_what_jinja2_refuses_is_refused(rendered, template):
    with pytest.raises(PromptError):
        jinja2_writes(template, VARIABLES)
    message, line = rendered(template, VARIABLES | {"messages": []})
    assert message
    assert line == (2 if template.startswith("a\n") else 1)


def check_ended(rendered, template):
    message, _ = rendered(template, VARIABLES)
    assert ENDLESS[template] in message
    assert rendered("{{ 1 }}", {}) == "1"


@pytest.mark.parametrize("template", LARGE, ids=range(len(LARGE)))
def test_templates_without_end_are_ended(rendered, template):
    check_ended(rendered, template)


@pytest.mark.sweep("five seconds of a core; limits of sizes are in the first tier")
@pytest.mark.parametrize("template", set(ENDLESS) - set(LARGE), ids=["calls"])
def test_templates_without_end_are_ended_by_the_clock(rendered, template):
    check_ended(rendered, template)


@pytest.mark.parametrize("template", CASES["unsupported"])
def test_what_is_not_supported_is_named_and_never_left_out(rendered, template):
    message, _ = rendered(template, VARIABLES)
    assert "not supported here" in message or "undefined" in message or "has no attribute" in message


def test_namespaces_that_hold_themselves_are_no_leak(rendered):
    assert rendered("{% set n = namespace() %}{% set n.x = n %}{% set n.y = [n] %}{{ n.x.y is defined }}", {}) == "True"
