#include "letter_case.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <vector>

#include "forms.h"
#include "unicode.h"
#include "unicode_case.h"

namespace spc::unicode {
namespace {

constexpr uint32_t kCapitalSigma = 0x3A3, kSigma = 0x3C3, kFinalSigma = 0x3C2;

using Codes = std::vector<uint32_t>;
using Cases = std::unordered_map<uint32_t, Codes>;

Cases cases_of(const char* single, const char* several) {
  Cases found;
  for (const auto& [code, to] : moves(single)) found[code] = {to};
  for (Packed packed(several); packed.more();) {
    const uint32_t size = packed.number();
    Codes& to = found[packed.number()];
    for (uint32_t i = 1; i < size; ++i) to.push_back(packed.number());
  }
  return found;
}

struct Tables {
  Cases upper = cases_of(kUppercase, kSeveralUpper), title = cases_of(kTitlecase, kSeveralTitle);
  Set cased = unpacked(kCased), ignored = unpacked(kCaseIgnored), lowers = property("lower"), uppers = property("upper"), titles = category("Lt");
};

const Tables& tables() {
  static const Tables kTables;
  return kTables;
}

Codes decoded(const std::string& text) {
  Codes found;
  for (size_t at = 0; at < text.size();) {
    const auto [code, size] = decode(text, at);
    found.push_back(code);
    at += size;
  }
  return found;
}

void append_all(std::string& to, const Codes& codes) {
  for (const uint32_t code : codes) append(to, code);
}

// Return whether the nearest character of a direction that is not overlooked has a case.
bool is_beside_letter(const Codes& text, size_t at, int step) {
  const auto size = static_cast<ptrdiff_t>(text.size());
  auto place = static_cast<ptrdiff_t>(at) + step;
  while (place >= 0 && place < size && tables().ignored.has(text[static_cast<size_t>(place)])) place += step;
  return place >= 0 && place < size && tables().cased.has(text[static_cast<size_t>(place)]);
}

void append_lower(std::string& to, const Codes& text, size_t at) {
  if (text[at] == kCapitalSigma) return append(to, is_beside_letter(text, at, -1) && !is_beside_letter(text, at, 1) ? kFinalSigma : kSigma);
  std::string own;
  append(own, text[at]);
  to += spc::lowercase(NormalizedString{own, {}, false}).text;
}

void append_upper(std::string& to, uint32_t code) {
  const auto found = tables().upper.find(code);
  append_all(to, found == tables().upper.end() ? Codes{code} : found->second);
}

void append_title(std::string& to, uint32_t code) {
  const auto found = tables().title.find(code);
  if (found == tables().title.end()) return append_upper(to, code);
  append_all(to, found->second);
}

// Return whether there are characters of `own`, and neither of `other`.
bool is_all(const std::string& text, const Set& own, const Set& other) {
  const Codes codes = decoded(text);
  return std::any_of(codes.begin(), codes.end(), [&](uint32_t code) { return own.has(code); }) &&
         std::none_of(codes.begin(), codes.end(), [&](uint32_t code) { return other.has(code); });
}

}  // namespace

std::string uppercase(const std::string& text) {
  std::string found;
  for (const uint32_t code : decoded(text)) append_upper(found, code);
  return found;
}

std::string lowercase(const std::string& text) {
  const Codes codes = decoded(text);
  std::string found;
  for (size_t at = 0; at < codes.size(); ++at) append_lower(found, codes, at);
  return found;
}

std::string titlecase(const std::string& text) {
  const Codes codes = decoded(text);
  std::string found;
  bool is_inside = false;
  for (size_t at = 0; at < codes.size(); ++at) {
    if (is_inside)
      append_lower(found, codes, at);
    else
      append_title(found, codes[at]);
    is_inside = tables().cased.has(codes[at]);
  }
  return found;
}

std::string capitalized(const std::string& text) {
  const Codes codes = decoded(text);
  std::string found;
  for (size_t at = 0; at < codes.size(); ++at) {
    if (at)
      append_lower(found, codes, at);
    else
      append_title(found, codes[at]);
  }
  return found;
}

bool is_lowercase(const std::string& text) { return is_all(text, tables().lowers, tables().uppers | tables().titles); }
bool is_uppercase(const std::string& text) { return is_all(text, tables().uppers, tables().lowers | tables().titles); }

}  // namespace spc::unicode
