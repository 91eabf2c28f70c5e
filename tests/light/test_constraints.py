"""Grammars and matchers on the demo's tokenizer: masks behind every node, what is forced, the end, and refusals."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models

from speccompile.contract import Graph, Tensor
from speccompile.errors import BundleError, MissingPackageError, UsageError
from speccompile.runtime.constraints import KINDS, GrammarCompiler, Matcher
from speccompile.runtime.generation import SequenceState
from speccompile.runtime.rounds.token_masks import TokenMasks
from speccompile.tree import ROOT
from tests.light.fake_bundle import toy_manifest

TOKENIZER = Path(__file__).resolve().parents[2] / "recipes/demo/target/tokenizer.json"
SIZE, END = 4096 + 8, 0
"""Padding behind the tokenizer's own tokens is never allowed."""
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
          "required": ["name", "n"], "additionalProperties": False}  # fmt: skip
OPTIONAL = '{"name" : "x" ,"n":12}'


def manifest(size: int = SIZE, ends: tuple[int, ...] = (END,), *, taken: bool = True):
    allowed = (Tensor("allowed", "bool", (1, "logit_rows", "allowed"), "allowed", "io"),) if taken else ()
    return toy_manifest().__class__(
        **(vars(toy_manifest()) | {"vocabulary_size": size, "eos_token_ids": ends})
        | {"graphs": (Graph("verify", allowed, ()),)}
    )


@pytest.fixture(scope="module")
def grammars() -> GrammarCompiler:
    return GrammarCompiler(manifest(), TOKENIZER, "hash")


@pytest.fixture(scope="module")
def tokenizer() -> LLTokenizer:
    return LLTokenizer(TOKENIZER.read_text(), n_vocab=SIZE, eos_token=END)


def peer(tokenizer: LLTokenizer, tokens: list[int]) -> LLMatcher | None:
    """Return llguidance's own matcher behind some tokens of SCHEMA; None where they are not allowed."""
    found = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(SCHEMA, overrides={"whitespace_pattern": " "}))
    return found if found.try_consume_tokens(tokens) == len(tokens) else None


def matcher(grammars: GrammarCompiler) -> Matcher:
    return grammars.compile("json_schema", SCHEMA | {"x-guidance": {"whitespace_pattern": " "}}).matcher([END])


def text_of(tokenizer: LLTokenizer, text: str) -> list[int]:
    return tokenizer.tokenize_str(text)


@settings(max_examples=60)
@given(st.data())
def test_every_node_of_a_tree_has_the_mask_behind_its_own_way(grammars, tokenizer, data):
    """Draw drafts: rows behind one that is not allowed, or that ends the text, are free."""
    text = text_of(tokenizer, OPTIONAL)
    begin = data.draw(st.integers(0, len(text) - 1))
    nodes = data.draw(st.integers(0, 6))
    parents = [ROOT, *(data.draw(st.integers(0, node)) for node in range(nodes))]
    likely = st.sampled_from([*text, END, 5, SIZE - 1])
    drafts = [data.draw(likely) for _ in range(nodes)]
    own = matcher(grammars)
    assert own.accept_tokens(text[:begin]) == begin
    allowed = np.zeros((nodes + 2, SIZE), bool)
    own.write(allowed, drafts, parents)
    again = np.zeros_like(allowed)
    own.write(again, drafts, parents)
    assert np.array_equal(allowed, again)  # it stays where it was
    for node in range(nodes + 2):
        path, at = [], node
        while 0 < at <= nodes:
            path, at = [drafts[at - 1], *path], parents[at]
        expected = peer(tokenizer, text[:begin] + path) if node <= nodes and END not in path else None
        if expected is None or expected.is_stopped():
            assert allowed[node].all()
        else:
            bias = np.frombuffer(expected.compute_logit_bias(), np.uint8)[:SIZE] > 0
            assert np.array_equal(allowed[node], bias)


def test_a_chain_is_a_tree_with_one_branch(grammars, tokenizer):
    drafts = text_of(tokenizer, '{"name":"abc')
    own, chain, tree = matcher(grammars), *np.zeros((2, len(drafts) + 1, SIZE), bool)
    own.write(chain, drafts)
    own.write(tree, drafts, range(ROOT, len(drafts)))
    assert np.array_equal(chain, tree)
    assert not chain.all(1).any()


