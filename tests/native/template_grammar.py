"""Chat templates by a grammar: what published ones are made of, put together at random."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

WORDS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text())
VARIABLES: dict[str, Any] = WORDS["variables"]
MESSAGES: list[dict[str, Any]] = WORDS["messages"]
NAMES = [*VARIABLES, "messages", "add_generation_prompt", "missing", "ns.a", "ns.l", "m", "z", "u"]


class Grammar:
    """Templates of one seed."""

    def __init__(self, seed: int) -> None:
        self._numbers = random.Random(seed)
        self._loops, self._macros = 0, list[str]()

    def template(self) -> str:
        """Return a template that may be wrong: jinja2 says whether it is."""
        return "{% set ns = namespace(a=1, l=[]) %}" + self._several(0, 5)

    def _one(self, choices: list[str]) -> str:
        return self._numbers.choice(choices)

    def _is(self, share: float) -> bool:
        return self._numbers.random() < share

    def _several(self, depth: int, most: int = 3) -> str:
        return "".join(self._statement(depth) for _ in range(self._numbers.randint(1, most)))

    def _expression(self, depth: int = 0) -> str:
        if depth > 2 or self._is(0.25):
            return self._one(NAMES)
        deeper = depth + 1
        inner = f"({self._expression(deeper)})"
        forms: list[tuple[int, Callable[[], str]]] = [
            (3, lambda: self._one(WORDS["constants"])),
            (5, lambda: f"{inner} | {self._one(WORDS['filters'])}"),
            (2, lambda: f"{inner}.{self._one(WORDS['methods'])}"),
            (2, lambda: f"{inner} is {self._one(['', '', 'not '])}{self._one(WORDS['tests'])}"),
            (2, lambda: f"{inner} {self._one(WORDS['operators'])} ({self._expression(deeper)})"),
            (1, lambda: f"not {inner}"),
            (1, lambda: f"({self._expression(deeper)} if {inner} else {self._expression(deeper)})"),
            (2, lambda: inner + self._one(WORDS["parts"])),
            (2, lambda: "loop." + self._one(WORDS["loop"]) if self._loops else self._one(NAMES)),
            (2, lambda: self._call(deeper) if self._macros else inner),
        ]
        return self._numbers.choices([form for _, form in forms], [weight for weight, _ in forms])[0]()

    def _call(self, depth: int) -> str:
        given = ", ".join(self._expression(depth) for _ in range(self._numbers.randint(0, 2)))
        return f"{self._one(self._macros)}({given})" if self._is(0.7) else f"{self._one(self._macros)}(b={given or 1})"

    def _tag(self, words: str) -> str:
        signs = ["", "", "", "-", "+"]
        return f"{{%{self._one(signs)} {words} {self._one(signs)}%}}"

    def _output(self) -> str:
        signs = ["", "", "-"]
        made = f"{{{{{self._one(signs)} {self._expression()} {self._one(signs)}}}}}"
        return self._one(WORDS["texts"]) + made + self._one(WORDS["texts"])

    def _statement(self, depth: int) -> str:
        if depth > 3 or self._is(0.5):
            return self._output()
        deeper = depth + 1
        set_to = ["z", "u", "ns.a", "ns.l", "ns.a", "content"]
        forms: list[tuple[int, Callable[[], str]]] = [
            (5, lambda: self._choice(deeper)),
            (8, lambda: self._loop(deeper)),
            (4, lambda: self._tag(f"set {self._one(set_to)} = {self._expression()}")),
            (1, lambda: self._tag("set z, u = " + self._one(["(1, 2)", "[3, 4]", f"{self._expression(1)}, 1"]))),
            (2, lambda: self._block("set " + self._one(["z", "z | trim", "u | upper", "z | trim | length"]), deeper)),
            (2, lambda: self._macro(deeper)),
            (1, lambda: self._block("filter " + self._one(["upper", "trim", "indent(2)", "length"]), deeper)),
            (1, lambda: self._block("with " + self._one(["q = 3", "q = z, u = 1", ""]), deeper)),
            (1, lambda: self._block("generation", deeper)),
            (1, lambda: self._one(["{# c #}", "{#- c -#}", "{#+ c #}\n", "  {# c #}\n"])),
            (1, lambda: self._tag("raw") + self._one(["{{ x }}", " {% if %}\n", "\n a"]) + self._tag("endraw")),
            (1, lambda: "{{ raise_exception('no ' ~ z) }}" if self._is(0.2) else self._output()),
        ]
        if self._macros:
            call = f"call{self._one(['', '(u)'])} {self._one(self._macros)}({self._one(['', '1'])})"
            forms.append((2, lambda: self._block(call, deeper)))
        return self._numbers.choices([form for _, form in forms], [weight for weight, _ in forms])[0]()

    def _block(self, words: str, depth: int) -> str:
        return self._tag(words) + self._several(depth) + self._tag("end" + words.split("(")[0].split()[0])

    def _choice(self, depth: int) -> str:
        made = self._tag("if " + self._expression()) + self._several(depth)
        if self._is(0.3):
            made += self._tag("elif " + self._expression()) + self._several(depth)
        if self._is(0.4):
            made += self._tag("else") + self._several(depth)
        return self._one(WORDS["texts"]) + made + self._tag("endif")

    def _loop(self, depth: int) -> str:
        made = self._tag("for " + self._one(WORDS["loops"]))
        self._loops += 1
        made += self._several(depth)
        if self._is(0.2):
            made += self._tag("if " + self._expression()) + self._tag(self._one(["break", "continue"]))
            made += self._tag("endif") + self._one(WORDS["texts"])
        self._loops -= 1
        if self._is(0.2):
            made += self._tag("else") + self._several(depth)
        return made + self._tag("endfor")

    def _macro(self, depth: int) -> str:
        name, before, loops = self._one(["f", "g", "h"]), self._macros, self._loops
        self._macros, self._loops = [*before], 0
        made = self._tag(f"macro {name}({self._one(WORDS['parameters'])})") + self._several(depth)
        made += self._one(["", "", "{{ a }}", "{{ b }}", "{{ caller() if caller }}"])
        self._macros, self._loops = [*before, name], loops
        return made + self._tag("endmacro")
