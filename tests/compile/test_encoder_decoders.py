"""Targets with an encoder: their decoders behind the hook, bundles against transformers, lookups in the source."""

import functools
import json
import subprocess

import pytest
import torch
import transformers

from scripts.examples.corrector import corrected, make_corrector
from speccompile.bundle.sources import is_cross_state
from speccompile.compiler.from_recipe import build
from speccompile.compiler.models.load import load_model
from speccompile.compiler.models.probe import probe
from speccompile.compiler.models.sourced import fill_cross
from speccompile.compiler.step.attention import HOOK
from speccompile.compiler.step.decoder import CacheShape
from speccompile.compiler.step.draft.source_lookup import SourceLookup
from speccompile.errors import PromptError, SpeccompileError
from speccompile.runtime import Bundle
from tests.copy_edit import make_sources
from tests.native.native_service import NativeService
from tests.native.side_by_side import SideBySide

pytestmark = pytest.mark.builds(7)

SIZES = {
    "vocab_size": 120, "d_model": 32, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None,
    "tie_word_embeddings": False,
}  # fmt: skip
GEMMA = {
    "vocab_size": 120, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
T5 = {
    "vocab_size": 120, "d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 2,
    "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "pad_token_id": 0, "eos_token_id": 1,
    "decoder_start_token_id": 0, "relative_attention_max_distance": 40, "relative_attention_num_buckets": 12,
}  # fmt: skip
T5_MODELS = {"t5": "T5", "mt5": "MT5", "umt5": "UMT5"}
MODELS = {
    "bart": ("BartForConditionalGeneration", "BartConfig"),
    "mbart": ("MBartForConditionalGeneration", "MBartConfig"),
    "pegasus": ("PegasusForConditionalGeneration", "PegasusConfig"),
    "marian": ("MarianMTModel", "MarianConfig"),
    "m2m_100": ("M2M100ForConditionalGeneration", "M2M100Config"),
}


def make_model(name, folder, seed=0, **changes):
    """Write a random model whose answers vary, and return it."""
    torch.manual_seed(seed)
    if name == "t5gemma":
        sides = {"encoder": GEMMA, "decoder": GEMMA | {"cross_attention_hidden_size": 32}}
        config = transformers.T5GemmaConfig(**sides, vocab_size=120, tie_word_embeddings=False)
        model = transformers.T5GemmaForConditionalGeneration(config)
    elif name in T5_MODELS:
        config = getattr(transformers, f"{T5_MODELS[name]}Config")(**T5 | changes)
        model = getattr(transformers, f"{T5_MODELS[name]}ForConditionalGeneration")(config)
    else:
        kind, config_kind = (getattr(transformers, each) for each in MODELS[name])
        model = kind(config_kind(**SIZES | ({"decoder_vocab_size": 120} if name == "marian" else {}) | changes))
    for key, weight in model.named_parameters():
        if weight.dim() > 1:
            weight.data.mul_(8 if "embed" in key else 4)
    model.eval().save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", [*MODELS, *T5_MODELS, "t5gemma"])
def test_decoders_run_behind_the_hook(name, tmp_path):
    make_model(name, tmp_path)
    decoder = probe(load_model(tmp_path, 48), CacheShape(1, 80, 48, source=20))  # raises where it differs
    assert decoder.has_source
    kinds = [each.partition(".")[0] for each in decoder.cross_names()]
    assert kinds == ["cross_key", "cross_value"] * len(decoder.layers)
    assert {name: shape[2] for name, shape in decoder.cache_shapes().items()}["cross_value.1"] == 20


@torch.no_grad()
@pytest.mark.parametrize("name", T5_MODELS)
def test_distances_beyond_the_table_have_its_last_bias(name, tmp_path):
    model = make_model(name, tmp_path)
    loaded = load_model(tmp_path, 160)
    decoder = probe(loaded, CacheShape(1, 170, 160, source=9))
    random = torch.Generator().manual_seed(1)
    source, tokens = (torch.randint(2, 120, (1, size), generator=random) for size in (7, 90))
    loaded.read(source[0].tolist())
    encoded = loaded.encoded
    caches, names = decoder.empty(170), list(decoder.cache_shapes())
    fill_cross(names, caches, loaded.cross_rows(encoded))
    expected = model(input_ids=source, decoder_input_ids=tokens).logits
    loaded.set_attn_implementation(HOOK)
    start = 0
    for part in tokens.split([70, 1, 19], 1):
        current = decoder.begin(caches, torch.tensor([start]), torch.tensor([7]))
        width, places = part.shape[1], torch.arange(start, start + part.shape[1])[None]
        current.set_positions(places, places, torch.ones(1, width, width, dtype=torch.bool).tril())
        got = decoder.run(current, part)
        assert torch.allclose(got, expected[:, start : start + width], atol=1e-4 * float(expected.abs().max()))
        written = iter(current.commit(current.rows(), torch.tensor([width])))
        caches = [cache if is_cross_state(each) else next(written) for each, cache in current.named.items()]
        start += width


@torch.no_grad()
def test_the_padding_token_of_an_answer_is_a_token(tmp_path):
    model, tokens = make_model("t5gemma", tmp_path), torch.tensor([[1, 9, 0, 7, 0, 8]])
    loaded, source = load_model(tmp_path, 32), torch.tensor([[5, 6, 7]])
    loaded.read(source[0].tolist())
    expected = model(input_ids=source, decoder_input_ids=tokens, use_cache=True).logits  # as `generate` has it
    assert torch.allclose(loaded(input_ids=tokens, use_cache=False).logits, expected, atol=1e-6)


def recipe(target, **keys):
    cache = {"max_length": 100, "prefill_chunk": 8}
    return {
        "name": "demo", "target": {"model": str(target)}, "cache": cache, "decoding": "greedy",
        "source": {"max_length": 90}, "prove": {"max_new_tokens": 12},
    } | keys  # fmt: skip


@pytest.fixture(scope="module")
def corrector(tmp_path_factory):
    """Build the corrector with drafts from its source, in a batch of two."""
    folder = tmp_path_factory.mktemp("corrector")
    target = make_corrector(folder / "target")
    drafter = {"kind": "prompt_lookup", "over": "source", "tokens": 12}
    cache = {"max_length": 100, "prefill_chunk": 8, "batch_size": 2}
    build(recipe(target, drafter=drafter, cache=cache), folder / "bundle")
    return folder


def generate(model, source, **options):
    """Return the new tokens of transformers' greedy decoding."""
    ids = torch.tensor([source])
    found = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=1, **options)
    return found[0, 1:].tolist()


