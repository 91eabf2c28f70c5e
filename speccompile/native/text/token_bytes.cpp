#include "token_bytes.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>

#include "bytes.h"

namespace spc {
namespace {

// Bytes of a text to one byte of its composed form (NFC), at most: three marks of two bytes each on a letter of two bytes become one
// character of three.
constexpr int64_t kMostBytesComposed = 4;

// Return whether a pre-tokenizer writes texts as bytes, each as a letter, and drops none.
bool keeps_bytes(const Json& pre_tokenizer) {
  static const std::set<std::string> kLossless = {"ByteLevel", "Metaspace", "Split", "Digits", "Punctuation", "Sequence", "UnicodeScripts"};
  const Json::List& several = pre_tokenizer["pretokenizers"].list();
  const Json::List steps = several.empty() ? Json::List{pre_tokenizer} : several;
  bool is_byte_level = false;
  for (const Json& step : steps) {
    const std::string& type = step["type"].text();
    is_byte_level = is_byte_level || type == "ByteLevel";
    if (!kLossless.count(type) || step["behavior"] == Json("Removed")) return false;
  }
  return is_byte_level;
}

}  // namespace

int64_t longest_token_bytes(const Json& definition) {
  const Json &model = definition["model"], &normalizer = definition["normalizer"];
  const bool is_composed = normalizer["type"] == Json("NFC");
  if (model["type"] != Json("BPE") || !(normalizer.is_null() || is_composed) || !keeps_bytes(definition["pre_tokenizer"])) return 0;
  std::set<std::string_view> letters;  // that are no token yet: a byte without one would be dropped, so that there is no bound
  for (int byte = 0; byte < 256; ++byte) letters.insert(letter_of_byte(static_cast<char>(byte)));
  size_t longest = 0;
  for (const auto& each : model["vocab"].object()) {
    if (each.first.size() <= 2) letters.erase(each.first);  // a letter of a byte has one or two
    longest = std::max(longest, each.first.size());
  }
  if (!letters.empty()) return 0;
  for (const Json& each : definition["added_tokens"].list()) {
    if (each["lstrip"].boolean() || each["rstrip"].boolean()) return 0;  // those swallow blanks around them
    longest = std::max(longest, each["content"].text().size());
  }
  return (is_composed ? kMostBytesComposed : 1) * static_cast<int64_t>(longest);
}

}  // namespace spc
