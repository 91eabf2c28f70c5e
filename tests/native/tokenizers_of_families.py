"""Small tokenizers with the parts of those that models bring, trained on a made-up text."""

import inspect
import json
import unicodedata
from collections.abc import Callable, Sequence

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from scripts.charsmap import charsmap

SENTENCES = [
    "def größe(x): return '你好, 世界' # 😀👍🏽 e\u0301 ñ Straße ŒUVRE ﬁn",
    "The quick brown fox jumps over the lazy dog. Hello world, hello there! It's we're I'LL you'd THEY'VE",
    "日本語のテキスト と 한국어 и русский текст 👩‍👩‍👧 naïve café ไทย العربية हिन्दी",
    "x = [1, 22, 333, 4444]  # 12345678 ²³ ½ ٣٤ \t tabs\r\n\r\n   indented\n\n\nlines   ",
]
CORPUS = [*SENTENCES, *(inspect.getsource(module) for module in (json, inspect))]
SPECIAL = ["<unk>", "<s>", "</s>"]
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + SHORT + "?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + SHORT + "?",
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*",
        SPACES,
    ]
)
KIMI = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}|(?<=\d)x|\s+(?!\S)|\s+|."


def byte_level(
    splitters: Sequence[pre_tokenizers.PreTokenizer], normalizer: normalizers.Normalizer | None = None, **options: bool
) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitters[0] if len(splitters) == 1 else pre_tokenizers.Sequence(list(splitters))
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def bytes_behind(*splitters: pre_tokenizers.PreTokenizer) -> list[pre_tokenizers.PreTokenizer]:
    return [*splitters, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]


def split(pattern: str, behavior: str = "isolated", invert: bool = False) -> pre_tokenizers.Split:
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def gpt2() -> Tokenizer:
    return byte_level([pre_tokenizers.ByteLevel(add_prefix_space=False)])


def roberta() -> Tokenizer:
    """Return one with a space before the first word, tokens around the text, and a mask that takes the spaces on its
    left."""
    tokenizer = byte_level([pre_tokenizers.ByteLevel(add_prefix_space=True)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True), AddedToken("<x>", rstrip=True)])
    return tokenizer


def llama3() -> Tokenizer:
    tokenizer = byte_level(bytes_behind(split(LLAMA3)), ignore_merges=True)
    template = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def qwen2() -> Tokenizer:
    tokenizer = byte_level(bytes_behind(split(QWEN2)), normalizers.NFC())
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("<tool>call", normalized=False)])
    return tokenizer


def gpt_oss() -> Tokenizer:
    return byte_level(bytes_behind(split(O200K)))


def deepseek() -> Tokenizer:
    signed = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    words = [signed, r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+", r" ?[\p{P}\p{S}]+[\r\n]*", SPACES]
    return byte_level(bytes_behind(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split("|".join(words))))


def kimi() -> Tokenizer:
    return byte_level(bytes_behind(split(KIMI, "removed", invert=True)))


def falcon() -> Tokenizer:
    digits = pre_tokenizers.Digits(individual_digits=False)
    splitters = [pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False), digits]
    tokenizer = byte_level([*splitters, split("[0-9][0-9][0-9]")])
    tokenizer.add_tokens([AddedToken("hello", single_word=True), AddedToken(" the ", normalized=True)])
    return tokenizer


def starcoder() -> Tokenizer:
    digits = pre_tokenizers.Digits(individual_digits=True)
    return byte_level([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)], normalizers.NFKC())


def phi() -> Tokenizer:
    """Return one in which runs of spaces are added tokens."""
    tokenizer = gpt2()
    tokenizer.add_tokens([AddedToken(" " * count, normalized=False) for count in range(2, 10)])
    return tokenizer


