"""Pairs: vocabularies, tokenizers and special tokens of a drafter and its target."""

import json
import time

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram

from speccompile.errors import CheckpointError, RecipeError
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.vocabulary_match import read_vocabulary

WORDS = ("<s>", "</s>", "def", "return", "self", "import", "if", "else")


@pytest.fixture
def plan_with(make_recipe, make_checkpoint, tmp_path):
    """Plan the target with a drafter made of these arguments; `target` changes the target's config."""

    def plan_with(target=None, **drafter):
        make_checkpoint(tmp_path / "our", **(target or {}))
        make_checkpoint(tmp_path / "their", **drafter)
        return make_plan(load_recipe(make_recipe(target={"model": "our"}, drafter={"kind": "model", "model": "their"})))

    return plan_with


@pytest.mark.parametrize(("target", "drafter"), [({"words": None}, {}), ({}, {"words": None})])
def test_another_vocabulary_is_refused_where_no_tokenizer_says_that_it_is_padding(plan_with, target, drafter):
    with pytest.raises(
        RecipeError, match="received a drafter with a vocabulary of 9 tokens, expected the target's"
    ) as e:
        plan_with(target=target, vocab_size=9, **drafter)
    assert str(e.value).endswith(
        "recipe.yaml: drafter.model: received a drafter with a vocabulary of 9 tokens, "
        "expected the target's vocabulary of 8"
    )
    assert "trained with the target's tokenizer" in e.value.hint
    assert "put its tokenizer.json beside both models" in e.value.hint


@pytest.mark.parametrize(("ours", "theirs", "common"), [(8, 9, 8), (12, 8, 8), (16, 10, 10)])
@pytest.mark.parametrize("is_same_file", [True, False])
def test_vocabularies_that_differ_in_padding_are_paired(plan_with, tmp_path, ours, theirs, common, is_same_file):
    plan_with(target={"vocab_size": ours}, vocab_size=theirs)
    if not is_same_file:
        path = tmp_path / "their" / "tokenizer.json"
        path.write_text(json.dumps(json.loads(path.read_text())))
    plan = make_plan(load_recipe(tmp_path))
    assert plan.notes == (
        f"vocabularies of {ours} rows in the target and {theirs} in the drafter: drafts are tokens below {common}",
    )


@pytest.mark.parametrize(("ours", "theirs"), [(8, 7), (7, 8), (7, 6)])
def test_a_vocabulary_without_rows_for_all_tokens_is_refused(plan_with, ours, theirs):
    with pytest.raises(RecipeError) as caught:
        plan_with(target={"vocab_size": ours}, vocab_size=theirs)
    assert str(caught.value).endswith(
        f"received a drafter with a vocabulary of {theirs} tokens, expected the target's vocabulary of {ours}, or both "
        "with rows for the 8 tokens of their tokenizer"
    )


def test_an_added_token_may_have_no_row(plan_with, tmp_path):
    """Accept a token without a row, as the image token 262144 of Gemma 3 1B."""
    plan_with(target={"vocab_size": 16}, vocab_size=8)
    for name in ("our", "their"):
        tokenizer = Tokenizer.from_file(str(tmp_path / name / "tokenizer.json"))
        tokenizer.add_special_tokens(["<image>"])
        tokenizer.save(str(tmp_path / name / "tokenizer.json"))
    notes = make_plan(load_recipe(tmp_path)).notes
    assert notes[1:] == ("the added token '<image>' (8) lies behind these rows and is never drafted",)


def test_an_added_token_that_one_of_them_lacks_is_refused(plan_with, tmp_path):
    plan_with(target={"vocab_size": 16}, vocab_size=12)
    tokenizer = Tokenizer.from_file(str(tmp_path / "our" / "tokenizer.json"))
    tokenizer.add_special_tokens(["<think>"])
    tokenizer.save(str(tmp_path / "our" / "tokenizer.json"))
    with pytest.raises(RecipeError, match="whose tokenizer has nothing as token 8, expected the target's '<think>'"):
        make_plan(load_recipe(tmp_path))


def test_tokenizers_as_large_as_gemma_s_cost_a_plan_little_more_than_their_reading(plan_with, tmp_path):
    """262144 tokens and twice as many merges, in files that differ."""
    plan_with(target={"vocab_size": 262208}, vocab_size=262144)
    vocabulary = {f"▁token{token_id}": token_id for token_id in range(262144)}
    merges = [["▁token", str(number)] for number in range(2 * 262144)]
    text = json.dumps({"model": {"type": "BPE", "vocab": vocabulary, "merges": merges}}, ensure_ascii=False)
    for name, end in (("our", ""), ("their", "\n")):
        (tmp_path / name / "tokenizer.json").write_text(text + end)
    start = time.process_time()
    assert json.loads(text) == json.loads(text)
    read = time.process_time() - start
    assert make_plan(load_recipe(tmp_path)).notes[0].endswith("drafts are tokens below 262144")
    assert time.process_time() - start - read < 3 * read


def test_no_node_has_more_children_than_both_have_tokens(make_recipe, make_checkpoint, tmp_path):
    for name, rows in (("our", 64), ("their", 9)):
        make_checkpoint(tmp_path / name, vocab_size=rows)
    path = make_recipe(target={"model": "our"}, drafter={"kind": "model", "model": "their", "tree": [10]})
    with pytest.raises(RecipeError, match="received a node with 10 children, expected at most 9, the tokens of the"):
        make_plan(load_recipe(path))


