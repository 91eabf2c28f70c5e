"""Tokenizers made from GGUF metadata, against those that the metadata was written from."""

import json
from itertools import pairwise
from pathlib import Path

import gguf
import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, GemmaTokenizer, LlamaTokenizer, Qwen2Tokenizer
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
from transformers.tokenization_utils_base import generate_merges

from speccompile.compiler.checkpoints.gguf.metadata import Metadata
from speccompile.compiler.checkpoints.gguf.reader import read_gguf
from speccompile.compiler.checkpoints.gguf.text_splits import TEXT_SPLITS
from speccompile.compiler.checkpoints.gguf.tokenizer import make_tokenizer
from speccompile.errors import SpeccompileError, UnsupportedModelError
from tests.gguf_files import add_byte_level
from tests.gguf_writer import write_parts

SOURCES = sorted(Path(__file__).parents[2].glob("speccompile/*/*.py"))[:60]
ODD = (
    "", " ", "  two  spaces ", "I'll we'Re 'S", "1 12 123 1234 12345", "a\n\nb\r\n\tc", "naïve café ΑΒΓ где 漢字 한글",
    "e\u0301 \u00a0 \u2028x", "😀👍🏽 \U0001f1e9\U0001f1ea", "CamelCaseHTTPServer snake_case", "<s>x</s> <extra> <s>",
    "a<extra>  b <extra>", "x = {'k': [1, 2.5e-3]} # !?", "\x00\x07 ~", "//path/to\n///", "ſ İ ß ŒÆ",
)  # fmt: skip
TEXTS = (*ODD, *(path.read_text()[:600] for path in SOURCES))
SPECIAL = ("<s>", "</s>")
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}"


def described(folder, add, architecture="llama", model_type="llama"):
    """Return the tokenizer that transformers loads from what is made of a file's metadata."""
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    add(writer)
    writer.add_tensor("t", np.zeros(1, np.float32))
    write_parts(writer)
    values = read_gguf(folder / "model.gguf").metadata
    metadata = Metadata(folder / "model.gguf", values)
    made = make_tokenizer(metadata, architecture, len(values.get("tokenizer.ggml.tokens", ())))
    metadata.claim(["general.architecture"])
    metadata.refuse_unclaimed()
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    for name, content in zip(("tokenizer.json", "tokenizer_config.json"), made, strict=True):
        (folder / name).write_text(json.dumps(content))
    return AutoTokenizer.from_pretrained(folder)


def byte_level(pre):
    """Train the byte-level tokenizer that `pre` stands for, with splits that transformers has written."""
    tokenizer = Tokenizer(models.BPE())
    if pre == "gpt-2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif pre in ("smollm", "starcoder"):  # as in their tokenizer.json
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    else:
        split = pre_tokenizers.Split(Regex(GGUF_PRE_TOKENIZER_SPLITS[pre]), "isolated")
        rest = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, rest])
    if pre in ("qwen2", "qwen35"):
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS[len(ODD) :], trainer)
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.add_tokens(["<extra>"])
    return tokenizer


@pytest.mark.parametrize("pre", TEXT_SPLITS)
def test_byte_level_tokenizers_are_those_of_the_model(tmp_path, pre):
    reference = byte_level(pre)
    reference.save(str(tmp_path / "original.json"))
    begin, end = (reference.token_to_id(token) for token in SPECIAL)
    special = (("add_bos_token_id", begin), ("add_eos_token_id", end), ("add_chat_template", TEMPLATE))
    found = described(tmp_path, add_byte_level(tmp_path / "original.json", pre, special))
    first = [begin] if TEXT_SPLITS[pre].adds_bos else []
    for text in TEXTS:
        ids = reference.encode(text).ids
        assert found(text).input_ids == first + ids, text
        assert found.decode(ids) == reference.decode(ids, skip_special_tokens=False)
    assert found.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "hi</s>"


