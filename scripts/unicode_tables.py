#!/usr/bin/env python3
"""Write what native/text knows of Unicode, as the Python package tokenizers answers it for every code point.

scripts/unicode_tables.py            # write native/text/unicode_*.h; takes a minute or two
scripts/unicode_tables.py --check    # exit code 1 when they are not what it would write

The package holds four versions of Unicode (its regular expressions, its normal forms, Rust's own, and an old list of
punctuation), so no one database would give its token ids. Cases of letters in chat templates are Python's own.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

sys.path.insert(0, str(Path(__file__).parents[1]))
from scripts.charsmap import charsmap

FOLDER = Path(__file__).parents[1] / "speccompile/native/text"
CHARACTERS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
ALL = "".join(CHARACTERS)
HANGUL = range(0xAC00, 0xD7A4)
CATEGORY_NAMES = "Cn Cc Cf Co Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs"
CATEGORIES = CATEGORY_NAMES.split()
SCRIPT_NAMES = """
Arabic Armenian Bengali Bopomofo Cherokee Cyrillic Devanagari Ethiopic Georgian Greek Gujarati Gurmukhi Han Hangul
Hebrew Hiragana Kannada Katakana Khmer Lao Latin Malayalam Mongolian Myanmar Sinhala Tamil Telugu Thai Tibetan
"""
WIDTH = 116

Ranges = list[tuple[int, int]]


def number(value: int) -> str:
    """Write a number in letters of five bits, the lowest first, whose sixth announces the next. No letter needs an
    escape in C++."""
    letters = ""
    while True:
        value, digit = value >> 5, value & 31
        letters += chr(48 + digit + (32 if value else 0))
        if not value:
            return letters.translate({ord("\\"): "~", ord("?"): "!"})


def signed(value: int) -> str:
    return number(2 * value if value >= 0 else -2 * value - 1)


def ranges(characters: Iterable[str]) -> Ranges:
    """Return the first and last character of every run. Surrogates, which no text holds, do not end a run."""
    found: Ranges = []
    for code in sorted(map(ord, characters)):
        if found and code in (found[-1][1] + 1, 0xE000 if found[-1][1] == 0xD7FF else -1):
            found[-1] = (found[-1][0], code)
        else:
            found.append((code, code))
    return found


def gaps(found: Ranges) -> Iterator[tuple[int, int, int]]:
    """Return of every run its first, how far it is from the last of the one before, and how many follow it."""
    last = 0
    for first, end in found:
        yield first, first - last, end - first
        last = end


def packed(found: Ranges) -> str:
    return "".join(number(gap) + number(more) for _, gap, more in gaps(found))


def matching(pattern: str, text: str = ALL) -> set[str]:
    """Return the characters of `text` that a pattern for one character matches."""
    return set(text) - set(normalizers.Replace(Regex(pattern), "").normalize_str(text))


def isolated(splitter: pre_tokenizers.PreTokenizer) -> set[str]:
    """Return the characters that are split from letters around them."""
    found: set[str] = set()
    for start in range(0, len(CHARACTERS), 20_000):
        text = "a".join(["", *CHARACTERS[start : start + 20_000], ""])
        found |= {piece for piece, _ in splitter.pre_tokenize_str(text) if len(piece) == 1}
    return found - {"a"}


def word_characters() -> set[str]:
    r"""Return \w of the Rust crate regex, which Whitespace and single_word use."""
    found: set[str] = set()
    for start in range(0, len(CHARACTERS), 20_000):
        text = " ".join("a" + each for each in CHARACTERS[start : start + 20_000])
        found |= {piece[1] for piece, _ in pre_tokenizers.Whitespace().pre_tokenize_str(text) if len(piece) == 2}
    return found


def categories() -> tuple[str, dict[str, set[str]]]:
    sets = {name: matching(rf"\p{{{name}}}") for name in CATEGORIES}
    assert sum(map(len, sets.values())) == len(CHARACTERS)
    runs = sorted((first, last, index) for index, name in enumerate(CATEGORIES) for first, last in ranges(sets[name]))
    place = next(place for place, run in enumerate(runs) if run[0] == 0xE000)
    runs[place] = (0xD800, *runs[place][1:])  # surrogates, which no text holds
    return "".join(number(last - first) + number(index) for first, last, index in runs), sets


def properties(of: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the tables by the names that native/text asks for."""
    white = matching(r"\s")
    strip = normalizers.Strip(left=True, right=False)
    assert white == {each for each in CHARACTERS if not strip.normalize_str(each)}
    graph = set(CHARACTERS) - white - of["Cn"] - of["Cc"] - of["Zs"] - of["Zl"] - of["Zp"]
    assert graph == matching("[[:graph:]]")
    assert graph | of["Zs"] == matching("[[:print:]]")
    assert matching("[[:alpha:]]") | of["Nd"] == matching("[[:alnum:]]")
    found = {name: matching(f"[[:{name}:]]") for name in ("alpha", "lower", "punct", "space", "upper", "word")}
    found["word_escape"] = matching(r"\w")
    found["rust_word"] = word_characters()
    found["rust_numeric"] = isolated(pre_tokenizers.Digits(individual_digits=True))
    found["rust_punctuation"] = isolated(pre_tokenizers.Punctuation("isolated"))
    found["combining_mark"] = set(CHARACTERS) - set(normalizers.StripAccents().normalize_str(ALL))
    found |= of_bert() | clusters()
    return found | {script.lower(): matching(rf"\p{{{script}}}") for script in SCRIPT_NAMES.split()}


