// Sets of characters in patterns: brackets, and what (?i) adds to them.
#include <algorithm>
#include <map>
#include <optional>

#include "pattern_tree.h"
#include "unicode_data.h"

namespace spc {
namespace {

using unicode::Set;

// Unicode's case folding (CaseFolding.txt).
struct CaseFolds {
  std::map<uint32_t, uint32_t> folds;                   // of characters that fold to another one
  std::map<uint32_t, std::vector<uint32_t>> cases;      // by fold: all characters that fold to it, and itself
  std::map<uint32_t, std::vector<uint32_t>> sequences;  // of characters that fold to several: those

  CaseFolds() {
    for (const auto& [code, fold] : unicode::moves(unicode::kFolds)) {
      folds[code] = fold;
      cases[fold].push_back(code);
    }
    for (auto& [fold, codes] : cases) codes.push_back(fold);
    for (unicode::Packed packed(unicode::kSeveral); packed.more();) {
      const uint32_t size = packed.number(), code = packed.number();
      for (uint32_t i = 1; i < size; ++i) sequences[code].push_back(packed.number());
    }
  }
  uint32_t fold_of(uint32_t code) const {
    const auto found = folds.find(code);
    return found == folds.end() ? code : found->second;
  }
};

const CaseFolds& case_folds() {
  static const CaseFolds kCaseFolds;
  return kCaseFolds;
}

// Reader of [ .. ]: a union of characters, ranges and sets; each && intersects what follows with what came before.
class Brackets {
 public:
  Brackets(std::string_view source, size_t& at) : source_(source), at_(at) {}

  // Return the set behind the [. Negation is left to the caller, because (?i) comes first.
  Set parse(int depth, bool& negative) {
    if (depth > kDepth) unknown("brackets nested deeper than " + std::to_string(kDepth));
    negative = next("^");
    std::vector<Set::Range> ranges;
    std::optional<Set> before;
    Set sets;
    for (bool first = true;; first = false) {
      if (at_ >= source_.size()) broken("[ without ]");
      if (source_[at_] == ']' && !first) break;
      if (source_[at_] == ']' && source_.find(']', at_ + 1) == std::string_view::npos) broken("empty brackets");
      if (next("&&")) {
        Set here = Set(std::move(ranges)) | sets;
        before = before ? *before & here : here;
        ranges = {};
        sets = Set();
      } else if (std::optional<Set> set = whole_set(depth)) {
        sets = sets | *set;
      } else {
        ranges.push_back(range());
      }
    }
    ++at_;
    Set here = Set(std::move(ranges)) | sets;
    return before ? *before & here : here;
  }

 private:
  bool next(std::string_view text) {
    const bool here = source_.substr(at_, text.size()) == text;
    if (here) at_ += text.size();
    return here;
  }

  // Return a whole set: [..], [:..:], \p{..} or \s; none for a character. Throws PatternError if it begins a range.
  std::optional<Set> whole_set(int depth) {
    std::optional<Set> set;
    const size_t start = at_;
    if (next("[:")) set = posix();
    if (!set) at_ = start;
    if (!set && next("[")) {
      bool negative = false;
      set = parse(depth + 1, negative);
      return negative ? ~*set : *set;
    }
    if (!set && at_ + 1 < source_.size() && source_[at_] == '\\') {
      const char letter = source_[at_ + 1];
      if (letter == 'p' || letter == 'P') {
        at_ += 2;
        set = parse_property(source_, at_, letter == 'P');
      } else if (Set found = escaped_set(letter, true); !found.empty()) {
        at_ += 2;
        set = found;
      }
    }
    if (set && at_ + 1 < source_.size() && source_[at_] == '-' && source_[at_ + 1] != ']') broken("a range from a set");
    return set;
  }

  std::optional<Set> posix() {
    const bool negative = next("^");
    const size_t end = source_.find(":]", at_);
    if (end == std::string_view::npos || end - at_ > 20) return std::nullopt;
    Set set = posix_set(std::string(source_.substr(at_, end - at_)));
    if (set.empty()) broken("no POSIX bracket '" + std::string(source_.substr(at_, end - at_)) + "'");
    at_ = end + 2;
    return negative ? ~set : set;
  }

  Set::Range range() {
    const uint32_t first = character();
    const bool to = at_ + 1 < source_.size() && source_[at_] == '-' && source_[at_ + 1] != ']';
    if (!to || source_.substr(at_ + 1, 2) == "&&") return {first, first};
    ++at_;
    const bool escape = source_[at_] == '\\' && at_ + 1 < source_.size();
    if (source_[at_] == '[') unknown("a range to a set");
    if (escape && (source_[at_ + 1] == 'p' || source_[at_ + 1] == 'P' || !escaped_set(source_[at_ + 1], true).empty()))
      broken("a range to a set");
    const uint32_t last = character();
    if (last < first) broken("an empty range");
    if (at_ + 1 < source_.size() && source_[at_] == '-' && source_[at_ + 1] != ']') {
      if (source_[at_ + 1] == '-' || source_[at_ + 1] == '[') unknown("- behind a range");
    }
    return {first, last};
  }

  uint32_t character() {
    if (next("\\")) return source_.substr(at_, 1) == "b" ? (++at_, '\b') : parse_escape(source_, at_);
    const auto [code, size] = unicode::decode(source_, at_);
    at_ += size;
    return code;
  }

  std::string_view source_;
  size_t& at_;
};

}  // namespace

Set parse_brackets(std::string_view source, size_t& at, bool caseless) {
  bool negative = false;
  Set set = Brackets(source, at).parse(0, negative);
  if (caseless) {
    if (!negative && folds_to_several(set)) unknown("(?i) with a character that stands for several");
    set = with_cases(set);
  }
  return negative ? ~set : set;
}

Set with_cases(const Set& set) {
  std::vector<Set::Range> ranges = set.ranges();
  if (ranges.size() == 1 && ranges[0].first == ranges[0].second) {  // as letters in a pattern are
    const auto found = case_folds().cases.find(case_folds().fold_of(ranges[0].first));
    if (found == case_folds().cases.end()) return set;
    for (const uint32_t code : found->second) ranges.emplace_back(code, code);
    return Set(std::move(ranges));
  }
  for (const auto& [fold, codes] : case_folds().cases) {
    if (std::none_of(codes.begin(), codes.end(), [&](uint32_t code) { return set.has(code); })) continue;
    for (const uint32_t code : codes) ranges.emplace_back(code, code);
  }
  return Set(std::move(ranges));
}

bool folds_to_several(const Set& set) {
  const auto& sequences = case_folds().sequences;
  return std::any_of(sequences.begin(), sequences.end(), [&](const auto& each) { return set.has(each.first); });
}

bool folds_to_several(const std::vector<uint32_t>& text) {
  const auto is_same = [](uint32_t one, uint32_t other) { return case_folds().fold_of(one) == case_folds().fold_of(other); };
  const auto occurs = [&](const auto& each) {
    return std::search(text.begin(), text.end(), each.second.begin(), each.second.end(), is_same) != text.end();
  };
  const auto& sequences = case_folds().sequences;
  return std::any_of(text.begin(), text.end(), [&](uint32_t code) { return sequences.count(code) > 0; }) ||
         std::any_of(sequences.begin(), sequences.end(), occurs);
}

}  // namespace spc