def test_what_is_forced_has_no_alternative(grammars, tokenizer):
    dense = grammars.compile("grammar", r'start: "{\"name\":" /[0-9]+/ "}"')
    own, other = dense.matcher([END]), dense.matcher([END])
    forced = own.forced_tokens(8)
    assert tokenizer.decode_str(forced) == '{"name":'
    for token in forced:
        assert np.flatnonzero(other.mask()).tolist() == [token]
        other.accept_tokens([token])
    assert own.forced_tokens(8) == []


def test_what_is_forced_stops_at_the_most_and_at_the_end(grammars):
    choice = grammars.compile("choice", ["a rather long text that has no alternative at all"])
    whole = choice.matcher([END]).forced_tokens(100)
    assert len(whole) > 4
    assert choice.matcher([END]).forced_tokens(3) == whole[:3]
    own = choice.matcher([END])
    assert own.forced_tokens(100) == whole
    assert (own.end, own.is_complete) == ("stop", True)
    assert choice.matcher([END]).forced_tokens(3, least=4) == []
    again = choice.matcher([END])
    assert again.forced_tokens(100, least=len(whole) + 1) == []
    assert again.forced_tokens(100) == whole


def test_a_complete_text_ends(grammars, tokenizer):
    own = matcher(grammars)
    tokens = text_of(tokenizer, '{"name":"","n":1}')
    assert own.accept_tokens([*tokens, 7, 8]) == len(tokens)  # what lies behind was chosen freely
    assert own.end == "stop"


def test_an_end_token_is_allowed_where_the_text_may_be_whole(grammars, tokenizer):
    own = grammars.compile("regex", "[0-9]+").matcher([END])
    assert not own.mask()[END]
    assert own.accept_tokens(text_of(tokenizer, "4")) == 1
    assert own.mask()[END]
    assert (own.accept_tokens([END, 5]), own.end) == (1, "")


def test_an_end_token_that_ends_nothing_is_never_allowed(grammars, tokenizer):
    own = grammars.compile("regex", "[0-9]+").matcher([7])
    own.accept_tokens(text_of(tokenizer, "4"))
    assert not own.mask()[END]
    assert own.mask().any()


def test_a_model_without_end_tokens_never_gets_one(tokenizer):
    own = GrammarCompiler(manifest(ends=()), TOKENIZER, "hash").compile("regex", "[0-9]{1,2}").matcher([])
    own.accept_tokens(text_of(tokenizer, "4"))
    taken = np.flatnonzero(own.mask())
    assert {tokenizer.decode_str([token]) for token in taken} == set("0123456789")


def test_a_parser_that_fails_is_an_error(grammars, tokenizer):
    """Let the parser fail by a token that is not allowed."""
    own = grammars.compile("regex", "ab").matcher([END])
    assert own.accept_tokens(text_of(tokenizer, "zz")) == 0
    with pytest.raises(UsageError, match="cannot go on with this grammar"):
        assert own.end


def test_a_step_beyond_the_limits_ends_its_own_row_with_an_error(grammars, tokenizer):
    many = " ".join(['("a"|"b")?'] * 3000)
    row = SequenceState([5], 10, 100, {END}, None, constraint=grammars.compile("grammar", f'start: "xy" z\nz: {many}'))
    row.append_tokens(text_of(tokenizer, "xy"), 0)
    assert row.finish_reason == "error"
    assert "cannot go on with this grammar" in str(row.error)


def test_rows_have_matchers_of_their_own(grammars, tokenizer):
    constraint = grammars.compile("choice", ["yes", "no"])
    rows = [SequenceState([5], 9, 99, [END], None, constraint=constraint) for _ in range(2)]
    rows[0].append_tokens(text_of(tokenizer, "yes"), 0)
    assert [row.finish_reason for row in rows] == ["stop", ""]
    rows[1].append_tokens(text_of(tokenizer, "no"), 0)
    assert rows[1].finish_reason == "stop"


