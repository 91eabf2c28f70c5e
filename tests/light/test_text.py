import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as FastTokenizer

from speccompile.errors import BundleError, EngineError, PromptError
from speccompile.runtime.text.tokenizer import IncrementalDetokenizer, Tokenizer

CORPUS = [
    "def größe(x): return '你好, 世界' # 😀👍🏽 e\u0301 ñ",
    "the quick brown fox jumps over the lazy dog. hello world, hello there!",
    "日本語のテキスト と 한국어 и русский текст 👩‍👩‍👧 naïve café",
]
SPECIAL = ["<unk>", "<s>", "</s>"]


def byte_level() -> FastTokenizer:
    tokenizer = FastTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    tokenizer.add_tokens([AddedToken("世界", special=False)])
    return tokenizer


def metaspace() -> FastTokenizer:
    """Return one as Llama 2 has it: every word with its space, bytes for what the vocabulary lacks."""
    trained = FastTokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(CORPUS[1:2] * 3, trainers.BpeTrainer(vocab_size=120, show_progress=False))
    names = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    learned = sorted(trained.get_vocab(), key=trained.get_vocab().get)
    vocabulary = {token: index for index, token in enumerate(names + learned)}
    merges = [(left, right) for token in learned for left, right in splits(token) if {left, right} <= set(learned)]
    tokenizer = FastTokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 1)])
    return tokenizer


def splits(token: str) -> list[tuple[str, str]]:
    return [(token[:cut], token[cut:]) for cut in range(1, len(token))]


