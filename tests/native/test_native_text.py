"""Text and Stream in C++ give what the tokenizers package and Python's Stream give."""

import ast
import json
import random
import string
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers

from speccompile.compiler.checkpoints.piece_tokenizers import make_tokenizer
from speccompile.runtime.text.tokenizer import IncrementalDetokenizer, Tokenizer
from tests.light.fake_bundle import toy_tokenizer
from tests.light.odd_tokenizers import ODD
from tests.light.piece_models import PIECES, write_translator
from tests.light.test_text import grouped
from tests.native.tokenizers_of_families import CORPUS, FAMILIES, SENTENCES
from tests.suite.selection import sweep_but


def translator(name: str) -> FastTokenizer:
    with TemporaryDirectory() as folder:
        return FastTokenizer.from_str(json.dumps(make_tokenizer(write_translator(Path(folder), name), name)[0]))


def zoo() -> FastTokenizer:
    from tests.zoo import byte_tokenizer  # which needs torch

    return byte_tokenizer().backend_tokenizer


MADE = FAMILIES | {"toy": toy_tokenizer, "zoo": zoo}
MADE |= {name: partial(FastTokenizer.from_str, text) for name, text in ODD.items()}
MADE |= {name: partial(translator, name) for name in PIECES}
TEXTS = [*CORPUS, Path(ast.__file__).read_text()[:20_000], "", " ", "a", "\n", "▁", "<s>", "<0x41>", "a\0b", "\ufeff"]
CHECKS = settings(
    max_examples=8,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

SPACED = """\
's 'LL ſ \u212a é e\u0301 가 \u1100\u1161\u11a8 日本 ﬁ İ hello the <s> </s> <mask> <x> <tool> <tool>call <extra> 123 ² ٣
▁ ß ǅ क्षि 😀 👩\u200d👩\u200d👧 \u200d \u0344 \u0f73 \u1e9b\u0323 \U0001d15e \U00011938 _ . fox"""
words = st.sampled_from([*SPACED.split(), " ", "  ", "\n", "\r\n", "\t", " fox", "\u00a0", "\u3000", "\u0085"])
texts = st.lists(st.one_of(words, st.text(max_size=4)), max_size=12).map("".join)


class Program:
    """native/tests/tokenizer.cpp with one tokenizer open."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=20)
        assert self._process.returncode == 0


@pytest.fixture(scope="module")
def program(native_build: Path) -> Iterator[Program]:
    running = Program(native_build / "tokenizer_lines")
    yield running
    running.close()


FIRST = (
    "bert",
    "holes between all ids",
    "one text twice",
    "two texts of one id",
    "fused",
    "gemma",
    "gpt2",
    "gpt_oss",
    "llama2",
    "metaspace_first",
    "t5",
    "toy",
    "unknown",
    "word_ends",
    "zoo",
)
"""One of each model and pre-tokenizer, and those with odd ids."""


@pytest.fixture(scope="module", params=sweep_but(FIRST, sorted(MADE), "every family's tokenizer"))
def pair(request, program, tmp_path_factory) -> tuple[Tokenizer, FastTokenizer, Program]:
    """Return Python's Text, its tokenizer, and the program with the same file."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    MADE[request.param]().save(str(path))
    assert program.ask(open=str(path)) == {"opened": True}
    return Tokenizer(path), FastTokenizer.from_file(str(path)), program


def check_text(pair: tuple[Tokenizer, FastTokenizer, Program], source: str) -> None:
    text, _, program = pair
    for special in (True, False):
        ids = text.encode(source, special)
        assert program.ask(encode=source, special=special) == {"ids": ids}
        assert program.ask(decode=ids) == {"text": text.decode(ids)}


def test_a_corpus_becomes_the_same_ids_and_text(pair):
    for source in TEXTS:
        check_text(pair, source)


@CHECKS
@given(source=texts)
def test_any_text_becomes_the_same_ids_and_text(pair, source):
    check_text(pair, source)


@CHECKS
@given(data=st.data())
def test_any_ids_become_the_same_text(pair, data):
    text, tokenizer, program = pair
    ids = data.draw(st.lists(st.integers(0, tokenizer.get_vocab_size() + 3), max_size=20))
    assert program.ask(decode=ids) == {"text": text.decode(ids)}
    assert program.ask(shown=ids) == {
        "ids": text.without_special_tokens(ids),
        "bytes": [text.is_byte(each) for each in ids],
    }


@CHECKS
@given(data=st.data())
def test_the_pieces_of_a_stream_are_the_same(pair, data):
    text, tokenizer, program = pair
    any_ids = st.lists(st.integers(0, tokenizer.get_vocab_size() + 3), max_size=20)
    source = st.one_of(any_ids, st.sampled_from(SENTENCES).map(text.encode), texts.map(text.encode))
    prompt, new = data.draw(source), data.draw(source)
    whole = text.decode(new)
    places = st.tuples(st.integers(0, len(whole)), st.integers(1, 8))
    stop = [whole[start : start + size] for start, size in data.draw(st.lists(places, max_size=3))]
    other = data.draw(st.lists(st.text("ab 你\ufffd", min_size=1, max_size=3), max_size=2))
    specials = [token for each in new if (token := text.special_text(each))]
    other += data.draw(st.lists(st.sampled_from([*specials, "<", "s>"]), max_size=1))
    stop = [each for each in (*stop, *other) if each]
    groups = grouped(new, data.draw(st.lists(st.integers(0, 5), max_size=30)))
    stream = IncrementalDetokenizer(text, prompt, stop)
    pieces = [stream.push(group) for group in groups]
    expected = {"pieces": [*pieces, stream.finish()], "stopped": stream.stopped, "kept": stream.kept}
    assert program.ask(stream={"prompt": prompt, "stop": stop, "groups": groups}) == expected


def with_signs() -> FastTokenizer:
    from tests.tokenizer_pairs import with_signs  # which needs torch

    return with_signs()


BYTES = {"bytes between words": with_signs, "llama2": FAMILIES["llama2"], "gemma": FAMILIES["gemma"]}


@pytest.mark.parametrize("name", BYTES)
def test_thousands_of_broken_byte_runs_are_what_the_package_adds_to_the_prompt(program, tmp_path, name):
    """Byte tokens that begin in the prompt become replacement characters with those that follow: no character of the
    prompt is shown a second time."""
    path, numbers = tmp_path / "tokenizer.json", random.Random(7)
    BYTES[name]().save(str(path))
    text, fast = Tokenizer(path), FastTokenizer.from_file(str(path))
    assert program.ask(open=str(path)) == {"opened": True}
    single = [index for index in range(text.size) if text.is_byte(index)]
    prompt = text.encode("fox dog>")
    cases = [(prompt, [text.encode(">")[-1] for _ in range(2)]), (prompt, single[0x55:0x56] + single[0x8D:0x90])]
    for _ in range(1500):
        cases.append(tuple(_many_bytes(numbers, text, single) for _ in range(2)))
    for prompt, new in cases:
        groups = grouped(new, [numbers.randint(0, 4) for _ in range(6)])
        before, whole = fast.decode(prompt), fast.decode([*prompt, *new])
        stop = [whole[start : start + 2] for start in [numbers.randrange(3 * len(whole) + 1)] if whole[start:]]
        answers = []
        for strings in ([], stop):
            stream = IncrementalDetokenizer(text, prompt, strings)
            pieces = [*map(stream.push, groups), stream.finish(), stream.finish()]
            assert not pieces.pop()
            expected = {"pieces": pieces, "stopped": stream.stopped, "kept": stream.kept}
            assert program.ask(stream={"prompt": prompt, "stop": strings, "groups": groups}) == expected
            answers.append("".join(pieces))
        same = next((at for at in range(len(before)) if not whole.startswith(before[: at + 1])), len(before))
        assert answers[0] == whole[same:]
        assert answers[0].startswith(answers[1])


def _many_bytes(numbers: random.Random, text: Tokenizer, single: list[int]) -> list[int]:
    size = numbers.randint(0, 14)
    return [numbers.choice(single) if numbers.random() < 0.6 else numbers.randrange(text.size) for _ in range(size)]


def test_the_last_bit_of_scores_chooses_between_equal_paths(program, tmp_path):
    """Expect digits to be read as a whole number that is scaled: sums of the same scores in another order differ."""
    numbers, path = random.Random(7), tmp_path / "tokenizer.json"
    for _ in range(40):
        pieces = [("<unk>", 0.0), *((piece, -10 * numbers.random()) for piece in ("a", "b", "ab", "abab", "ba", "aba"))]
        FastTokenizer(models.Unigram(pieces, unk_id=0)).save(str(path))
        read = FastTokenizer.from_file(str(path))
        assert program.ask(open=str(path)) == {"opened": True}
        for source in ("ab" * 9, "ab" * 20, "ba" * 13, "aab" * 7):
            assert program.ask(encode=source, special=False) == {"ids": read.encode(source).ids}, pieces


def test_a_token_for_unknown_characters_is_missed_only_where_it_is_needed(program, tmp_path):
    path = tmp_path / "tokenizer.json"
    FastTokenizer(models.Unigram([("a", -1.0), ("ab", -1.0), ("abab", -1.5)])).save(str(path))
    assert program.ask(open=str(path)) == {"opened": True}
    read = FastTokenizer.from_file(str(path))
    assert program.ask(encode="ababab", special=False) == {"ids": read.encode("ababab").ids}
    assert "unk_id" in program.ask(encode="abb", special=False)["message"]
    with pytest.raises(Exception, match="unk_id"):
        read.encode("abb")


def changed(model: object, **parts: object) -> str:
    tokenizer = FastTokenizer(model)  # type: ignore[arg-type]
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer.to_str()


def regex(pattern: str) -> str:
    part = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return json.dumps(json.loads(changed(models.BPE())) | {"pre_tokenizer": part})


@pytest.mark.parametrize(
    ("content", "lacks"),
    [
        (
            json.dumps(json.loads(changed(models.BPE())) | {"model": {"type": "Other"}}),
            "tokenizer model 'Other', only BPE, Unigram, WordPiece and WordLevel",
        ),
        (changed(models.BPE(dropout=0.5)), "dropout in the tokenizer model"),
        (changed(models.BPE(), normalizer=normalizers.Nmt()), "normalizer 'Nmt'"),
        (changed(models.BPE(), pre_tokenizer=pre_tokenizers.UnicodeScripts()), "pre-tokenizer 'UnicodeScripts'"),
        (changed(models.BPE(), decoder=decoders.CTC()), "decoder 'CTC'"),
        (regex(r"(a)\1"), r"pattern '(a)\\1': \1"),
        (regex("(?i)[ß]"), "pattern '(?i)[ß]': (?i) with a character that stands for several"),
    ],
)
def test_what_is_missing_is_named(program, tmp_path, content, lacks):
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    hint = "give token ids instead of text, or use the Python runtime"
    assert program.ask(open=str(path)) == {"kind": 11, "message": f"{path}: this runtime has no {lacks}", "hint": hint}


@pytest.mark.parametrize("content", ["{}", "\udcff", '{"model": ', "[" * 10_000, regex("("), regex("*")])
def test_a_file_that_is_no_tokenizer_is_named(program, tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    answer = program.ask(open=str(path))
    assert answer["kind"] == 10
    assert answer["message"].startswith(f"{path}: expected a tokenizer: ")
    assert answer["hint"] == "build the bundle again"


def test_a_missing_file_is_named(program, tmp_path):
    answer = program.ask(open=str(tmp_path / "no.json"))
    assert answer["message"] == f"{tmp_path / 'no.json'}: expected a tokenizer: No such file or directory"


@pytest.mark.parametrize("pair", ["gpt2"], indirect=True)
def test_bad_requests_are_refused_as_python_does(pair):
    _, _, program = pair
    answer = program.ask(stream={"prompt": [], "stop": ["a", ""], "groups": []})
    hint = "leave it out, or give at least one character"
    assert answer == {"kind": 12, "message": "empty stop string in ['a', '']", "hint": hint}
    answer = program.ask(encode="gr\ud8fc")
    assert answer["message"] == r"the prompt is not UTF-8 text: character 2 is '\udced'"
    assert answer["hint"] == "save the prompt as UTF-8"


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(?:(?:a+)+)+$b", "(?>(a|aa)+)+c", "a*a*a*a*a*a*b"])
def test_no_pattern_runs_for_ever(program, tmp_path, pattern):
    path = tmp_path / "tokenizer.json"
    path.write_text(regex(pattern))
    assert program.ask(open=str(path)) == {"opened": True}
    answer = program.ask(encode="a" * 3000, special=True)
    assert answer.get("ids") == [] or answer["message"] == "the tokenizer's patterns take too long on this text"


@pytest.mark.parametrize("pair", ["gpt2", "llama2", "gpt_oss"], indirect=True)
def test_long_words_are_the_same(pair):
    numbers = random.Random(3)
    for letters in ("a", "ab", string.ascii_letters, "hello", "é你"):
        check_text(pair, "".join(numbers.choices(letters, k=30_000)))
