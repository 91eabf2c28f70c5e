"""Recipe -> Plan: defaults, and what is refused before any work."""

import json

import pytest

from speccompile.errors import CheckpointError, PromptError, RecipeError
from speccompile.recipe import TreePlan, VerifyPlan, load_recipe, make_plan

DRAFTER = {"kind": "model", "model": "drafter"}


def plan(path, *overrides):
    return make_plan(load_recipe(path, overrides))


def refusal(path, *overrides, error=RecipeError):
    with pytest.raises(error) as caught:
        plan(path, *overrides)
    assert caught.value.hint
    return str(caught.value)


def test_defaults_of_the_smallest_recipe(make_recipe):
    decided = plan(make_recipe())
    assert (decided.name, decided.target.reference, decided.target.precision) == ("demo", "target", "float32")
    assert (decided.drafter.kind, decided.drafter.tokens, decided.drafter.models) == ("prompt_lookup", 8, ())
    assert (decided.drafter.tree, decided.drafter.sample) == (TreePlan("chain", tuple(range(-1, 8)), 8), False)
    assert (decided.decoding, decided.graphs, decided.verify) == ("greedy", "separate", VerifyPlan("exact", True, {}))
    assert (decided.max_length, decided.batch_size, decided.prefill_chunk) == (64, 1, 64)
    assert [(engine.name, engine.backend, engine.provider) for engine in decided.engines] == [
        ("onnxruntime-cpu", "onnxruntime", "cpu")
    ]
    assert (decided.prove.prompts, decided.prove.held_out, decided.prove.max_new_tokens) == (None, None, 64)
    assert [note.partition(";")[0] for note in decided.notes] == [
        "drafter.kind is prompt_lookup, which needs no training: the checkpoint carries no draft layers"
    ]


def test_none_is_asked_for(make_recipe):
    decided = plan(make_recipe(drafter={"kind": "none"}))
    assert (decided.drafter.kind, decided.drafter.tokens, decided.notes) == ("none", 0, ())


def test_keys_without_a_kind_are_those_of_the_default_kind(make_recipe):
    assert plan(make_recipe(drafter={"tokens": 7})).drafter.tokens == 7
    assert "drafter.layers: received" in refusal(make_recipe(drafter={"layers": [0]}))


def test_defaults_of_drafters(make_recipe):
    chain = TreePlan("chain", (-1, 0, 1, 2, 3), 4)
    drafter = plan(make_recipe(drafter=DRAFTER)).drafter
    assert (drafter.tokens, drafter.tree, drafter.ngram) == (4, chain, None)
    assert [model.reference for model in drafter.models] == ["drafter"]
    drafter = plan(make_recipe(drafter={"kind": "prompt_lookup"})).drafter
    assert (drafter.tokens, drafter.tree, drafter.ngram, drafter.models) == (4, chain, 3, ())


def test_written_values_are_kept(make_recipe):
    cache = {"max_length": 40, "batch_size": 3, "prefill_chunk": 16}
    decided = plan(
        make_recipe(drafter=DRAFTER | {"tokens": 16, "sample": False}, cache=cache, engines=[{"name": "one"}])
    )
    assert (decided.drafter.tokens, decided.max_length, decided.batch_size, decided.prefill_chunk) == (16, 40, 3, 16)
    assert decided.engines[0].name == "one"


def test_the_default_length_is_what_both_models_can_take(make_recipe, make_checkpoint, tmp_path):
    make_checkpoint(tmp_path / "short", max_position_embeddings=32)
    make_checkpoint(tmp_path / "endless", max_position_embeddings=None)
    assert plan(make_recipe(drafter={"kind": "model", "model": "short"})).max_length == 32
    decided = plan(make_recipe(target={"model": "endless"}))
    assert (decided.max_length, decided.prefill_chunk) == (2048, 128)