def sentence_pieces(**options: object) -> Tokenizer:
    """Return characters and merges of a text with ▁ for spaces, bytes for what the vocabulary lacks."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(SENTENCES[1:2] * 3, trainers.BpeTrainer(vocab_size=160, show_progress=False))
    names = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    model = json.loads(trained.to_str())["model"]
    learned = sorted(model["vocab"], key=model["vocab"].__getitem__)
    vocabulary = {token: index for index, token in enumerate([*names, *learned])}
    merges = [tuple(merge) for merge in model["merges"]]
    options = {"unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True} | options
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, **options))
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 1)])
    strip = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(strip)
    return tokenizer


def llama2() -> Tokenizer:
    tokenizer = sentence_pieces()
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.add_tokens([AddedToken("<extra> ", normalized=True), AddedToken("fox", normalized=True)])
    return tokenizer


def gemma() -> Tokenizer:
    tokenizer = sentence_pieces()
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous", False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_tokens([AddedToken("\n" * count, normalized=False) for count in range(1, 5)])
    return tokenizer


def metaspace(scheme: str, splits: bool = True) -> Callable[[], Tokenizer]:
    def made() -> Tokenizer:
        tokenizer = sentence_pieces()
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=splits)
        tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
        return tokenizer

    return made


def unknown() -> Tokenizer:
    """Return one with no bytes to fall back to, lower case without accents, whole words."""
    tokenizer = sentence_pieces(byte_fallback=False, fuse_unk=False)
    forms = [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()]
    tokenizer.normalizer = normalizers.Sequence([*forms, normalizers.Replace(Regex(r"\s+"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = None
    return tokenizer


def word_ends() -> Tokenizer:
    """Return one as CLIP has it: the end of a word is part of its last token."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.NFKD()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    options = {"continuing_subword_prefix": "##", "end_of_word_suffix": "</w>", "show_progress": False}
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIAL, **options)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.decoder = decoders.BPEDecoder("</w>")
    return tokenizer


def fused() -> Tokenizer:
    tokenizer = sentence_pieces(byte_fallback=False)
    tokenizer.normalizer = normalizers.NFKC()
    splitters = [split(r"\d", "merged_with_next"), split("[aeiou]+", "contiguous")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splitters)
    tokenizer.post_processor = processors.BertProcessing(("</s>", 2), ("<s>", 1))
    return tokenizer


BYTES = (gpt2, roberta, llama3, qwen2, gpt_oss, deepseek, kimi, falcon, starcoder, phi)


def nmt_nfkc() -> bytes:
    """Return a map like SentencePiece's nmt_nfkc: compatible forms, composed letters, blanks, controls to nothing."""
    keys = [chr(code) for code in (*range(0x20, 0x3100), *range(0xFB00, 0xFB07), *range(0xFF00, 0xFFE0))]
    texts = {key: unicodedata.normalize("NFKC", key) for key in keys}
    composed = {unicodedata.normalize("NFD", key): text for key, text in texts.items()}
    blanks = dict.fromkeys("\t\n\r\u2028\u200b", " ") | dict.fromkeys(map(chr, (1, 2, 7, 0x7F, 0x8F, 0x200C)), "")
    return charsmap({key: text for key, text in (composed | texts).items() if key != text} | blanks)


def unigram(byte_fallback: bool = False, **parts: object) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer, tokenizer.pre_tokenizer = parts.get("normalizer"), pre_tokenizers.Metaspace()
    tokenizer.decoder = parts.get("decoder", decoders.Metaspace())
    letters = [f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else []
    trainer = trainers.UnigramTrainer(
        vocab_size=600 + len(letters), special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator([text[:4000] for text in CORPUS], trainer)
    file = json.loads(tokenizer.to_str())
    file["model"]["vocab"] += [[letter, 0.0] for letter in letters]
    file["model"]["byte_fallback"] = byte_fallback
    return Tokenizer.from_str(json.dumps(file))


def t5() -> Tokenizer:
    tokenizer = unigram(normalizer=normalizers.Precompiled(nmt_nfkc()))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    end = tokenizer.token_to_id("</s>")
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", "$A </s> $B </s>", [("</s>", end)])
    return tokenizer


def pegasus() -> Tokenizer:
    blanks = normalizers.Replace(Regex(" {2,}"), " ")
    return unigram(normalizer=normalizers.Sequence([normalizers.Precompiled(nmt_nfkc()), blanks]))


def unigram_bytes() -> Tokenizer:
    steps = [decoders.ByteFallback(), decoders.Metaspace()]
    return unigram(byte_fallback=True, decoder=decoders.Sequence(steps))


def bert(lowercase: bool = True, cleanup: bool = True) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=cleanup)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    )
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def bert_cased() -> Tokenizer:
    return bert(lowercase=False, cleanup=False)


def whole_words() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = ["<s>", "</s>", "<unk>"]
    tokenizer.train_from_iterator(
        CORPUS, trainers.WordLevelTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    return tokenizer


FAMILIES: dict[str, Callable[[], Tokenizer]] = {
    made.__name__: made
    for made in (
        *BYTES, llama2, gemma, unknown, word_ends, fused, unigram, t5, pegasus, unigram_bytes, bert, bert_cased,
        whole_words
    )
}  # fmt: skip
FAMILIES |= {f"metaspace_{scheme}": metaspace(scheme) for scheme in ("first", "never", "always")}
FAMILIES["metaspace_whole"] = metaspace("first", splits=False)