def test_qwen_2_is_that_of_its_class(tmp_path):
    trained = json.loads(byte_level("qwen2").to_str())["model"]
    merges = [tuple(each) for each in trained["merges"]]
    reference = Qwen2Tokenizer(vocab=trained["vocab"] | {"<|endoftext|>": len(trained["vocab"])}, merges=merges)
    reference.backend_tokenizer.save(str(tmp_path / "original.json"))
    found = described(tmp_path, add_byte_level(tmp_path / "original.json", "qwen2"))
    for text in TEXTS:
        assert found(text).input_ids == reference(text).input_ids, text


@pytest.mark.parametrize(("said", "expected"), [(None, True), (False, False), (True, True)])
def test_a_text_begins_with_bos_as_the_file_says(tmp_path, said, expected):
    byte_level("llama-bpe").save(str(tmp_path / "original.json"))
    special = [("add_bos_token_id", 5), ("add_eos_token_id", 6), ("add_add_eos_token", True)]
    special += [] if said is None else [("add_add_bos_token", said)]
    found = described(tmp_path, add_byte_level(tmp_path / "original.json", "llama-bpe", special))
    ids = found("x y").input_ids
    assert (ids[0] == 5, ids[-1]) == (expected, 6)


def pieces():
    """Return SentencePiece's pieces and scores: three special ones, bytes, and a trained BPE by rank."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.train_from_iterator(TEXTS[len(ODD) :], trainers.BpeTrainer(vocab_size=500, show_progress=False))
    tokens = sorted(tokenizer.get_vocab(), key=lambda token: (len(token) == 1, tokenizer.token_to_id(token)))
    all_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", *SPECIAL, *all_bytes, *tokens, "<extra>"]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 260), 4]
    scores = [0.0] * 259 + [-float(index) for index in range(len(tokens) - 259)]
    return tokens, scores, kinds


def add_pieces(writer, more=()):
    tokens, scores, kinds = pieces()
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    for method, value in (("add_bos_token_id", 1), ("add_eos_token_id", 2), ("add_unk_token_id", 0), *more):
        getattr(writer, method)(value)


def merged(text, scores):
    """Apply SentencePiece's BPE, by its definition: merge the neighbours that make the piece with the best score, the
    leftmost of equals, until there are none; spell what is no piece in bytes."""
    parts = list(text.replace(" ", "\u2581"))
    while pairs := [(-scores[a + b], at) for at, (a, b) in enumerate(pairwise(parts))
                    if a + b in scores]:  # fmt: skip
        _, at = min(pairs)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [each for part in parts
            for each in ([part] if part in scores else [f"<0x{byte:02X}>" for byte in part.encode()])]  # fmt: skip


@pytest.mark.parametrize("prefix", [True, False])
def test_sentence_piece_is_by_its_definition(tmp_path, prefix):
    found = described(tmp_path, lambda writer: add_pieces(writer, [("add_add_space_prefix", prefix)]))
    tokens, values, kinds = pieces()
    scores = {token: score for token, score, kind in zip(tokens, values, kinds, strict=True) if kind == 1}
    for text in TEXTS:
        if not text or any(token in text for token in (*SPECIAL, "<extra>")):
            continue
        expected = ["<s>", *merged(" " * prefix + text, scores)]
        assert found.convert_ids_to_tokens(found(text).input_ids) == expected, text
        assert found.decode(found(text).input_ids, skip_special_tokens=True) == text


def test_sentence_piece_is_that_of_llamas_class(tmp_path):
    found = described(tmp_path, add_pieces)
    tokens, _, _ = pieces()
    vocab = {token: index for index, token in enumerate(tokens)}
    model = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
    reference = LlamaTokenizer(vocab=vocab, merges=[tuple(each) for each in model["merges"]])
    for text in TEXTS[len(ODD) :]:
        assert found(text, add_special_tokens=False).input_ids == reference(text, add_special_tokens=False).input_ids
    assert found("a<extra>b</s>").input_ids[-1] == 2
    assert vocab["<extra>"] in found("a<extra>b").input_ids


def test_a_mistral_keeps_its_split(tmp_path):
    """transformers has a repair for Mistral's own folders, which must not touch this one."""
    reference = byte_level("tekken")
    reference.save(str(tmp_path / "original.json"))
    found = described(tmp_path, add_byte_level(tmp_path / "original.json", "tekken"), model_type="mistral")
    assert all(found(text).input_ids == reference.encode(text).ids for text in TEXTS)