def of_bert() -> dict[str, set[str]]:
    """Return the characters that BertNormalizer drops, cleaning texts and stripping accents, after NFD."""
    cleaned = normalizers.BertNormalizer(True, False, False, False)
    bare = normalizers.BertNormalizer(False, False, True, False)
    decomposed = (each for each in CHARACTERS if normalizers.NFD().normalize_str(each) == each)
    return {
        "rust_dropped": {each for each in CHARACTERS if not cleaned.normalize_str(each)},
        "rust_nonspacing": {each for each in decomposed if not bare.normalize_str(each)},
    }


def clusters() -> dict[str, set[str]]:
    """Return characters of grapheme clusters of fewer than six bytes: those that extend one, those that begin one
    before another character, those that are one by themselves. Precompiled replaces a whole cluster that begins with a
    key."""

    def replaced(keys: Collection[str], texts: Collection[str]) -> set[str]:
        one = normalizers.Precompiled(charsmap(dict.fromkeys(keys, "\1")))
        return {text for text in texts if one.normalize_str(text) == "\1"}

    others = [each for each in CHARACTERS if each not in "\0\1a"]
    extends = {text[1] for text in replaced("a", ["a" + each for each in others])}
    short = [each for each in others if len(each.encode()) < 4]
    prepends = {text[0] for text in replaced(short, [each + "a" for each in short])}
    joined = {text[0] for text in replaced(short, [each + "\u0301" for each in short])}
    return {
        "grapheme_extend": extends, "grapheme_prepend": prepends,
        "grapheme_control": {"\0", "\1"} | set(short) - joined,
    }  # fmt: skip


def mapping(pairs: dict[int, int]) -> str:
    """Return runs of code points that are one or two apart and move by the same number."""
    runs: list[list[int]] = []  # first, how many follow, stride, move
    for code, to in sorted(pairs.items()):
        run = runs[-1] if runs else [0, 0, 0, 0]
        stride = code - (run[0] + run[1] * run[2])
        if runs and to - code == run[3] and stride in ((1, 2) if not run[1] else (run[2],)):
            run[1:3] = [run[1] + 1, stride]
        else:
            runs.append([code, 0, 0, to - code])
    text, last = "", 0
    for first, more, stride, move in runs:
        text += number(first - last) + number(more) + number(stride) + signed(move)
        last = first + more * stride
    return text


def lowercase() -> str:
    lower = {each: normalizers.Lowercase().normalize_str(each) for each in CHARACTERS}
    assert {each for each, to in lower.items() if len(to) > 1} == {"\u0130"}
    return mapping({ord(each): ord(to) for each, to in lower.items() if to != each and len(to) == 1})