def test_the_json_of_a_plan_is_the_same_on_every_machine(make_recipe, tmp_path):
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "def"}\n')
    path = make_recipe(drafter=DRAFTER, prove={"prompts": "prompts.jsonl"})
    data = plan(path).to_json()
    assert json.loads(json.dumps(data)) == data
    assert data["prove"] == {"prompts": "prompts.jsonl", "held_out": None, "max_new_tokens": 64}
    assert data["drafter"]["models"][0]["files"] == ["config.json", "model.safetensors", "tokenizer.json"]
    assert data["drafter"]["tree"] == {"kind": "chain", "parents": [-1, 0, 1, 2, 3], "depth": 4, "top_k": None}
    assert data["verify"] == {"method": "exact", "exact": True, "parameters": {}}
    assert data["target"]["facts"]["eos_token_ids"] == [1]
    assert str(tmp_path) not in json.dumps(data)


@pytest.mark.parametrize("word", ["jetspec", "suffix_automaton"])
def test_what_the_design_names_and_this_version_lacks(make_recipe, word):
    message = refusal(make_recipe(), f"drafter.kind={word}")
    assert message == (
        f"--set drafter.kind: received '{word}', which is not available in this version, "
        "expected none, model, models, prompt_lookup, suffix, token_recycling, retrieval, lookahead, jacobi, "
        "layer_skip, pard, pard2, mtp, dflash, dspark, domino, p_eagle, eagle3, eagle, medusa, hydra, redrafter, "
        "kangaroo, assistant, pass or "
        "bita"
    )


@pytest.mark.parametrize(
    ("override", "guess"),
    [
        ("drafter.kind=modle", "did you mean 'model'?"),
        ("drafter.kind=eagel3", "did you mean 'eagle3'?"),
        ("verify.method=typicl", "did you mean 'typical'?"),
        ("verify.method=exakt", "did you mean 'exact'?"),
        ("decoding=greedily", "did you mean 'greedy'?"),
        ("precision.target=float23", "did you mean 'float32'?"),
        ("engines.0.backend=onnx-runtime", "did you mean 'onnxruntime'?"),
        ("engines.0.backend=xyz", "set engines.0.backend to onnxruntime, tensorrt_rtx or tensorrt"),
        ("engines.0.provider=cpuu", "did you mean 'cpu'?"),
    ],
)
def test_unknown_words_are_refused_with_the_nearest(make_recipe, override, guess):
    with pytest.raises(RecipeError, match="which is unknown, expected") as caught:
        plan(make_recipe(), override)
    assert caught.value.hint == guess


@pytest.mark.parametrize(
    ("drafter", "message"),
    [
        (
            {"kind": "model", "ngram": 2},
            "drafter.ngram: .* expected it only with drafter.kind prompt_lookup, not model",
        ),
        (
            {"kind": "prompt_lookup", "model": "drafter"},
            "drafter.model: .* drafter.kind model, .* or bita, not prompt_lookup",
        ),
        ({"kind": "prompt_lookup", "sample": False}, "drafter.sample: .* drafter.kind model, layer_skip, .*, not prom"),
        (
            {"kind": "none", "model": "drafter"},
            "drafter.model: received a key that means nothing .*kind model, .*, not none",
        ),
        (
            {"kind": "none", "tokens": 4},
            "drafter.tokens: .* drafter.kind model, models, prompt_lookup, suffix, .*, not none",
        ),
        ({"kind": "model", "revision": "a"}, "drafter.model: received nothing, expected the model that drafter.kind"),
        (DRAFTER | {"revision": "a"}, "drafter.revision: received 'a', expected no revision, because the model 'dr"),
        (DRAFTER | {"model": "./nowhere"}, r"drafter\.model: received './nowhere' \(nothing lies at .*nowhere\)"),
    ],
)
def test_keys_that_do_not_fit_the_drafter(make_recipe, drafter, message):
    with pytest.raises(RecipeError, match=message):
        plan(make_recipe(drafter=drafter))


def test_a_precision_for_a_drafter_without_weights_is_refused(make_recipe):
    message = refusal(make_recipe(precision={"drafter": "float32"}))
    assert "precision.drafter: received a key that means nothing for this drafter" in message
    assert "expected it only with drafter.kind model, models, pard, pard2, mtp, dflash" in message
    assert plan(make_recipe(precision={"drafter": "int8"}, drafter=DRAFTER)).drafter.models[0].precision == "int8"