REFUSED = [
    ("xml", "", "received the kind 'xml', expected one of json_schema, json_object, regex, grammar, choice"),
    ("json_schema", "{", "the schema is no JSON"),
    ("json_schema", "3", "received int, expected a JSON schema, which is an object"),
    ("json_schema", {"type": 3}, "llguidance does not take it"),
    ("json_schema", False, "llguidance does not take it"),
    ("regex", "(", "llguidance does not take it"),
    ("regex", "a(?=b)", "look-around"),
    ("regex", "", "received '', expected a text"),
    *((kind, ["\ud800"] if kind == "choice" else "\ud800", "half a surrogate pair") for kind in KINDS[2:]),
    ("regex", "()", "no text can meet but an empty one"),
    ("grammar", "start: nobody", "unknown name"),
    ("grammar", 7, "received 7, expected a text"),
    ("choice", [], "expected one text or more, none of them empty"),
    ("choice", ["a", ""], "expected one text or more, none of them empty"),
    ("choice", [1], "expected one text or more, none of them empty"),
]


@pytest.mark.parametrize(("kind", "text", "said"), REFUSED)
def test_what_is_no_constraint_is_refused(grammars, kind, text, said):
    with pytest.raises(UsageError) as caught:
        grammars.compile(kind, text)
    assert said in str(caught.value)
    assert caught.value.hint


KEYWORDS = {
    "not": {"const": 1}, "uniqueItems": True, "if": {}, "contains": {}, "propertyNames": {"maxLength": 2},
    "dependentRequired": {"a": ["b"]}, "dependentSchemas": {"a": {}}, "unevaluatedProperties": False,
    "format": "no-such-format", "$ref": "#/nowhere", "type": "nothing",
}  # fmt: skip


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_a_keyword_that_is_not_supported_is_never_ignored(grammars, keyword):
    """Refuse it also where a schema's own word would allow it."""
    schema = {keyword: KEYWORDS[keyword], "x-guidance": {"lenient": True}}
    with pytest.raises(UsageError, match="llguidance does not take it"):
        grammars.compile("json_schema", {"type": "object", "properties": {"inner": schema}})
    with pytest.raises(UsageError, match="llguidance does not take it"):
        grammars.compile("json_schema", schema)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_may_be_given_in_their_own_words(grammars, tokenizer, kind):
    texts = {"json_schema": (json.dumps(SCHEMA), '{"name":"é","n":-3}'), "json_object": ("", '{ "a": [1, {}]\n}'),
             "regex": (r"\d+/[^x]", "12/é"), "grammar": ('start: "a"+ WORD\nWORD: /[b-d]+/', "aabcd"),
             "choice": ['say "no"\n', 'say "no"\n']}  # fmt: skip
    text, sample = texts[kind]
    own = grammars.compile(kind, text).matcher([END])
    tokens = text_of(tokenizer, sample)
    assert own.accept_tokens(tokens) == len(tokens)
    assert own.is_complete or own.mask()[END]


def test_white_space_has_an_end(grammars, tokenizer):
    own = grammars.compile("json_object").matcher([END])
    assert own.accept_tokens(text_of(tokenizer, "{" + "\n" * 9)) < 10


def test_nothing_is_allowed_by_a_bundle_without_constraints(tokenizer):
    with pytest.raises(UsageError, match="was built without constraints"):
        GrammarCompiler(manifest(taken=False), TOKENIZER, "hash").compile("json_object")
    with pytest.raises(UsageError, match="has no tokenizer, so no text to constrain"):
        GrammarCompiler(manifest(), None, "").compile("json_object")


@pytest.mark.parametrize(("size", "ends"), [(4090, (END,)), (4090, (END, 4095)), (4090, (5000,)), (SIZE, (END, 5000))])
def test_tokens_without_a_row_are_never_allowed(tokenizer, size, ends):
    """Compare with llguidance's masks, cut to the model's rows. As with Gemma 3 1B, the model has fewer rows than its
    tokenizer has tokens, and perhaps none for an end token that its generation config names."""
    own = GrammarCompiler(manifest(size, ends), TOKENIZER, "hash").compile("regex", "[a-z ]{9}").matcher(ends)
    peers = LLMatcher(tokenizer, LLMatcher.grammar_from_regex("[a-z ]{9}"))
    for token in text_of(tokenizer, "ab cd efg"):
        expected = np.frombuffer(peers.compute_logit_bias(), np.uint8)[:size] > 0
        assert np.array_equal(own.mask(), expected)
        assert own.accept_tokens([token]) == peers.try_consume_tokens([token]) == 1
    assert own.end == "stop"


