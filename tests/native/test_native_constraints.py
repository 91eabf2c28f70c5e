"""Constraints in C++ allow the tokens that llguidance allows, step by step, and refuse what they do not know."""

import json
import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from speccompile.errors import UsageError
from speccompile.runtime.constraints import GrammarCompiler
from tests.light.test_constraints import END, SIZE, TOKENIZER, manifest
from tests.native import tokenizers_of_families

CASES = json.loads(Path(__file__).with_name("constraint_cases.json").read_text())
WALKS, STEPS = 3, 24
"""Random texts of each constraint, and their tokens at most."""
Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def ask(native_build: Path) -> Iterator[Ask]:
    """Yield what asks the runtime in C++ about a constraint of the demo's tokenizer."""
    running = subprocess.Popen(
        [native_build / "constraint_lines"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def asked(**line: Any) -> dict[str, Any]:
        assert running.stdin
        assert running.stdout
        running.stdin.write(json.dumps(line) + "\n")
        running.stdin.flush()
        found: dict[str, Any] = json.loads(running.stdout.readline())
        return found

    asked(tokenizer=str(TOKENIZER), vocabulary_size=SIZE, ends=[END])
    yield asked
    assert running.stdin
    running.stdin.close()
    assert running.wait() == 0


@pytest.fixture(scope="module")
def grammars() -> GrammarCompiler:
    return GrammarCompiler(manifest(), TOKENIZER, "hash")


def walk(
    grammars: GrammarCompiler, kind: str, text: Any, seed: int, ends: Sequence[int] = (END,)
) -> tuple[list[int], list[tuple[str, list[int]]]]:
    """Return a random text's tokens, and at each step the finish reason and the allowed tokens."""
    matcher, chosen = grammars.compile(kind, text).matcher(ends), random.Random(seed)
    tokens, steps = list[int](), list[tuple[str, list[int]]]()
    while True:
        end = matcher.end
        allowed = [] if end else np.flatnonzero(matcher.mask()).tolist()
        steps.append((end, allowed))
        if end or len(tokens) == STEPS:
            return tokens, steps
        others = [token for token in allowed if token not in ends]
        tokens.append(chosen.choice(others))
        matcher.accept_tokens(tokens[-1:])


def compare(ask: Ask, grammars: GrammarCompiler, kind: str, text: Any, ends: Sequence[int] = (END,)) -> None:
    """Assert that random texts of a constraint may go on with the same tokens in both runtimes."""
    for seed in range(WALKS):
        tokens, expected = walk(grammars, kind, text, seed, ends)
        found = ask(kind=kind, text=text, tokens=tokens)
        assert "error" not in found, found
        for place, (step, (end, allowed)) in enumerate(zip(found["steps"], expected, strict=True)):
            behind = tokens[:place]
            assert step["end"] == end, behind
            assert set(step["allowed"]) == set(allowed), (behind, set(step["allowed"]) ^ set(allowed))


@pytest.mark.parametrize("case", CASES["taken"], ids=lambda case: f"{case[0]}-{json.dumps(case[1])[:40]}")
def test_tokens_are_those_of_llguidance(ask: Ask, grammars: GrammarCompiler, case: list[Any]):
    compare(ask, grammars, *case)


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: f"{case[0]}-{json.dumps(case[1])[:40]}")
def test_what_both_refuse(ask: Ask, grammars: GrammarCompiler, case: list[Any]):
    kind, text = case
    assert "error" in ask(kind=kind, text=text, tokens=[])
    with pytest.raises(UsageError):
        grammars.compile(kind, text)


@pytest.mark.parametrize(("kind", "text", "why"), CASES["refused_here"])
def test_what_is_not_known_here_is_named(ask: Ask, kind: str, text: Any, why: str):
    assert why in ask(kind=kind, text=text, tokens=[])["error"]


ENDLESS = [
    ("regex", "(" * 30000), ("grammar", "start: " + "(" * 9000),
    ("json_schema", {"type": "array", "maxItems": 10**9}), ("regex", "(a|aa)*" * 9000), ("regex", "a?" * 30000 + "b"),
    ("grammar", "\n".join(f"r{n}: r{n + 1}" for n in range(4000)) + '\nstart: r0\nr4000: "a"'),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), ENDLESS, ids=range(len(ENDLESS)))
def test_a_grammar_that_grows_without_end_is_refused(ask: Ask, kind: str, text: Any):
    assert "error" in ask(kind=kind, text=text, tokens=[])


@pytest.mark.parametrize("family", ["llama2", "gemma", "llama3", "qwen2", "gpt2", "unigram_bytes"])
def test_tokens_of_other_families_have_the_same_bytes(ask: Ask, tmp_path: Path, family: str):
    tokenizer, path = getattr(tokenizers_of_families, family)(), tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    names = ("</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>")
    size, ends = (
        tokenizer.get_vocab_size() + 3,
        [end for end in map(tokenizer.token_to_id, names) if end is not None][:1],
    )
    grammars = GrammarCompiler(manifest(size, tuple(ends)), path, "hash")
    ask(tokenizer=str(path), vocabulary_size=size, ends=ends)
    try:
        for kind, text in CASES["families"]:
            compare(ask, grammars, kind, text, ends)
    finally:
        ask(tokenizer=str(TOKENIZER), vocabulary_size=SIZE, ends=[END])


def test_what_no_token_can_write_ends_a_text(ask: Ask, tmp_path: Path):
    """End at a letter for which the tokenizer itself would write "unknown"."""
    made = json.loads(tokenizers_of_families.llama2().to_str())
    vocabulary = made["model"]["vocab"]
    made["model"]["vocab"] = {name.replace("<0x", "<byte "): token for name, token in vocabulary.items()}
    (path := tmp_path / "tokenizer.json").write_text(json.dumps(made))
    ask(tokenizer=str(path), vocabulary_size=len(vocabulary), ends=[])
    try:
        *_, last = ask(kind="regex", text="a龍x", tokens=[vocabulary["a"]])["steps"]
        assert last == {"end": "capacity", "allowed": []}
    finally:
        ask(tokenizer=str(TOKENIZER), vocabulary_size=SIZE, ends=[END])
