"""Sources of targets with an encoder: what a recipe may say, what a manifest says, and what a call may give."""

import dataclasses
import json

import pytest
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import models, pre_tokenizers, processors

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.source_section import FIELDS, source_problems
from speccompile.bundle.sources import round_only
from speccompile.compiler.checkpoints.encoder_decoder import hidden_tokens, is_encoder_decoder
from speccompile.compiler.checkpoints.facts import read_checkpoint
from speccompile.contract import ENCODE_SOURCE, Graph, Tensor
from speccompile.errors import BundleError, CheckpointError, PromptError, RecipeError, UnsupportedModelError, UsageError
from speccompile.measure.tune.run import Job
from speccompile.plan.caches import CachePlan
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.cache_sizes import cache_size
from speccompile.runtime.generation_options import GenerationOptions
from speccompile.runtime.sources import resolve_sources
from speccompile.runtime.text.tokenizer import Tokenizer
from tests.light.bundle_example import manifest

BART = {
    "model_type": "bart", "is_encoder_decoder": True, "architectures": ["BartForConditionalGeneration"], "d_model": 4,
    "encoder_layers": 3, "decoder_layers": 2, "decoder_start_token_id": 2,
}  # fmt: skip
RTX = {"backend": "tensorrt_rtx", "compute_capability": "8.9", "precision": {"target": "float16"}}
WORDS = ["</s>", "<unk>", "__en__", "__de__", "a", "b"]
SECTION = {
    "max_length": 5, "start_token_id": 0, "forced_bos_token_id": None, "languages": {"en": 2, "de": 3},
    "language_is_start": False,
}  # fmt: skip


@pytest.fixture
def text(tmp_path):
    """Build a tokenizer that writes the token of English before a text and an end behind it, as M2M100's."""
    whole = FastTokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    whole.pre_tokenizer = pre_tokenizers.Whitespace()
    special = [("__en__", 2), ("</s>", 0)]
    whole.post_processor = processors.TemplateProcessing("__en__ $A </s>", special_tokens=special)
    whole.save(str(tmp_path / "tokenizer.json"))
    return Tokenizer(tmp_path / "tokenizer.json")


def resolve(text, *prompts, section=SECTION, **options):
    about = dataclasses.replace(manifest(vocabulary_size=6, max_length=40), source=section)
    return resolve_sources(prompts, GenerationOptions(**options), about, text)


def test_an_answer_begins_with_the_start_token_and_its_language(text):
    assert resolve(text, source="a b") == ([[2, 4, 5, 0]], [[0]])
    assert resolve(text, source="a b", source_language="de", target_language="en") == ([[3, 4, 5, 0]], [[0, 2]])
    forced = SECTION | {"forced_bos_token_id": 4}
    assert resolve(text, source="a", section=forced).prompts == [[0, 4]]
    assert resolve(text, source="a", section=forced, target_language="de").prompts == [[0, 3]]
    first = SECTION | {"language_is_start": True}
    assert resolve(text, source="a", section=first, target_language="de").prompts == [[3]]


def test_a_prompt_is_the_beginning_of_the_answer(text):
    assert resolve(text, "b a", source="a").prompts == [[0, 5, 4]]
    assert resolve(text, [0, 3, 5], source=[4]) == ([[4]], [[0, 3, 5]])
    assert resolve(text, None, "a", source=["a", [5]]) == ([[2, 4, 0], [5]], [[0], [0, 4]])
    assert resolve(text, None, "a", source="b").sources == [[2, 5, 0]] * 2
    assert resolve(text, source=["a", "b"]) == ([[2, 4, 0], [2, 5, 0]], [[0], [0]])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, PromptError, "has an encoder: received no source"),
        ({"source": []}, PromptError, "the source is empty"),
        ({"source": [4] * 6}, PromptError, "the source has 6 tokens, more than this bundle's longest source of 5"),
        ({"source": [6]}, PromptError, "token id 6 is out of range: expected 0 to 5"),
        ({"source": "a", "target_language": "dee"}, UsageError, "received 'dee', expected one of .* languages: de, en"),
        ({"source": [4], "source_language": "de"}, PromptError, "the tokenizer writes no language into this source"),
        ({"source": "a", "session": "file"}, UsageError, "session: received a file"),
    ],
)
def test_wrong_sources_are_named(text, options, error, message):
    with pytest.raises(error, match=message) as caught:
        resolve(text, **options)
    assert caught.value.hint


