#include "forms.h"

#include <algorithm>
#include <unordered_map>

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

struct Unit {
  uint32_t code, order;  // its combining class
  size_t from;
};

void put(std::vector<Unit>& units, uint32_t code, size_t from) {
  const uint32_t* order = code < 0x300 ? nullptr : tables().classes.find(code);
  units.push_back({code, order ? *order : 0, from});
}

void decompose(std::vector<Unit>& units, uint32_t code, size_t from, bool compatible) {
  if (code < 0x80) return units.push_back({code, 0, from});
  if (code - kSyllable < kSyllables) {
    const uint32_t index = code - kSyllable, trailing = index % kTrailings;
    put(units, kLeading + index / (kVowels * kTrailings), from);
    put(units, kVowel + index / kTrailings % kVowels, from);
    if (trailing) put(units, kTrailing + trailing, from);
    return;
  }
  const auto find = [&](const std::unordered_map<uint32_t, Codes>& in) {
    const auto found = in.find(code);
    return found == in.end() ? nullptr : &found->second;
  };
  const Codes* parts = compatible ? find(tables().compatible) : nullptr;
  if (!parts) parts = find(tables().canonical);
  if (!parts) return put(units, code, from);
  for (const uint32_t part : *parts) put(units, part, from);
}

// Marks in a row come in the order of their classes.
void order(std::vector<Unit>& units) {
  for (auto begin = units.begin(); begin != units.end();) {
    begin = std::find_if(begin, units.end(), [](const Unit& unit) { return unit.order != 0; });
    const auto end = std::find_if(begin, units.end(), [](const Unit& unit) { return unit.order == 0; });
    std::stable_sort(begin, end, [](const Unit& a, const Unit& b) { return a.order < b.order; });
    begin = end;
  }
}

// 0 for two that do not join.
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
  bool between = false;  // something was kept behind the starter,
  uint32_t last = 0;     // of this class
  for (size_t i = 0; i < units.size(); ++i) {
    const Unit unit = units[i];
    if (starter != kNone && (!between || last < unit.order)) {
      if (const uint32_t joined = composition(units[starter].code, unit.code)) {
        units[starter].code = joined;
        continue;
      }
    }
    if (unit.order == 0) starter = kept;
    between = unit.order != 0;
    last = unit.order;
    units[kept++] = unit;
  }
  units.resize(kept);
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
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