def test_text_of_a_token_without_a_row_is_written_by_others(tokenizer):
    word = next(token for token in range(4095, 2000, -1) if tokenizer.decode_str([token]).isalnum())
    text = tokenizer.decode_str([word])
    assert text_of(tokenizer, text) == [word]
    own = GrammarCompiler(manifest(word), TOKENIZER, "hash").compile("choice", [text]).matcher([END])
    forced = own.forced_tokens(8)
    assert tokenizer.decode_str(forced) == text
    assert len(forced) > 1
    assert max(forced) < word


@pytest.mark.parametrize("content", ["{}", "no JSON"])
def test_a_broken_tokenizer_is_named(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(BundleError, match="does not take this tokenizer for 4104 tokens"):
        GrammarCompiler(manifest(), path, "hash").compile("json_object")


def test_without_llguidance_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(MissingPackageError, match="without llguidance, expected the extra 'constraints'") as caught:
        GrammarCompiler(manifest(), TOKENIZER, "hash").compile("json_object")
    assert caught.value.hint == "pip install 'speccompile[constraints]'"


class Buffers:
    """Buffer of one input of an engine."""

    def __init__(self) -> None:
        self.arrays: dict[tuple, np.ndarray] = {}

    def host_view(self, name, shape):
        return self.arrays.setdefault((name, shape), np.zeros(shape, bool))


def test_rows_that_are_free_allow_everything_beside_those_that_are_not(grammars, tokenizer):
    batched = manifest().__class__(**(vars(manifest()) | {"batch_size": 3, "tokens": 2}))
    engine = Buffers()
    masks = TokenMasks(engine, batched)
    free, bound = (
        SequenceState([5], 9, 99, [END], None),
        SequenceState([5], 9, 99, [END], None, constraint=grammars.compile("choice", "a")),
    )
    window = np.array([[7, 8, 9]] * 3)
    assert (masks.width({0: free}), masks.width({0: free, 2: bound})) == (1, SIZE)
    masks.write({0: free}, window, [1] * 3, [3] * 3, 3)
    assert engine.arrays["allowed", (3, 3, 1)].all()
    masks.write({0: free, 2: bound}, window, [1] * 3, [3] * 3, 3)
    wide = engine.arrays["allowed", (3, 3, SIZE)]
    assert wide[0].all()
    assert np.flatnonzero(wide[2, 0]).tolist() == text_of(tokenizer, "a")
    assert wide[2, 1:].all()  # behind a draft that is not allowed


def test_forced_tokens_that_are_too_few_leave_the_matcher_where_it_was(grammars):
    stays, moves = matcher(grammars), matcher(grammars)
    forced = moves.forced_tokens(99)
    assert forced
    assert stays.forced_tokens(99, least=len(forced) + 1) == []
    assert np.flatnonzero(stays.mask()).tolist() == [forced[0]]
    assert stays.forced_tokens(99) == forced


def test_a_letter_that_stands_for_a_space_is_one(tmp_path):
    names = [*(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁a", "a", "<unk>"]
    pieces = models.Unigram([(name, -1.0) for name in names], unk_id=len(names) - 1, byte_fallback=True)
    made = FastTokenizer(pieces)
    made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    made.save(str(path := tmp_path / "tokenizer.json"))
    own = GrammarCompiler(manifest(len(names), ()), path, "hash")
    for text, spaced in (("[^ ]{2}", set()), ("[ a]{2}", {"▁", "▁a"})):
        allowed = {names[token] for token in np.flatnonzero(own.compile("regex", text).matcher(()).mask())}
        assert {"a", "▁", "▁a"} & allowed == {"a"} | spaced