def test_sources_are_one_for_each_prompt(text):
    with pytest.raises(PromptError, match="received 2 sources for 3 prompts"):
        resolve(text, None, None, None, source=["a", "b"])
    with pytest.raises(UsageError, match="knows no languages by name"):
        resolve(text, source="a", target_language="de", section=SECTION | {"languages": {}})


def test_a_decoder_alone_takes_no_source(text):
    with pytest.raises(UsageError, match="received a source, but this bundle's target has no encoder"):
        resolve(text, [1], section=None, source="a")
    assert resolve(text, [1], section=None) == (None, [[1]])


def test_facts_are_those_of_the_decoder(tmp_path, make_checkpoint):
    facts = read_checkpoint(make_checkpoint(tmp_path / "bart", **BART))[1]
    assert (facts.layers, facts.hidden_size, facts.positions) == (2, 4, 64)
    assert (facts.source.start, facts.source.positions, facts.source.languages) == (2, 64, {})
    plain = read_checkpoint(make_checkpoint(tmp_path / "llama"))[1]
    assert plain.source is None
    assert "source" not in plain.to_json()


def test_a_generation_config_alone_says_how_answers_begin(tmp_path, make_checkpoint):
    folder = make_checkpoint(tmp_path / "bart", **BART | {"forced_bos_token_id": 5})
    assert read_checkpoint(folder)[1].source.forced_bos == 5
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 3}))  # transformers reads this alone
    source = read_checkpoint(folder)[1].source
    assert (source.start, source.forced_bos) == (3, None)


def test_languages_are_tokens_of_the_tokenizer(tmp_path, make_checkpoint):
    folder = make_checkpoint(tmp_path / "mbart", **BART | {"model_type": "mbart"})
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    names = ["__de__", "ro_RO", "eng_Latn", "de", "__DE__"]
    tokenizer["added_tokens"] = [{"id": 2 + place, "content": name} for place, name in enumerate(names)]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    source = read_checkpoint(folder)[1].source
    assert (source.languages, source.language_is_start) == ({"de": 2, "ro_RO": 3, "eng_Latn": 4}, True)


def test_what_cannot_be_compiled_is_named(tmp_path, make_checkpoint):
    with pytest.raises(UnsupportedModelError, match="of type 'led', expected a language model"):
        read_checkpoint(make_checkpoint(tmp_path / "led", **BART | {"model_type": "led"}))
    with pytest.raises(UnsupportedModelError, match="decoder_vocab_size: 5 beside vocab_size"):
        read_checkpoint(make_checkpoint(tmp_path / "two", **BART | {"decoder_vocab_size": 5}))
    without = {name: value for name, value in BART.items() if name != "decoder_start_token_id"}
    with pytest.raises(CheckpointError, match="no decoder_start_token_id"):
        read_checkpoint(make_checkpoint(tmp_path / "start", **without))
    with pytest.raises(CheckpointError, match="forced_bos_token_id: 'x'"):
        read_checkpoint(make_checkpoint(tmp_path / "forced", **BART | {"forced_bos_token_id": "x"}))


@pytest.fixture
def planned(tmp_path, make_checkpoint):
    """Return the plan of a recipe whose target and drafter, `bart`, have encoders, unless it names others."""
    make_checkpoint(tmp_path / "bart", **BART)
    make_checkpoint(tmp_path / "llama")

    def plan(**keys):
        path = tmp_path / "recipe.yaml"
        path.write_text(json.dumps({"name": "demo", "target": {"model": "bart"}, "drafter": {"kind": "none"}} | keys))
        return make_plan(load_recipe(path))

    return plan


def test_the_longest_source_is_decided(planned):
    assert planned().source.max_length == 64
    assert planned(source={"max_length": 9}).to_json()["source"]["max_length"] == 9
    plan = planned(drafter={"kind": "prompt_lookup", "over": "source", "begin": False})
    assert plan.drafter.options == {"over": "source", "begin": False}
    assert planned(target={"model": "llama"}).source is None
    skipped = planned(drafter={"kind": "layer_skip", "layers": [0], "tokens": 2})
    assert (skipped.graphs, skipped.drafter.layers.halves) == ("separate", 2)