@pytest.mark.parametrize("reference", ["./nowhere", "../nowhere", "~/nowhere", "a/b/nowhere", "."])
def test_a_missing_model_folder_is_refused(make_recipe, reference, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    make_recipe()
    path = make_recipe(target={"model": reference})
    if reference == ".":
        assert "received a folder without config.json" in refusal(path, error=CheckpointError)
    else:
        assert f"target.model: received '{reference}' (nothing lies at" in refusal(path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("some.json", "a file"), ("x.safetensors", "a file of weights alone")],
)
def test_a_file_is_no_model_folder(make_recipe, tmp_path, name, kind):
    (tmp_path / name).write_bytes(b"")
    message = refusal(make_recipe(target={"model": str(tmp_path / name)}))
    assert f"({kind} lies at" in message
    assert message.endswith("expected a model folder")


def test_a_length_past_the_positions_is_refused(make_recipe, make_checkpoint, tmp_path):
    make_checkpoint(tmp_path / "short", max_position_embeddings=32)
    message = refusal(make_recipe(cache={"max_length": 65}))
    assert message.endswith("max_length: received 65, expected at most 64, the positions of the target 'target'")
    message = refusal(make_recipe(cache={"max_length": 33}, drafter={"kind": "model", "model": "short"}))
    assert message.endswith("max_length: received 33, expected at most 32, the positions of the drafter 'short'")


def test_a_chunk_past_the_length_is_refused(make_recipe):
    message = refusal(make_recipe(cache={"max_length": 16, "prefill_chunk": 17}))
    assert "prefill_chunk: received 17, expected at most cache.max_length, which is 16" in message


@pytest.mark.parametrize(("key", "what"), [("prompts", "prompt"), ("held_out", "text")])
def test_a_missing_file_of_the_proof_is_refused(make_recipe, key, what):
    with pytest.raises(RecipeError) as caught:
        plan(make_recipe(prove={key: "nowhere.jsonl"}))
    assert f"prove.{key}: received 'nowhere.jsonl' (no file lies at" in str(caught.value)
    assert str(caught.value).endswith(f"expected a file with one {what} a line")
    assert caught.value.hint == f"correct prove.{key}; a relative path starts at the folder of the recipe"


def test_held_out_texts_lie_beside_the_recipe(make_recipe, tmp_path):
    (tmp_path / "held_out.jsonl").write_text('{"prompt": "def self"}\n')
    decided = plan(make_recipe(prove={"held_out": "held_out.jsonl"}))
    assert decided.prove.held_out == tmp_path / "held_out.jsonl"
    assert decided.prove.to_json() == {"prompts": None, "held_out": "held_out.jsonl", "max_new_tokens": 64}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", r"prompts\.jsonl, line 2: received nonsense, expected \{\"prompt\""),
        ('{"prompt": ""}', "line 2: received an empty prompt, expected text"),
        ('{"token_ids": [3, 8]}', "received token id 8 in prompt 2, expected ids below 8, the size of the target's"),
    ],
)
@pytest.mark.parametrize("key", ["prompts", "held_out"])
def test_wrong_prompts_are_refused_by_the_plan(make_recipe, tmp_path, line, message, key):
    (tmp_path / "prompts.jsonl").write_text(f'{{"prompt": "def"}}\n{line}\n')
    with pytest.raises(PromptError, match=message) as caught:
        plan(make_recipe(prove={key: "prompts.jsonl"}))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("key", ["prompts", "held_out"])
def test_prompts_as_text_need_a_tokenizer(make_recipe, make_checkpoint, tmp_path, key):
    make_checkpoint(tmp_path / "mute", words=None)
    (tmp_path / "prompts.jsonl").write_text('{"token_ids": [7]}\n{"prompt": "def"}\n')
    path = make_recipe(target={"model": "mute"}, prove={key: "prompts.jsonl"})
    message = refusal(path, error=PromptError)
    assert "received prompt 2 as text, but the target has no tokenizer.json, expected token ids" in message


def test_a_corrupt_checkpoint_is_not_the_recipes_fault(make_recipe, tmp_path):
    weights = tmp_path / "target" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match="truncated or corrupt") as caught:
        plan(make_recipe())
    assert caught.value.exit_code == 1