def test_a_drafter_with_another_tokenizer_of_the_same_size_is_refused(plan_with):
    with pytest.raises(RecipeError, match="whose tokenizer has 'self' as token 3, expected the target's 'return'"):
        plan_with(words=(*WORDS[:3], "self", "return", *WORDS[5:]))


def test_a_drafter_with_fewer_tokens_is_refused(plan_with):
    with pytest.raises(RecipeError, match="whose tokenizer has nothing as token 7, expected the target's 'else'"):
        plan_with(words=WORDS[:7])


def test_equal_tokens_in_files_that_differ_are_accepted(plan_with, tmp_path):
    plan = plan_with()
    path = tmp_path / "their" / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert path.read_bytes() != (tmp_path / "our" / "tokenizer.json").read_bytes()
    assert make_plan(load_recipe(tmp_path)).notes == plan.notes == ()


def test_a_pair_without_a_tokenizer_is_noted(plan_with):
    notes = plan_with(words=None).notes
    assert notes == ("no tokenizer.json in drafter: only the sizes of the vocabularies were compared",)


def test_a_pair_without_any_tokenizer_is_noted(plan_with):
    notes = plan_with(target={"words": None}, words=None).notes
    assert notes == ("no tokenizer.json in target and drafter: only the sizes of the vocabularies were compared",)


@pytest.mark.parametrize(
    "content", ["{}", '{"model": {}}', '{"model": {"vocab": 3}}', '{"model": {"vocab": {"a": "x"}}}']
)
def test_a_tokenizer_without_a_vocabulary_is_refused(plan_with, tmp_path, content):
    plan_with()
    (tmp_path / "their" / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: received no vocabulary in model\.vocab, expected"):
        make_plan(load_recipe(tmp_path))


@pytest.mark.parametrize(
    "model",
    [BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]), Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -2.0)], 0, False)],
    ids=["BPE", "Unigram"],
)
def test_vocabularies_are_those_of_the_tokenizers_library(tmp_path, model):
    tokenizer = Tokenizer(model)
    tokenizer.add_tokens(["one", "two"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    expected = {token_id: token for token, token_id in tokenizer.get_vocab(with_added_tokens=True).items()}
    assert len(expected) == 5
    assert read_vocabulary(tmp_path / "tokenizer.json") == expected


@pytest.mark.parametrize(
    ("target", "drafter", "notes"),
    [
        ({}, {"eos_token_id": 2}, ("end-of-sequence tokens: target [1], drafter [2]; the target's count",)),
        (
            {"eos_token_id": [1, 3]},
            {"eos_token_id": [2, 4]},
            ("end-of-sequence tokens: target [1, 3], drafter [2, 4]; the target's count",),
        ),
        (
            {"bos_token_id": 0},
            {"bos_token_id": 5},
            ("first tokens: target [0], drafter [5]; prompts begin with the target's",),
        ),
        ({"pad_token_id": 0}, {"pad_token_id": 1}, ()),
    ],
)
def test_special_tokens_may_differ_on_one_tokenizer(plan_with, target, drafter, notes):
    plan = plan_with(target=target, **drafter)
    assert plan.notes == notes
    assert list(plan.target.facts.eos_token_ids) in ([1], [1, 3])


@pytest.mark.parametrize(
    ("drafter", "message"),
    [
        ({"eos_token_id": 2}, "received a drafter with eos token 2, expected the target's 1"),
        ({"bos_token_id": 5}, "with bos token 5, expected the target's 0"),
    ],
)
def test_special_tokens_that_differ_are_refused_where_no_tokenizers_were_compared(
    plan_with, tmp_path, drafter, message
):
    with pytest.raises(RecipeError, match=message) as caught:
        plan_with(target={"bos_token_id": 0, "words": None}, **drafter)
    assert "put its tokenizer.json beside both models" in caught.value.hint
    (tmp_path / "our" / "tokenizer.json").write_bytes((tmp_path / "their" / "tokenizer.json").read_bytes())
    assert make_plan(load_recipe(tmp_path)).notes  # the hint is true


def test_pad_tokens_play_no_part_without_tokenizers_either(plan_with):
    notes = plan_with(target={"pad_token_id": 0, "words": None}, pad_token_id=1).notes
    assert notes == ("no tokenizer.json in target: only the sizes of the vocabularies were compared",)


def test_special_tokens_that_one_model_leaves_out_are_not_compared(plan_with):
    assert plan_with(target={"bos_token_id": 0}, eos_token_id=None).notes == ()


def test_ends_that_overlap_are_noted(plan_with):
    notes = plan_with(target={"eos_token_id": [1, 3]}).notes
    assert notes == ("end-of-sequence tokens: target [1, 3], drafter [1]; the target's count",)


def test_special_tokens_are_compared_as_text_where_ids_are_missing(plan_with, tmp_path):
    plan_with(eos_token_id=None)
    (tmp_path / "our" / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    (tmp_path / "their" / "special_tokens_map.json").write_text('{"eos_token": {"content": "else"}}')
    notes = ("end-of-sequence tokens: target ['</s>'], drafter ['else']; the target's count",)
    assert make_plan(load_recipe(tmp_path)).notes == notes
