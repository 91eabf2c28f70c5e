"""Drafters with another tokenizer: tables between tokens, what a plan says, and what is refused."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from speccompile.drafters.token_bytes import read_token_bytes
from speccompile.drafters.token_map import Tokenizer as Side
from speccompile.drafters.token_map import TokenizerPair, make_token_map, overlap_of, split
from speccompile.errors import CheckpointError, RecipeError
from speccompile.recipe import load_recipe, make_plan
from tests.json_files import merge_json
from tests.tokenizer_pairs import SIZE, byte_level, with_signs


@pytest.fixture
def pair(tmp_path, make_checkpoint):
    """Write a target and a drafter whose tokenizers differ."""
    for name, tokenizer in (("our", byte_level()), ("their", with_signs())):
        make_checkpoint(tmp_path / name, vocab_size=SIZE)
        tokenizer.save(str(tmp_path / name / "tokenizer.json"))
    return tmp_path


@pytest.fixture
def plan(pair, make_recipe):
    def plan(decoding="greedy", **drafter):
        written = {"kind": "model", "model": "their"} | drafter
        return make_plan(load_recipe(make_recipe(target={"model": "our"}, drafter=written, decoding=decoding)))

    return plan


def sides(folder, size=SIZE):
    return TokenizerPair(Side(folder / "our", size, (), (0,)), Side(folder / "their", size, (1,), (2,)))


def test_bytes_of_tokens_are_what_the_library_decodes(pair):
    for name, tokenizer in (("our", byte_level()), ("their", with_signs())):
        found = read_token_bytes(pair / name / "tokenizer.json")
        assert found.texts.keys() | found.controls.keys() == set(tokenizer.get_vocab().values())
        for token, text in found.texts.items():
            if token not in found.fallbacks and b"\xef\xbf\xbd" not in text:
                try:
                    expected = text.decode()
                except UnicodeDecodeError:
                    continue
                assert tokenizer.decode([token]) == expected
    assert read_token_bytes(pair / "their" / "tokenizer.json").controls == {0: "<unk>", 1: "<s>", 2: "</s>"}
    assert read_token_bytes(pair / "their" / "tokenizer.json").unknown == 0


def test_tables_keep_the_bytes(pair):
    tables, (ours, theirs) = (
        make_token_map(sides(pair)),
        (each.tokens() for each in (sides(pair).target, sides(pair).drafter)),
    )
    assert tables.to_drafter.shape[0] == len(tables.counts) == SIZE
    common = dict(zip(tables.target_ids.tolist(), tables.drafter_ids.tolist(), strict=True))
    assert common.pop(0) == 2  # ends of texts, by their role
    assert len(common) == overlap_of(sides(pair)).common == len({ours.texts[token] for token in common})
    assert all(ours.texts[one] == theirs.texts[other] for one, other in common.items())
    shortened = 0
    for token, text in ours.texts.items():
        pieces = b"".join(theirs.texts[piece] for piece in tables.expanded([token]))
        assert text.endswith(pieces)
        shortened += pieces != text
        assert token not in common or tables.expanded([token]) == [common[token]]
    assert 0 < shortened <= 0.02 * len(ours.texts)  # more tokens than `MAX_EXPANSION`
    assert tables.expanded([SIZE - 1]) == [0]  # padding is unknown


def test_a_common_text_of_several_ids_is_one_token(pair):
    """SentencePiece has a letter, and its byte for texts without it."""
    drafter = read_token_bytes(pair / "their" / "tokenizer.json")
    both = [token for token, text in drafter.texts.items() if text == b"b"]
    assert len(both) == 2
    assert drafter.by_bytes(SIZE)[b"b"] not in drafter.fallbacks
    assert drafter.by_bytes(SIZE)[b"\x01"] in drafter.fallbacks


@pytest.mark.parametrize(
    ("text", "expected"), [(b"abab", [3, 3]), (b"aba", [3, 0]), (b"abc", []), (b"", []), (b"bba", [1, 4])]
)
def test_a_token_becomes_the_fewest(text, expected):
    tokens = {b"a": 0, b"b": 1, b"ab": 3, b"ba": 4}
    assert split(text, tokens, 2) == expected


def test_a_plan_says_the_overlap(plan):
    found = plan(tokenizer="map")
    assert found.notes == (
        "drafts are mapped between tokenizers: 269 of the drafter's 297 tokens (90.6%) are the target's",
    )
    assert found.drafter.tokenizer == found.to_json()["drafter"]["tokenizer"] == "map"


@pytest.mark.parametrize("kind", ["model", "pard"])
def test_without_the_key_the_refusal_says_the_overlap_and_the_ways_out(plan, kind):
    with pytest.raises(
        RecipeError, match=r"received a drafter whose tokenizer has '<unk>' as token 0, expected the"
    ) as e:
        plan(kind=kind)
    assert e.value.hint == (
        "269 of the drafter's 297 tokens (90.6%) are the target's; set drafter.tokenizer: map to draft among the "
        "common tokens, or choose a drafter that was trained with the target's tokenizer"
    )


def test_one_tokenizer_may_be_mapped_too(plan, pair):
    (pair / "their" / "tokenizer.json").write_text((pair / "our" / "tokenizer.json").read_text())
    assert plan().notes == ()
    assert plan(tokenizer="map").notes[0].endswith("319 of the drafter's 319 tokens (100.0%) are the target's")


def changed(path, **parts):
    merge_json(path, parts)


def test_tokens_without_bytes_are_refused_by_the_name_of_their_tokenizer(plan, pair):
    words = Tokenizer(models.WordPiece({"the": 0, "##re": 1, "[UNK]": 2}, unk_token="[UNK]"))
    words.decoder, words.pre_tokenizer = decoders.WordPiece(), pre_tokenizers.BertPreTokenizer()
    words.save(str(pair / "their" / "tokenizer.json"))
    with pytest.raises(
        CheckpointError, match=r"their/tokenizer.json: received a tokenizer of type WordPiece whose tokens"
    ):
        plan(tokenizer="map")
    with pytest.raises(RecipeError) as e:
        plan()
    assert "of type WordPiece whose tokens do not say their bytes" in e.value.hint
    assert "drafter.tokenizer" not in e.value.hint


def test_a_file_without_a_vocabulary_is_refused(plan, pair):
    changed(pair / "their" / "tokenizer.json", model={"type": "BPE"})
    with pytest.raises(CheckpointError, match=r"their/tokenizer.json: received no vocabulary in model.vocab, expected"):
        plan(tokenizer="map")


@pytest.mark.parametrize(("name", "who"), [("our", "target 'our'"), ("their", "drafter 'their'")])
def test_a_model_without_a_tokenizer_is_refused(plan, pair, name, who):
    (pair / name / "tokenizer.json").unlink()
    with pytest.raises(
        RecipeError, match=f"drafter.tokenizer: received 'map', but the {who} has no tokenizer.json"
    ) as e:
        plan(tokenizer="map")
    assert "save_pretrained" in e.value.hint


def test_a_pair_without_common_tokens_is_refused(plan, pair):
    changed(pair / "their" / "tokenizer.json", model={"type": "BPE", "vocab": {"zzzz": 0}, "merges": []})
    with pytest.raises(RecipeError, match="received 'map' for a pair that has no tokens in common, expected some"):
        plan(tokenizer="map")


def test_few_common_tokens_are_noted(plan, pair):
    vocabulary = {"b": 3, **{f"zzzz{number}": number for number in range(4, 12)}}
    changed(pair / "their" / "tokenizer.json", model={"type": "BPE", "vocab": vocabulary, "merges": []})
    note = "1 of the drafter's 9 tokens (11.1%) are the target's: few drafts will be accepted"
    assert note in plan(tokenizer="map").notes[0]


def test_no_node_has_more_children_than_there_are_common_tokens(plan, pair):
    vocabulary = {"b": 3, "c": 4, **{f"zzzz{number}": number for number in range(5, 9)}}
    changed(pair / "their" / "tokenizer.json", model={"type": "BPE", "vocab": vocabulary, "merges": []})
    with pytest.raises(RecipeError, match="received a node with 3 children, expected at most 2"):
        plan(tokenizer="map", tree=[3])


def test_a_drafter_with_states_is_refused(plan, pair):
    changed(pair / "their" / "config.json", architectures=["MambaForCausalLM"], model_type="mamba")
    with pytest.raises(RecipeError, match=r"received 'map' for a drafter with recurrent states \("):
        plan(tokenizer="map")


@pytest.mark.parametrize("kind", ["prompt_lookup", "none"])
def test_kinds_without_a_tokenizer_refuse_the_key(plan, kind):
    with pytest.raises(RecipeError, match=r"drafter.tokenizer: received .* expected"):
        plan(kind=kind, model=None, tokenizer="map")


def test_another_word_is_refused(plan):
    with pytest.raises(RecipeError, match=r"drafter\.tokenizer: received 'letters', expected map or text"):
        plan(tokenizer="letters")


def test_drafts_over_texts_need_nothing_in_common(plan, pair):
    changed(pair / "their" / "tokenizer.json", model={"type": "BPE", "vocab": {"zzzz": 0}, "merges": []})
    found = plan(tokenizer="text")
    assert found.drafter.over_texts
    assert found.notes == ("drafts are texts of the drafter's, which the host turns into the target's tokens",)
    assert (found.graphs, found.drafter.sample, found.drafter.tree.kind) == ("separate", False, "chain")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"kind": "pard"}, "drafter.tokenizer: received 'text', with drafter.kind pard, expected it with"),
        ({"tree": [2, 1]}, "drafter.tree: received a static tree beside drafter.tokenizer text, expected a chain"),
        ({"tree": {"depth": 2, "nodes": 4, "top_k": 2}}, "drafter.tree: received a dynamic tree beside"),
        (
            {"sample": True, "decoding": "sampling"},
            "drafter.sample: received true, beside drafter.tokenizer text, expected false",
        ),
        ({"then": "prompt_lookup"}, "drafter.then: received a lookup beside drafter.tokenizer text, expected nothing"),
        ({"gate": "prompt_lookup"}, "drafter.gate: received a lookup beside"),
        ({"drafter": "prompt_lookup"}, "drafter.drafter: received a lookup beside"),
    ],
)
def test_what_drafts_over_texts_lack_is_refused(plan, keys, message):
    with pytest.raises(RecipeError, match=message):
        plan(tokenizer="text", **keys)


def test_a_drafter_over_texts_without_a_tokenizer_is_refused(plan, pair):
    (pair / "their" / "tokenizer.json").unlink()
    with pytest.raises(RecipeError, match=r"received 'text', but the drafter 'their' has no tokenizer\.json"):
        plan(tokenizer="text")
