"""Chat templates in the style of 43 models give in C++ what they give with transformers, byte for byte.

The templates are our own: what they are made of, from macros and namespaces to loops over tools, is what the published
ones of these models are made of.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from jinja2 import TemplateError
from transformers.utils import chat_template_utils

from speccompile.errors import PromptError
from speccompile.runtime.text.chat import apply_chat_template
from tests.native.template_grammar import MESSAGES, VARIABLES, Grammar
from tests.native.test_native_templates import rendered

__all__ = ["rendered"]

FOLDER = Path(__file__).with_name("templates")
GIVEN: dict[str, Any] = json.loads(Path(__file__).with_name("template_conversations.json").read_text())
FEWEST = 6
"""Number of conversations that every template takes: most refuse some."""


@pytest.mark.parametrize("file", sorted(FOLDER.iterdir()), ids=lambda file: file.stem)
def test_it_is_written_as_by_transformers(rendered, file):
    source = file.read_text()
    reference = chat_template_utils._compile_jinja_template(source)
    taken = set()
    for name, messages in GIVEN["conversations"].items():
        for place, more in enumerate(GIVEN["variables"]):
            given = {"tools": None, "documents": None, **GIVEN["special"], **more, "messages": messages}
            given["add_generation_prompt"] = (place + len(name)) % 2 == 0
            found = rendered(source, given)
            try:
                expected = reference.render(**given)
            except (TemplateError, TypeError, ValueError, LookupError, AttributeError):
                assert isinstance(found, tuple), (name, place)  # refused as well
            else:
                assert found == expected, (name, place)
                taken.add(name)
    assert len(taken) >= FEWEST


@pytest.mark.filterwarnings("ignore::SyntaxWarning")  # of the Python that jinja2 makes of 7[0]
@pytest.mark.parametrize(
    "seeds",
    [
        range(300),
        pytest.param(range(300, 12_000), marks=pytest.mark.sweep("a minute of a core, for compiling in Python")),
    ],
    ids=["some", "many"],
)
def test_templates_of_a_grammar_are_written_as_by_jinja2(rendered, seeds):
    """Templates that jinja2 refuses are refused too; some that it takes are, by name, but none is written otherwise."""
    same = refused = 0
    for seed in seeds:
        template = Grammar(seed).template()
        given = {"tools": None, "documents": None, "add_generation_prompt": True, **VARIABLES, "messages": MESSAGES}
        found = rendered(template, given)
        try:
            expected = apply_chat_template(template, MESSAGES, {}, True, VARIABLES)
        except PromptError:
            assert isinstance(found, tuple), (seed, template, found)
        else:
            refused += isinstance(found, tuple)
            same += found == expected
            assert isinstance(found, tuple) or found == expected, (seed, template)
    assert same > len(seeds) / 8
    assert refused < same / 5