def words() -> FastTokenizer:
    """Return whole words, joined with spaces by a decoder that strips the first."""
    names = [*SPECIAL, *sorted(set(" ".join(CORPUS).split()))]
    tokenizer = FastTokenizer(models.WordLevel({f"▁{name}": index for index, name in enumerate(names)}, "▁<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


TOKENIZERS = {"byte_level": byte_level(), "metaspace": metaspace(), "words": words()}


@pytest.fixture(scope="module", params=sorted(TOKENIZERS))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> dict[str, Tokenizer]:
    folder = tmp_path_factory.mktemp("tokenizers")
    for name, tokenizer in TOKENIZERS.items():
        tokenizer.save(str(folder / name))
    return {name: Tokenizer(folder / name) for name in TOKENIZERS}


def continuation(tokenizer: FastTokenizer, prompt: list[int], new: list[int]) -> str:
    """Return the reference: the tokenizers package's own decoding of everything, without what the prompt shows."""
    known, whole = tokenizer.decode(prompt), tokenizer.decode(prompt + new)
    same = next((i for i, (a, b) in enumerate(zip(known, whole, strict=False)) if a != b), min(len(known), len(whole)))
    return whole[same:]


def cut(text: str, stop: list[str]) -> str:
    ends = [(text.index(each) + len(each), text.index(each)) for each in stop if each in text]
    return text[: min(ends)[1]] if ends else text


def streamed(stream: IncrementalDetokenizer, groups: list[list[int]]) -> list[str]:
    return [stream.push(group) for group in groups] + [stream.finish()]


def grouped(ids: list[int], sizes: list[int]) -> list[list[int]]:
    groups, start = [], 0
    for size in sizes:
        groups.append(ids[start : start + size])
        start += size
    return [*groups, ids[start:]]


@pytest.mark.parametrize("sentence", CORPUS)
def test_text_survives_encoding(texts, sentence):
    assert texts["byte_level"].decode(texts["byte_level"].encode(sentence)) == sentence
    assert texts["metaspace"].decode(texts["metaspace"].encode(sentence)) == sentence


def test_special_tokens_are_added_on_request(texts):
    assert texts["metaspace"].encode("hello")[0] == SPECIAL.index("<s>")
    assert SPECIAL.index("<s>") not in texts["metaspace"].encode("hello", special_tokens=False)


def test_a_long_prompt_is_neither_truncated_nor_padded(tmp_path):
    tokenizer = byte_level()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=500)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    text = Tokenizer(tmp_path / "tokenizer.json")
    assert text.decode(text.encode(CORPUS[0])) == CORPUS[0]
    assert len(text.encode("a")) == 1


def test_prompts_that_take_much_memory_are_read_as_others_are(texts, name):
    sentence = CORPUS[0] * 2500
    assert texts[name].encode(sentence) == TOKENIZERS[name].encode(sentence).ids
    assert (
        texts[name].encode(sentence, special_tokens=False)
        == TOKENIZERS[name].encode(sentence, add_special_tokens=False).ids
    )


def test_a_prompt_that_is_not_utf_8_is_refused(texts):
    prompt = b"gr\xfc\xdfe".decode("utf-8", "surrogateescape")
    with pytest.raises(PromptError, match=r"the prompt is not UTF-8 text: character 2 is '\\udcfc'") as caught:
        texts["byte_level"].encode(prompt)
    assert caught.value.hint == "save the prompt as UTF-8"


@pytest.mark.parametrize("content", [b"{}", b"\xff", b'{"model": '])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(BundleError, match=r"tokenizer\.json: expected a tokenizer: ."):
        Tokenizer(tmp_path / "tokenizer.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BundleError, match=r"tokenizer\.json: expected a tokenizer: .*No such file"):
        Tokenizer(tmp_path / "tokenizer.json")


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(EngineError, match="text needs the Python package tokenizers, which is not installed"):
        Tokenizer(tmp_path / "tokenizer.json")


@settings(max_examples=150, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_pieces_are_the_whole_for_any_tokens(texts, name, data):
    tokenizer = TOKENIZERS[name]
    token_ids = st.lists(st.integers(0, tokenizer.get_vocab_size() + 2), max_size=30)
    prompt, new = data.draw(token_ids), data.draw(token_ids)
    groups = grouped(new, data.draw(st.lists(st.integers(0, 5), max_size=8)))
    assert "".join(streamed(IncrementalDetokenizer(texts[name], prompt, []), groups)) == continuation(
        tokenizer, prompt, new
    )


@settings(max_examples=150, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_stop_string_is_ever_shown(texts, name, data):
    tokenizer = TOKENIZERS[name]
    source = data.draw(st.sampled_from(CORPUS))
    # a special token among the new ones would be searched as well: "s" is in "<s>", as for transformers' stop_strings
    prompt, new = tokenizer.encode("hello").ids, tokenizer.encode(source + source, add_special_tokens=False).ids
    whole = continuation(tokenizer, prompt, new)
    places = st.tuples(st.integers(0, len(whole) - 1), st.integers(1, 8))
    stop = [whole[start : start + size] for start, size in data.draw(st.lists(places, max_size=3))]
    stop += data.draw(st.lists(st.text("ab 你\ufffd", min_size=1, max_size=3), max_size=2))
    groups = grouped(new, data.draw(st.lists(st.integers(0, 5), max_size=30)))
    stream, one_by_one = (
        IncrementalDetokenizer(texts[name], prompt, stop),
        IncrementalDetokenizer(texts[name], prompt, stop),
    )
    assert "".join(streamed(stream, groups)) == cut(whole, stop)
    assert "".join(streamed(one_by_one, [[token] for token in new])) == cut(whole, stop)
    assert stream.stopped == one_by_one.stopped == any(each in whole for each in stop)
    assert stream.kept == one_by_one.kept


@pytest.mark.parametrize("sentence", [*CORPUS, "😀", "你好👍🏽", "e\u0301"])
@pytest.mark.parametrize("kind", ["byte_level", "metaspace"])
def test_no_piece_ends_inside_a_character(texts, kind, sentence):
    pieces = streamed(IncrementalDetokenizer(texts[kind], [], []), [[token] for token in texts[kind].encode(sentence)])
    assert "".join(pieces) == sentence
    assert not any("\ufffd" in piece for piece in pieces)


def test_whole_characters_are_shown_at_once(texts):
    tokenizer = TOKENIZERS["byte_level"]
    new = tokenizer.encode("hello world").ids
    stream = IncrementalDetokenizer(texts["byte_level"], [], ["stop"])
    assert [stream.push([token]) for token in new] == [tokenizer.decode([token]) for token in new]


def test_the_first_new_word_keeps_its_space(texts):
    prompt, whole = texts["metaspace"].encode("hello"), texts["metaspace"].encode("hello world")
    assert "".join(streamed(IncrementalDetokenizer(texts["metaspace"], prompt, []), [whole[len(prompt) :]])) == " world"


def test_special_tokens_between_prompt_and_text_change_nothing(texts):
    prompt, whole = texts["metaspace"].encode("hello"), texts["metaspace"].encode("hello world")
    special = [SPECIAL.index("</s>")] * 20
    stream = IncrementalDetokenizer(texts["metaspace"], prompt + special, [])
    assert "".join(streamed(stream, [special, whole[len(prompt) :], special])) == " world"


@pytest.mark.parametrize("kind", ["byte_level", "metaspace"])
def test_an_unfinished_character_comes_last(texts, kind):
    new = texts[kind].encode("a😀", special_tokens=False)[:-1]
    stream = IncrementalDetokenizer(texts[kind], [], [])
    assert "\ufffd" not in stream.push(new)
    assert stream.finish() == TOKENIZERS[kind].decode(new).removeprefix("a")
    assert stream.finish() == ""


@pytest.mark.parametrize("kind", ["byte_level", "metaspace"])
def test_a_prompt_that_ends_inside_a_character_is_completed(texts, kind):
    *prompt, last = texts[kind].encode("hello 😀")
    assert "".join(streamed(IncrementalDetokenizer(texts[kind], prompt, []), [[last]])) == "😀"


def test_a_prompt_that_ends_in_a_long_run_of_bytes_is_continued(texts):
    prompt, whole = texts["metaspace"].encode("你你你你"), texts["metaspace"].encode("你你你你好")
    assert "".join(streamed(IncrementalDetokenizer(texts["metaspace"], prompt, []), [whole[len(prompt) :]])) == "好"


def test_a_replacement_character_in_the_prompt_is_not_repeated(texts):
    prompt, new = texts["byte_level"].encode("a\ufffd"), texts["byte_level"].encode("\ufffdb")
    assert "".join(streamed(IncrementalDetokenizer(texts["byte_level"], prompt, []), [new])) == "\ufffdb"


def test_the_cost_of_a_token_does_not_grow(texts, monkeypatch):
    text, decoded = texts["byte_level"], []
    stream = IncrementalDetokenizer(text, [], ["never"])
    decode = text.decode
    monkeypatch.setattr(text, "decode", lambda token_ids: decoded.append(len(token_ids)) or decode(token_ids))
    broken = text.encode("😀")[:1] * 500
    stream.push(broken + text.encode("hello world " * 100))
    assert max(decoded) <= 12


@pytest.mark.parametrize(
    ("stop", "shown"),
    [
        (["lo w"], "hel"),
        (["world", "hello"], ""),
        (["o", "lo wor"], "hell"),
        (["hello world", "lo"], "hel"),
        (["ello", "lo"], "h"),
        (["worldly", "ld!"], "hello world"),
        ("o w", "hell"),
    ],
)
def test_text_ends_before_the_first_complete_stop_string(texts, stop, shown):
    new = texts["byte_level"].encode("hello world")
    for groups in ([new], [[token] for token in new]):
        assert "".join(streamed(IncrementalDetokenizer(texts["byte_level"], [], stop), groups)) == shown


def test_what_could_become_a_stop_string_waits(texts):
    stream = IncrementalDetokenizer(texts["byte_level"], [], ["xyz!"])
    pieces = [stream.push(texts["byte_level"].encode(letter)) for letter in "axyxyzw"]
    assert pieces == ["a", "", "", "xy", "", "", "xyzw"]
    assert not stream.stopped


def test_held_text_is_shown_at_the_end(texts):
    stream = IncrementalDetokenizer(texts["byte_level"], [], ["xyz"])
    assert stream.push(texts["byte_level"].encode("axy")) == "a"
    assert stream.finish() == "xy"
    assert not stream.stopped


def test_a_stop_in_the_middle_of_a_group_says_how_many_tokens_count(texts):
    letters = [texts["byte_level"].encode(letter)[0] for letter in "abcdef"]
    stream = IncrementalDetokenizer(texts["byte_level"], [], ["cd"])
    assert stream.push(letters[:1]) == "a"
    assert stream.push(letters[1:]) == "b"
    assert (stream.stopped, stream.kept) == (True, 4)
    assert (stream.push(letters), stream.finish(), stream.kept) == ("", "", 4)


def test_a_stop_string_may_be_completed_by_the_end(texts):
    stream = IncrementalDetokenizer(texts["metaspace"], [], ["😀"])
    new = texts["metaspace"].encode("a😀")
    assert stream.push(new) + stream.finish() == "a"
    assert (stream.stopped, stream.kept) == (True, len(new))


def test_an_empty_stop_string_is_refused(texts):
    with pytest.raises(PromptError, match=r"empty stop string in \['a', ''\]"):
        IncrementalDetokenizer(texts["byte_level"], [], ["a", ""])


@pytest.mark.parametrize(
    ("stop", "shown"),
    [
        (["</s>"], "ab"),  # a special token of its own
        (["b</s>"], "a"),  # behind text
        (["</s>c"], "ab"),  # before text
        (["/s"], "ab"),  # a part of one
        (["</s>d"], "abcd"),  # held, and then not
        (["bc"], "a"),  # what is shown counts as well: no stop string is ever shown
    ],
)
def test_special_tokens_are_found_by_stop_strings_and_never_shown(texts, stop, shown):
    ids = [*texts["byte_level"].encode("ab"), SPECIAL.index("</s>"), *texts["byte_level"].encode("cd")]
    for groups in ([ids], [[each] for each in ids]):
        stream = IncrementalDetokenizer(texts["byte_level"], [], stop)
        assert "".join(streamed(stream, groups)) == shown
        assert stream.stopped == (shown != "abcd")


@pytest.mark.parametrize("kind", ["byte_level", "metaspace"])
def test_a_character_that_waits_comes_before_a_special_token_that_stops(texts, kind):
    letters = texts[kind].encode("😀", special_tokens=False)
    for ids, shown in ((letters, "😀"), (letters[:-1], "\ufffd")):
        prompt = texts[kind].encode("a")
        stream = IncrementalDetokenizer(texts[kind], prompt, ["</s>"])
        pieces = streamed(stream, [[*ids, SPECIAL.index("</s>")], letters])
        assert "".join(pieces).lstrip().startswith(shown)
        assert stream.stopped
        assert stream.kept == len(ids) + 1


@pytest.mark.parametrize("kind", ["byte_level", "metaspace"])
def test_a_stop_string_that_begins_the_held_text_ends_it_before_a_special_token(texts, kind):
    """Hold the stop string itself back: an incomplete character."""
    text = texts[kind]
    partial = text.encode("😀", special_tokens=False)[:-1]
    stream = IncrementalDetokenizer(text, text.encode("fox"), ["\ufffd"])
    end = text.encode("", special_tokens=True) or [1]
    assert not any([stream.push(partial[-1:]), stream.push(end[:1]), stream.push(text.encode("a")), stream.finish()])
    assert (stream.stopped, stream.kept) == (True, 2)