@pytest.mark.parametrize(
    ("config", "width", "heads"),
    [
        ({"decoder_attention_heads": 2, "encoder_attention_heads": 1}, 4, 2),
        ({"model_type": "t5", "num_heads": 3, "d_kv": 5, "num_decoder_layers": 2}, 15, 3),
    ],
)
def test_caches_of_the_source_take_memory(config, width, heads, planned, make_checkpoint, tmp_path):
    make_checkpoint(tmp_path / "own", **BART | config)
    plain, codes = (
        planned(target={"model": "own"}, cache=cache, source={"max_length": 9}) for cache in ({}, {"dtype": "int8"})
    )
    for plan, row in ((plain, 4 * width), (codes, width + 4 * heads)):  # keys and values of two layers
        size = cache_size(plan)
        assert (size.token, size.source) == (4 * row, 9 * 4 * row)
        assert size.of(7) - size.of(6) == size.token
        assert size.longest(size.of(7)) == 7
    assert cache_size(planned(target={"model": "llama"}, source=None)).source == 0


def test_rules_of_generate_that_a_bundle_lacks_are_noted(planned, tmp_path):
    assert not planned().notes
    rules = {
        "num_beams": 4,
        "no_repeat_ngram_size": 0,
        "forced_eos_token_id": 2,
        "min_length": 5,
        "early_stopping": True,
    }
    (tmp_path / "bart" / "generation_config.json").write_text(json.dumps(rules | {"repetition_penalty": 1.0}))
    (note,) = planned().notes
    assert "for num_beams: 4, forced_eos_token_id: 2, min_length: 5: a bundle has no such rules" in note
    assert not planned(target={"model": "llama"}).notes


def test_caches_of_layers_that_see_a_window_are_full(planned, make_checkpoint, tmp_path):
    windows = {"layer_types": ["sliding_attention"] * 2, "sliding_window": 8}
    make_checkpoint(tmp_path / "windowed", **BART | windows)
    assert planned(target={"model": "windowed"}).caches == CachePlan()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"source": {"max_length": 65}}, r"source\.max_length: received 65, expected at most 64, the positions of the"),
        ({"target": {"model": "llama"}, "source": {}}, "source: received a section for sources, expected none"),
        (
            {"target": {"model": "llama"}, "drafter": {"kind": "prompt_lookup", "over": "source"}},
            r"drafter\.over: received 'source', expected no such key",
        ),
        ({"drafter": {"kind": "model", "model": "llama"}}, r"drafter\.model: received 'llama', which has no encoder"),
        (
            {"target": {"model": "llama"}, "drafter": {"kind": "model", "model": "bart"}},
            r"drafter\.model: received 'bart', which has an encoder",
        ),
        (
            {"drafter": {"kind": "layer_skip", "layers": {"attention": [0], "mlp": [0, 1]}}},
            r"drafter\.layers: received halves of layers of a target with an encoder",
        ),
        ({"drafter": {"kind": "models", "models": ["bart", "bart"]}}, r"drafter\.kind: received 'models' for a"),
        ({"drafter": {"kind": "prompt_lookup", "begin": True}}, r"drafter\.begin: received true, expected it only wi"),
        (
            {"drafter": {"kind": "prompt_lookup", "over": "source", "tree": [2, 1]}},
            r"drafter\.tree: received a tree with drafter\.over: source",
        ),
        (
            {"drafter": {"kind": "model", "model": "bart", "then": "prompt_lookup"}},
            r"drafter\.then: received it for a target with an encoder",
        ),
        ({"engines": [{"backend": "onnxruntime", "provider": "cuda"}]}, r"engines\.0: received onnxruntime on cuda"),
        ({"engines": [RTX], "cache": {"batch_size": 2}}, r"cache\.batch_size: received 2 with tensorrt_rtx on cuda"),
        ({"engines": [RTX], "cache": {"dtype": "int8"}}, r"cache\.dtype: received 'int8' with tensorrt_rtx on cuda"),
        ({"graphs": "fused", "drafter": {"kind": "model", "model": "bart"}}, "graphs: received it for 'bart'"),
        ({"cache": {"sliding": "ring"}}, r"cache\.sliding: received it for 'bart', which has an encoder"),
        ({"cache": {"ring_rows": 900}}, r"cache\.ring_rows: received it for 'bart', which has an encoder"),
    ],
)
def test_what_targets_with_an_encoder_lack_is_refused(planned, keys, message):
    with pytest.raises(RecipeError, match=message) as caught:
        planned(**keys)
    assert caught.value.hint