def test_a_corrector_copies_its_source(corrector):
    model = transformers.BartForConditionalGeneration.from_pretrained(corrector / "target")
    with Bundle.open(corrector / "bundle") as bundle:
        sources = make_sources(4, 80, 0.04, 1)
        lengths = []
        for source in sources:
            ours = bundle.generate(source=source, max_new_tokens=90, adaptive=False)
            alone = bundle.generate(source=source, max_new_tokens=90, autoregressive=True)
            assert ours.token_ids == alone.token_ids == corrected(source)
            assert ours.token_ids == generate(model, source, max_new_tokens=90)
            lengths.append((len(ours.token_ids) - 1) / ours.rounds)
        assert sum(lengths) / len(lengths) >= 5
        assert bundle.exact


def test_sources_of_a_batch_differ(corrector):
    one, other = make_sources(1, 60, 0.1, 2)[0], make_sources(1, 9, 0.1, 3)[0]
    with Bundle.open(corrector / "bundle") as bundle:
        found = bundle.generate_batch(source=[one, other], max_new_tokens=90)
        assert [each.token_ids for each in found] == [corrected(one), corrected(other)]
        begun = bundle.generate([0, *corrected(one)[:7]], source=one, max_new_tokens=90)
        assert begun.token_ids == corrected(one)[7:]
        with pytest.raises(PromptError, match="has 91 tokens, more than this bundle's longest source of 90"):
            bundle.generate(source=[5] * 91)
        with pytest.raises(PromptError, match="received no source"):
            bundle.generate([0])
        bundle.reuse_last()  # nothing is taken from the last source
        assert bundle.generate(source=other, max_new_tokens=90).token_ids == corrected(other)
        with bundle.serve() as service:  # requests with sources share a batch, and no tokens of another source
            asked = [service.submit(source=each, max_new_tokens=90) for each in (one, other, one)]
            found = [each.generations()[0].token_ids for each in asked]
            assert found == [corrected(one), corrected(other), corrected(one)]