def folds() -> tuple[str, str]:
    """Return characters that (?i) takes for another, each to the first of its kind; and those it takes for several."""
    asked = matching(r"[\p{Lu}\p{Ll}\p{Lt}\p{Nl}\x{345}\x{24B6}-\x{24E9}]")
    text = "".join(sorted(asked))
    several = {each: each.casefold() for each in CHARACTERS if len(each.casefold()) > 1}
    kinds = {each: matching(rf"(?i)[\x{{{ord(each):X}}}]", text) | {each} for each in text}
    for each, parts in several.items():
        kinds[each] = {other for other in kinds[each] if other == each or several.get(other) == parts}
    assert all(kinds[other] == kind for kind in kinds.values() for other in kind)
    pairs = {ord(each): ord(min(kind)) for each, kind in kinds.items() if each != min(kind)}
    codes = [[ord(part) for part in (each, *parts)] for each, parts in several.items()]
    return mapping(pairs), "".join(number(len(row)) + "".join(map(number, row)) for row in codes)


def cases(made: dict[str, str]) -> tuple[str, str]:
    """Return the characters that become one, and those that become several."""
    single = mapping({ord(each): ord(to) for each, to in made.items() if len(to) == 1})
    several = ([ord(part) for part in each + to] for each, to in made.items() if len(to) > 1)
    return single, "".join(number(len(row)) + "".join(map(number, row)) for row in several)


def case_header() -> str:
    def is_final(text: str) -> bool:
        return (text + "\u03a3").lower()[-1] == "\u03c2"

    upper, several_upper = cases({each: each.upper() for each in CHARACTERS if each.upper() != each})
    title, several_title = cases({each: each.title() for each in CHARACTERS if each.title() != each.upper()})
    cased = {each for each in CHARACTERS if (each + "A").title()[-1] == "a"}
    ignored = {each for each in CHARACTERS if is_final("a" + each) and not is_final("1" + each)}
    return (
        HEADER.replace(f"the package tokenizers {tokenizers.__version__}", "Python's str")
        + constant("kUppercase", upper, "Upper case, as kLowercase.")
        + constant("kSeveralUpper", several_upper, "Upper case of several characters. How many numbers, which.")
        + constant("kTitlecase", title, "First letter of a word, where it is not upper case; as kUppercase.")
        + constant("kSeveralTitle", several_title, "Like kSeveralUpper.")
        + constant("kCased", packed(ranges(cased)), "Characters with a case; as the runs of kProperties.")
        + constant("kCaseIgnored", packed(ranges(ignored)), "Characters that the form of a sigma overlooks.")
        + "\n}  // namespace spc::unicode\n"
    )


def changed(form: normalizers.Normalizer) -> dict[str, str]:
    made = ((each, form.normalize_str(each)) for each in CHARACTERS if ord(each) not in HANGUL)
    return {each: to for each, to in made if to != each}


def decompositions(pairs: dict[str, str]) -> str:
    text, last = "", 0
    for each, to in sorted(pairs.items()):
        text += number(ord(each) - last) + number(len(to)) + "".join(number(ord(part)) for part in to)
        last = ord(each)
    return text


def compositions(canonical: dict[str, str]) -> str:
    """Return the pairs that NFC joins."""
    compose = normalizers.NFC().normalize_str
    text, last = "", 0
    for each, to in sorted(canonical.items()):
        if len(to) > 1 and compose(to) == each:
            first, second = compose(to[:-1]), to[-1]
            assert len(first) == 1
            text += number(ord(each) - last) + number(ord(first)) + number(ord(second))
            last = ord(each)
    return text


def combining_classes() -> str:
    """Return classes by the order in which NFD puts every character and marks whose class is known."""
    order: Callable[[str], str] = normalizers.NFD().normalize_str
    known = {
        1: 0x334, 7: 0x93C, 8: 0x3099, 9: 0x94D, 10: 0x5B0, 11: 0x5B1, 12: 0x5B2, 13: 0x5B3, 14: 0x5B4, 15: 0x5B5,
        16: 0x5B6, 17: 0x5B7, 18: 0x5B8, 19: 0x5B9, 20: 0x5BB, 21: 0x5BC, 22: 0x5BD, 23: 0x5BF, 24: 0x5C1, 25: 0x5C2,
        26: 0xFB1E, 27: 0x64B, 28: 0x64C, 29: 0x64D, 30: 0x64E, 31: 0x64F, 32: 0x650, 33: 0x651, 34: 0x652, 35: 0x670,
        36: 0x711, 84: 0xC55, 91: 0xC56, 103: 0xE38, 107: 0xE48, 118: 0xEB8, 122: 0xEC8, 129: 0xF71, 130: 0xF72,
        132: 0xF74, 202: 0x321, 214: 0x1DCE, 216: 0x31B, 218: 0x302A, 220: 0x316, 222: 0x59A, 224: 0x302E, 226: 0x1D16D,
        228: 0x5AE, 230: 0x301, 232: 0x315, 233: 0x35C, 234: 0x35D, 240: 0x345,
    }  # fmt: skip
    found: dict[int, list[str]] = {}
    for each in CHARACTERS:
        if order(each) != each:
            continue  # what decomposes is never asked
        after = {value for value, mark in known.items() if order(chr(mark) + each) != chr(mark) + each}
        before = {value for value, mark in known.items() if order(each + chr(mark)) != each + chr(mark)}
        if after or before:
            same = set(known) - after - before
            assert len(same) == 1, (hex(ord(each)), same)
            found.setdefault(same.pop(), []).append(each)
    runs = sorted((first, last, value) for value, each in found.items() for first, last in ranges(each))
    values = iter(value for *_, value in runs)
    moves = gaps([(first, last) for first, last, _ in runs])
    return "".join(number(gap) + number(more) + number(next(values)) for _, gap, more in moves)


