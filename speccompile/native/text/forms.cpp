#include "forms.h"

#include <algorithm>
#include <unordered_map>

#include "../words.h"
#include "flat_map.h"
#include "unicode.h"
#include "unicode_compatible.h"
#include "unicode_data.h"
#include "unicode_forms.h"

namespace spc {
namespace {

using Codes = std::vector<uint32_t>;

// Hangul syllables are counted, not listed: a leading consonant, a vowel and maybe a trailing consonant.
constexpr uint32_t kSyllable = 0xAC00, kLeading = 0x1100, kVowel = 0x1161, kTrailing = 0x11A7;
constexpr uint32_t kLeadings = 19, kVowels = 21, kTrailings = 28, kSyllables = kLeadings * kVowels * kTrailings;

std::unordered_map<uint32_t, Codes> decompositions(const char* text) {
  std::unordered_map<uint32_t, Codes> found;
  uint32_t code = 0;
  for (unicode::Packed packed(text); packed.more();) {
    code += packed.number();
    Codes& parts = found[code];
    parts.resize(packed.number());
    for (uint32_t& part : parts) part = packed.number();
  }
  return found;
}

struct Tables {
  std::unordered_map<uint32_t, Codes> canonical = decompositions(unicode::kCanonical);
  std::unordered_map<uint32_t, Codes> compatible = decompositions(unicode::kCompatible);
  FlatMap<uint32_t> compositions{1024}, classes{1024}, lower{2048};

  Tables() {
    uint32_t code = 0;
    for (unicode::Packed packed(unicode::kCompositions); packed.more();) {
      code += packed.number();
      const uint64_t first = packed.number(), second = packed.number();
      compositions.set(first << 32 | second, code);
    }
    uint32_t last = 0;
    for (unicode::Packed packed(unicode::kClasses); packed.more();) {
      const uint32_t first = last + packed.number();
      last = first + packed.number();
      const uint32_t value = packed.number();
      for (code = first; code <= last; ++code) classes.set(code, value);
    }
    for (const auto& [from, to] : unicode::moves(unicode::kLowercase)) lower.set(from, to);
  }
};

const Tables& tables() {
  static const Tables kTables;
  return kTables;
}

// Character of a form. from: place in the original text.
struct Unit {
  uint32_t code, combining_class;
  size_t from;
};

void append(std::vector<Unit>& units, uint32_t code, size_t from) {
  constexpr uint32_t kFirstMark = 0x300;  // characters before it have class 0
  const uint32_t* combining_class = code < kFirstMark ? nullptr : tables().classes.find(code);
  units.push_back({code, combining_class ? *combining_class : 0, from});
}

void decompose(std::vector<Unit>& units, uint32_t code, size_t from, bool compatible) {
  if (code < 0x80) return units.push_back({code, 0, from});
  if (code - kSyllable < kSyllables) {
    const uint32_t index = code - kSyllable, trailing = index % kTrailings;
    append(units, kLeading + index / (kVowels * kTrailings), from);
    append(units, kVowel + index / kTrailings % kVowels, from);
    if (trailing) append(units, kTrailing + trailing, from);
    return;
  }
  const auto find = [&](const std::unordered_map<uint32_t, Codes>& in) {
    const auto found = in.find(code);
    return found == in.end() ? nullptr : &found->second;
  };
  const Codes* parts = compatible ? find(tables().compatible) : nullptr;
  if (!parts) parts = find(tables().canonical);
  if (!parts) return append(units, code, from);
  for (const uint32_t part : *parts) append(units, part, from);
}

// Sort marks in a row by their classes (canonical ordering).
void order(std::vector<Unit>& units) {
  for (auto begin = units.begin(); begin != units.end();) {
    begin = std::find_if(begin, units.end(), [](const Unit& unit) { return unit.combining_class != 0; });
    const auto end = std::find_if(begin, units.end(), [](const Unit& unit) { return unit.combining_class == 0; });
    std::stable_sort(begin, end, [](const Unit& a, const Unit& b) { return a.combining_class < b.combining_class; });
    begin = end;
  }
}

// Return the character that two characters compose to, 0 for none.
uint32_t composition(uint32_t first, uint32_t second) {
  if (first - kLeading < kLeadings && second - kVowel < kVowels)
    return kSyllable + ((first - kLeading) * kVowels + (second - kVowel)) * kTrailings;
  const uint32_t index = first - kSyllable, trailing = second - kTrailing;
  if (index < kSyllables && index % kTrailings == 0 && trailing > 0 && trailing < kTrailings) return first + trailing;
  const uint32_t* found = tables().compositions.find(uint64_t{first} << 32 | second);
  return found ? *found : 0;
}

void compose(std::vector<Unit>& units) {
  constexpr size_t kNone = ~size_t{0};
  size_t starter = kNone, kept = 0;
  bool has_between = false;  // a mark was kept behind the starter: a later one of its class is blocked
  uint32_t last_class = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    const Unit unit = units[i];
    if (starter != kNone && (!has_between || last_class < unit.combining_class)) {
      if (const uint32_t joined = composition(units[starter].code, unit.code)) {
        units[starter].code = joined;
        continue;
      }
    }
    if (unit.combining_class == 0) starter = kept;
    has_between = unit.combining_class != 0;
    last_class = unit.combining_class;
    units[kept++] = unit;
  }
  units.resize(kept);
}

}  // namespace

NormalizedString normal_form(const NormalizedString& line, Form form) {
  if (is_ascii(line.text)) return line;
  std::vector<Unit> units;
  units.reserve(line.text.size());
  for (size_t at = 0; at < line.text.size();) {
    const auto [code, size] = unicode::decode(line.text, at);
    decompose(units, code, line.origin(at), form == Form::kNfkc || form == Form::kNfkd);
    at += size;
  }
  order(units);
  if (form == Form::kNfc || form == Form::kNfkc) compose(units);
  NormalizedString made = line.empty_like();
  for (const Unit& unit : units) made.add(unit.code, unit.from);
  return made;
}

NormalizedString lowercase(const NormalizedString& line) {
  NormalizedString made = line.empty_like();
  for (size_t at = 0; at < line.text.size();) {
    const auto [code, size] = unicode::decode(line.text, at);
    const uint32_t* lower = tables().lower.find(code);
    made.add(code == 0x130 ? 'i' : lower ? *lower : code, line.origin(at));
    if (code == 0x130) made.add(0x307, line.origin(at));  // the one that becomes two
    at += size;
  }
  return made;
}

}  // namespace spc