def test_commands_take_sources(corrector, cli, tmp_path):
    source = make_sources(1, 30, 0.1, 4)[0]
    text = ",".join(map(str, source))
    code, out, _ = cli("generate", corrector / "bundle", "--source-ids", text, "-n", "90", "--json")
    assert (code, json.loads(out)["token_ids"]) == (0, corrected(source))
    code, _, err = cli("generate", corrector / "bundle", "--source-ids", text, "--source", "a")
    assert (code, "received --source and --source-ids, expected one source" in err) == (2, True)
    code, _, err = cli("generate", corrector / "bundle", "--token-ids", "0")
    assert (code != 0, "received no source" in err) == (True, True)
    code, out, _ = cli("generate", corrector / "bundle", "--source", "the mans goed home")
    assert (code, out) == (0, "the men went home\n")
    code, out, _ = cli("prove", corrector / "bundle", "--target", corrector / "target", "--json")
    assert json.loads(out)["transformers"]["equal"] == 3
    prompts = tmp_path / "sources.jsonl"
    prompts.write_text("".join(json.dumps({"token_ids": each}) + "\n" for each in make_sources(2, 70, 0.04, 5)))
    code, out, _ = cli("bench", corrector / "bundle", "--prompts", prompts, "-n", "80", "--repeats", "1", "--json")
    assert json.loads(out)["equal_prompts"] == 2


def test_the_runtime_in_cpp_takes_sources(corrector, native_build, native_library, onnxruntime_library):
    both = SideBySide(corrector / "bundle", native_library, onnxruntime_library)
    one, other = make_sources(1, 60, 0.1, 2)[0], make_sources(1, 9, 0.1, 3)[0]
    for way in ({"adaptive": False}, {}, {"autoregressive": True}):
        found = both.check([], source=[one, other], max_new_tokens=90, **way)
        assert [each.token_ids for each in found] == [corrected(one), corrected(other)]
    both.check(["the", [0, *corrected(one)[:7]]], source=one, max_new_tokens=90, logprobs=True)
    both.check([], source="the mans goed home", max_new_tokens=20, stop=["home"])
    for prompts, options in (
        ([], {"source": [5] * 91}),
        ([[0]], {}),
        ([], {"source": []}),
        ([], {"source": "a", "target_language": "de"}),
        ([], {"source": [1, 999]}),
    ):
        with pytest.raises(SpeccompileError) as expected:
            both.python.generate_batch(prompts, **options)
        with pytest.raises(type(expected.value)) as caught:
            both.session.generate(prompts, **options)
        assert str(caught.value) == str(expected.value)
    service, begun = NativeService(both.native), [0, *corrected(one)[:7]]
    reused = []
    for source in (one, one, other, other):  # what was read of another source serves nobody
        found = service.generate(begun, [], source=source, max_new_tokens=90)
        assert found["token_ids"] == both.python.generate(begun, source=source, max_new_tokens=90).token_ids
        reused.append(found["cached_tokens"])
    service.close()
    assert reused == [0, 7, 0, 7]
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=False, timeout=60)
    command = [native_build / "speccompile-native", "generate", corrector / "bundle", "--onnxruntime"]
    done = run([*command, onnxruntime_library, "--source", "the mans goed home"])
    assert (done.returncode, done.stdout) == (0, "the men went home\n")
    done = run([*command, onnxruntime_library, "--source", "the", "--source-ids", "3"])
    assert (done.returncode, "received --source and --source-ids, expected one source" in done.stderr) == (2, True)


@pytest.mark.sweep("a bundle of two encoders; one that drafts from its source is in the first tier")
def test_a_smaller_model_drafts_with_its_own_encoder(tmp_path):
    model = make_model("m2m_100", tmp_path / "target")
    model.generation_config.forced_bos_token_id = 9
    model.generation_config.save_pretrained(tmp_path / "target")
    drafter = make_model("m2m_100", tmp_path / "drafter", encoder_layers=1, decoder_layers=1)
    weights = {name: each for name, each in model.state_dict().items() if name in drafter.state_dict()}
    drafter.load_state_dict(weights)  # so that some drafts are right
    drafter.save_pretrained(tmp_path / "drafter")
    drafts = {"kind": "model", "model": str(tmp_path / "drafter"), "tokens": 3}
    cache = {"max_length": 48, "prefill_chunk": 8}
    build(recipe(tmp_path / "target", drafter=drafts, source={"max_length": 30}, cache=cache), tmp_path / "bundle")
    random = torch.Generator().manual_seed(0)
    with Bundle.open(tmp_path / "bundle") as bundle:
        for size in (1, 6, 30):
            source = torch.randint(3, 120, (size,), generator=random).tolist()
            source[0] = 1  # padding in the source
            ours = bundle.generate(source=source, max_new_tokens=30, adaptive=False)
            alone = bundle.generate(source=source, max_new_tokens=30, autoregressive=True)
            theirs = generate(model, source, max_new_tokens=31)
            assert ours.token_ids == alone.token_ids
            assert [9, *ours.token_ids] == theirs