def literal(text: str) -> str:
    return "\n".join(f'    "{text[start : start + WIDTH]}"' for start in range(0, len(text), WIDTH))


def member(name: str, text: str) -> str:
    line = f'    {{"{name}", "{text}"}},\n'
    return line if len(line) <= WIDTH else f'    {{"{name}",\n{literal(text)}}},\n'


def constant(name: str, text: str, says: str) -> str:
    return f"// {says}\ninline constexpr char {name}[] =\n{literal(text)};\n"


HEADER = f"""\
// Made by scripts/unicode_tables.py from what the package tokenizers {tokenizers.__version__} answers. Do not edit.
// Numbers are written with five bits a letter (`number` there, Packed in unicode.h).
#pragma once

namespace spc::unicode {{

"""


def data_header() -> str:
    runs, sets = categories()
    single, several = folds()
    table = "".join(member(name, packed(ranges(each))) for name, each in properties(sets).items())
    return (
        HEADER
        + constant("kCategoryNames", CATEGORY_NAMES, "General categories in the regular expressions.")
        + constant("kCategories", runs, "Runs from 0 to the end: how many more, which category.")
        + "// Runs of characters: how far from the last of the one before, how many more.\n"
        "struct Property {\n  const char* name;\n  const char* runs;\n};\n"
        f"inline constexpr Property kProperties[] = {{\n{table}}};\n"
        + constant("kFolds", single, "(?i): the first of the kind. Runs: how far, how many more, stride, move.")
        + constant("kSeveral", several, "(?i): characters that stand for several. How many numbers, which.")
        + constant("kLowercase", lowercase(), "Lower case, as kFolds; but U+0130, which becomes two.")
        + "\n}  // namespace spc::unicode\n"
    )


def compatible_header(canonical: dict[str, str]) -> str:
    compatible = {each: to for each, to in changed(normalizers.NFKD()).items() if canonical.get(each) != to}
    table = constant("kCompatible", decompositions(compatible), "NFKD, where it is not NFD; as kCanonical.")
    return HEADER + table + "\n}  // namespace spc::unicode\n"


def forms_header(canonical: dict[str, str]) -> str:
    return (
        HEADER
        + constant("kCanonical", decompositions(canonical), "NFD: how far from the one before, how many, which.")
        + constant("kCompositions", compositions(canonical), "NFC: how far from the one before, of which two.")
        + constant("kClasses", combining_classes(), "Combining classes above 0. Runs: how far, how many more, class.")
        + "\n}  // namespace spc::unicode\n"
    )


def main() -> int:
    canonical = changed(normalizers.NFD())
    headers = {
        "unicode_data.h": data_header(),
        "unicode_forms.h": forms_header(canonical),
        "unicode_compatible.h": compatible_header(canonical),
        "unicode_case.h": case_header(),
    }
    there = {path.name: path.read_text() for path in FOLDER.glob("unicode_*.h")}
    stale = [name for name, text in headers.items() if there.get(name) != text]
    if "--check" not in sys.argv:
        for name in stale:
            (FOLDER / name).write_text(headers[name])
        return 0
    for name in stale:
        print(f"{FOLDER / name} is not what scripts/unicode_tables.py writes")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