def test_quantized_caches_are_noted(planned):
    plan = planned(cache={"dtype": "int8"}, drafter={"kind": "model", "model": "bart"}, drafter_cache={"dtype": "int8"})
    assert (plan.caches.target, plan.caches.drafter) == ("int8", "int8")
    (note,) = plan.notes
    assert "does not say how much worse it predicts with int8 caches" in note
    assert planned(engines=[RTX]).engines[0].backend == "tensorrt_rtx"


def encoder(rows=5):
    state = Tensor("target.cross_key.0", "float32", (1, 2, rows, 4), "target.cross_key.0", "state")
    return Graph(ENCODE_SOURCE, (Tensor("source", "int64", (1, "source"), "source", "io"), state), (state,))


def test_a_manifest_says_what_its_encoder_takes():
    plain = manifest()
    assert "source" not in plain.to_json()
    written = dataclasses.replace(plain, source=SECTION)
    assert Manifest.from_json(json.loads(json.dumps(written.to_json()))) == written
    graphs = {ENCODE_SOURCE: encoder()}
    assert list(source_problems(SECTION, graphs, 6)) == []
    assert list(source_problems(None, {}, 6)) == []
    assert "graphs are encode_source" in next(source_problems(None, graphs, 6))
    assert "expected ids below 3" in next(source_problems(SECTION, graphs, 3))
    assert "has 7 rows, source.max_length is 5" in next(source_problems(SECTION, {ENCODE_SOURCE: encoder(7)}, 6))
    assert round_only([encoder(), plain.graphs[0]]) == (plain.graphs[0],)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"max_length": 0}, "source: max_length: expected a number from 1 on, got 0"),
        ({"languages": {"de": "3"}}, "languages: expected names and token ids"),
        ({"language_is_start": 1}, "language_is_start: expected true or false, got 1"),
        ({"more": 1}, f"expected the fields {', '.join(FIELDS)}, got forced"),
    ],
)
def test_a_wrong_section_is_named(changed, message):
    data = manifest().to_json() | {"source": SECTION | changed}
    with pytest.raises(BundleError, match=message):
        Manifest.from_json(data)


def test_tuning_over_sources_is_refused(planned, tmp_path):
    planned(drafter={"kind": "layer_skip", "layers": [0], "tokens": 2})
    with pytest.raises(RecipeError, match="has an encoder, expected a language model: tuning gives prompts") as caught:
        Job.read(tmp_path / "recipe.yaml")
    assert caught.value.hint


def test_a_decoder_saved_alone_has_no_source():
    assert [is_encoder_decoder({"model_type": "bart"} | said) for said in (
        {}, {"is_encoder_decoder": None}, {"is_encoder_decoder": True}, {"is_encoder_decoder": False},
    )] == [True, True, True, False]  # fmt: skip


def test_tokens_that_no_answer_has_are_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(BART | {"bad_words_ids": [[1]]}))
    assert hidden_tokens(tmp_path) == (1,)
    rules = {"bad_words_ids": [[7], [3], [4, 5]], "eos_token_id": 3, "suppress_tokens": [9, 7]}
    (tmp_path / "generation_config.json").write_text(json.dumps(rules))  # transformers reads one of both alone
    assert hidden_tokens(tmp_path) == (7, 9)
    (tmp_path / "config.json").write_text(json.dumps(BART | {"model_type": "whisper"}))
    assert hidden_tokens(tmp_path) == ()
    (tmp_path / "config.json").write_text(json.dumps(BART))
    (tmp_path / "generation_config.json").write_text('{"suppress_tokens": ["a"]}')
    with pytest.raises(CheckpointError, match="tokens that no answer has"):
        hidden_tokens(tmp_path)