def looked_up(answer, source, tokens=4, ngram=3, begin=True, first=False):
    """Return the drafts after an answer: a lookup in plain Python."""
    end = len(answer) - 1
    best = (0, 0, 0)
    for place in range(len(source) - 1):
        size = 0
        while size < min(ngram, place + 1, end + 1) and source[place - size] == answer[end - size]:
            size += 1
        distance = place - (end - 1)
        best = max(best, (size, 10**6 - 2 * abs(distance) - (distance > 0), place)) if size else best
    copied = [source[min(best[2] + 1 + ahead, len(source) - 1)] for ahead in range(tokens)]
    for place in range(end):
        size = 0
        while size < min(ngram, place + 1) and answer[place - size] == answer[end - size]:
            size += 1
        if size > best[0] or (size and size == best[0] and best[1] < 10**5):
            best = (size, place, place)
            copied = [answer[place + 1 + ahead % (end - place)] for ahead in range(tokens)]
    if best[0]:
        return copied
    if begin and first and end < len(source):
        return [source[min(end + ahead, len(source) - 1)] for ahead in range(tokens)]
    return []


def test_the_source_is_looked_up_before_the_answer():
    random = torch.Generator().manual_seed(3)
    for begin in (True, False):
        lookup = SourceLookup(4, 3, begin=begin)
        for trial in range(60):
            first = trial % 5 == 0
            size, length = (int(torch.randint(1, most, (1,), generator=random)) for most in (3 if first else 20, 15))
            answer = torch.randint(0, 6, (size,), generator=random).tolist()
            source = torch.randint(0, 9, (length,), generator=random).tolist()
            rows = torch.tensor([[*answer, *[7] * (24 - size)]])
            padded = torch.tensor([[*source, *[0] * (16 - length)]])
            found = lookup(rows, torch.tensor([[size - 1]]), padded, torch.tensor([length]), torch.tensor([first]))
            drafts = found.tokens[0].tolist() if int(found.match_length) else []
            assert drafts == looked_up(answer, source, begin=begin, first=first), (answer, source)


@pytest.mark.sweep("a bundle of a Marian as it is published; what a config hides is in tests/light/test_sources.py")
@pytest.mark.builds(8)
def test_padding_that_a_marian_must_not_write_is_hidden(tmp_path, native_library, onnxruntime_library):
    model = make_model("marian", tmp_path / "target", pad_token_id=5, decoder_start_token_id=5)
    model.final_logits_bias[0, [5, 9]] = 100.0  # what it would write everywhere
    model.generation_config.bad_words_ids = [[5], [2]]  # 2 ends an answer, and is none of them
    model.generation_config.suppress_tokens = [9]
    model.save_pretrained(tmp_path / "target")
    model = transformers.MarianMTModel.from_pretrained(tmp_path / "target")  # which makes its positions anew
    drafter = {"kind": "prompt_lookup", "over": "source", "tokens": 3}
    cache = {"max_length": 40, "prefill_chunk": 8}
    keys = {"drafter": drafter, "cache": cache, "source": {"max_length": 20}, "decoding": "sampling"}
    built = build(recipe(tmp_path / "target", **keys), tmp_path / "bundle")
    proof = json.loads((built / "proof.json").read_text())
    assert proof["engines"][0]["transformers"]["equal"] == 3
    both = SideBySide(built, native_library, onnxruntime_library)
    for source in ([7], [5, 6, 7, 9, 8], list(range(20, 40))):
        for way in ({"adaptive": False}, {"autoregressive": True}):
            (found,) = both.check([], source=source, max_new_tokens=20, **way)
            assert found.token_ids == generate(model, source, max_new_tokens=20)
        (drawn,) = both.check([], source=source, max_new_tokens=20, temperature=1e3, seed=1)
        assert not {5, 9} & {*drawn.token_ids}


@pytest.mark.sweep("a bundle that samples also proves the distribution of a small model")
@pytest.mark.builds(6)
def test_sampling_is_proven(tmp_path):
    make_model("t5", tmp_path / "target")
    drafter = {"kind": "prompt_lookup", "over": "source", "tokens": 3}
    built = build(
        recipe(tmp_path / "target", drafter=drafter, source={"max_length": 20}, decoding="sampling"),
        tmp_path / "bundle",
    )
    proof = json.loads((built / "proof.json").read_text())
    rows = [row for row in proof["distributions"] if row["model"] == "demo"]
    assert rows
    assert {row["against"] for row in rows} == {"transformers"}
    assert proof["engines"][0]["seeds"]["equal"] == 3
    with Bundle.open(built) as bundle:
        drawn = [bundle.generate(source=[5, 6, 7], seed=seed, temperature=1.0).token_ids for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