def add_gemma(writer):
    """Write pieces as Gemma's: merges by the order of tokens, and runs of spaces as user-defined tokens of spaces."""
    tokens, _, kinds = pieces()
    runs = {token for token in tokens if len(token) > 1 and set(token) == {"\u2581"}}
    assert "\u2581\u2581" in runs
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([" " * len(token) if token in runs else token for token in tokens])
    writer.add_token_scores([-1000.0] * len(tokens))
    writer.add_token_types([4 if token in runs else kind for token, kind in zip(tokens, kinds, strict=True)])
    for method, value in (("add_bos_token_id", 1), ("add_eos_token_id", 2), ("add_unk_token_id", 0),
                          ("add_add_space_prefix", False)):  # fmt: skip
        getattr(writer, method)(value)


def test_gemma_is_that_of_its_class(tmp_path):
    found = described(tmp_path, add_gemma, "gemma2", "gemma2")
    tokens = pieces()[0]
    vocab = {token: index for index, token in enumerate(tokens)}
    whole = {token: index for token, index in vocab.items() if index > 258}
    merges = generate_merges(whole, {token: -index for token, index in whole.items()})
    reference = GemmaTokenizer(vocab=vocab, merges=merges, bos_token="<s>", eos_token="</s>", pad_token="<s>")
    reference.add_tokens(["<extra>"])
    for text in TEXTS:
        assert found(text, add_special_tokens=False).input_ids == reference(text, add_special_tokens=False).input_ids
    assert found("a   b").input_ids[0] == 1
    assert vocab["\u2581\u2581"] in found("a  b").input_ids


def test_special_tokens_of_phi_3_take_the_spaces_behind_them(tmp_path):
    found = described(tmp_path, add_pieces, "phi3", "phi3")
    assert found("x</s>\n y").input_ids == found("x</s>y").input_ids
    assert found("x<s>\n y").input_ids != found("x<s>y").input_ids


@pytest.mark.parametrize(("change", "message"), [
    (("add_tokenizer_pre", "chatglm-bpe"), "tokenizer.ggml.pre: received 'chatglm-bpe', expected one of gpt-2, "),
    (("add_bos_token_id", 10**6), "tokenizer.ggml.bos_token_id: received 1000000, expected a token id below"),
    (("add_add_space_prefix", True), "tokenizer.ggml.add_space_prefix: received True"),
    (("add_token_merges", ["q w e"]), "tokenizer.ggml.merges: received \"'q w e'\""),
    (("add_token_types", [1]), "tokenizer.ggml.token_type: received '1 values'"),
])  # fmt: skip
def test_what_would_cut_text_otherwise_is_refused(tmp_path, change, message):
    byte_level("gpt-2").save(str(tmp_path / "original.json"))

    def add(writer):
        add_byte_level(tmp_path / "original.json", "gpt-2")(writer)
        replaced = {"add_tokenizer_pre": "pre", "add_token_merges": "merges", "add_token_types": "token_type"}
        writer.kv_data[0].pop(f"tokenizer.ggml.{replaced.get(change[0])}", None)
        getattr(writer, change[0])(change[1])

    with pytest.raises(SpeccompileError) as refused:
        described(tmp_path, add)
    assert message in str(refused.value)


def test_an_unknown_split_names_the_way_out(tmp_path):
    byte_level("gpt-2").save(str(tmp_path / "original.json"))
    with pytest.raises(UnsupportedModelError) as refused:
        described(tmp_path, add_byte_level(tmp_path / "original.json", "unheard-of"))
    assert "target.tokenizer" in str(refused.value.hint)
