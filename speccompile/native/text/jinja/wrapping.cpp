// The filter wordwrap: Python's textwrap, without tabs and other blanks replaced.
#include <algorithm>
#include <deque>

#include "../unicode.h"
#include "filters.h"

namespace spc::jinja {
namespace {

constexpr int64_t kWidth = 79;

using Characters = std::vector<std::string_view>;

// Part of a line that is not broken: its characters from `begin` to `end`.
struct Chunk {
  size_t begin, end;
  int64_t size() const { return static_cast<int64_t>(end - begin); }
};
using Chunks = std::deque<Chunk>;

// Characters of a line, and the places where it may be cut.
class Line {
 public:
  explicit Line(const std::string& text) : all(characters_of(text)) {}

  // Return its chunks: blanks, words and, where words are cut at hyphens, parts of them and dashes.
  Chunks chunks(bool cuts_at_hyphens) const {
    Chunks found;
    for (size_t at = 0, end = 0; at < all.size(); at = end) {
      end = is_space(at) ? last(at, [this](size_t i) { return is_space(i); }) : cuts_at_hyphens ? end_of_part(at) : last(at, [this](size_t i) { return !is_space(i); });
      found.push_back({at, end});
    }
    return found;
  }
  bool is_blank(const Chunk& chunk) const {
    return std::all_of(all.begin() + static_cast<std::ptrdiff_t>(chunk.begin), all.begin() + static_cast<std::ptrdiff_t>(chunk.end), jinja::is_blank);
  }
  bool is_hyphen(size_t at) const { return has(at, "-"); }

  const Characters all;

 private:
  template <class Fits>
  size_t last(size_t at, const Fits& fits) const {
    while (at < all.size() && fits(at)) ++at;
    return at;
  }
  bool has(size_t at, std::string_view known) const { return at < all.size() && all[at].size() == 1 && known.find(all[at]) != std::string_view::npos; }
  bool is_space(size_t at) const { return has(at, "\t\n\x0b\x0c\r "); }
  bool is_in(size_t at, const unicode::Set& set) const { return at < all.size() && set.has(unicode::decode(all[at], 0).code); }
  bool is_word(size_t at) const {
    static const unicode::Set known = unicode::category("L") | unicode::category("N");
    return has(at, "_") || is_in(at, known);
  }
  bool is_letter(size_t at) const {
    static const unicode::Set digits = unicode::category("Nd");
    return is_word(at) && !is_in(at, digits);
  }
  bool is_before_dash(size_t at) const { return is_word(at) || has(at, "!\"'&.,?"); }
  // Return the end of the dash of two hyphens or more between words that begins at a place, `at` without one.
  size_t end_of_dash(size_t at) const {
    if (!at || !is_before_dash(at - 1)) return at;
    const size_t end = last(at, [this](size_t i) { return is_hyphen(i); });
    return end >= at + 2 && is_word(end) ? end : at;
  }
  // Return whether a word may be cut behind the hyphen at a place: two letters are on both sides of it, or stand apart by another one.
  bool is_cut_behind(size_t at) const {
    if (!is_hyphen(at) || at < 2 || !is_letter(at - 1)) return false;
    const bool is_after = is_letter(at - 2) || (at >= 3 && is_hyphen(at - 2) && is_letter(at - 3));
    return is_after && is_letter(at + 1) && is_letter(at + (is_hyphen(at + 2) ? 3 : 2));
  }
  size_t end_of_part(size_t at) const {
    if (const size_t end = end_of_dash(at); end > at) return end;
    for (size_t end = at + 1;; ++end) {
      if (is_cut_behind(end)) return end + 1;
      if (end == all.size() || is_space(end) || end_of_dash(end) > end) return end;
    }
  }
};

// Rules by which lines are filled.
struct Filling {
  int64_t width;
  bool breaks_words, cuts_at_hyphens, cuts_words_at_hyphens;
};

// Put as much of a word that fits on no line onto one as it takes.
void break_word(const Line& line, const Filling& way, Chunks& left, Chunks& taken, int64_t size) {
  if (!way.breaks_words) {
    if (!taken.empty()) return;
    taken.push_back(left.front());
    left.pop_front();
    return;
  }
  Chunk& word = left.front();
  const size_t room = static_cast<size_t>(way.width - size);
  size_t end = word.begin + room;
  for (size_t at = end; way.cuts_words_at_hyphens && at-- > word.begin;) {
    if (!line.is_hyphen(at)) continue;
    for (size_t before = word.begin; before < at; ++before)
      if (!line.is_hyphen(before)) end = at + 1;
    break;
  }
  taken.push_back({word.begin, end});
  word.begin = end;
}

// Return the lines of a paragraph with `between` between them.
std::string filled(const Line& line, const Filling& way, const std::string& between, Budget& budget) {
  std::string found;
  bool is_first = true;
  for (Chunks left = line.chunks(way.cuts_at_hyphens); !left.empty();) {
    budget.step();
    if (!is_first && line.is_blank(left.front())) left.pop_front();
    Chunks taken;
    int64_t size = 0;
    for (; !left.empty() && size + left.front().size() <= way.width; left.pop_front()) {
      size += left.front().size();
      taken.push_back(left.front());
    }
    if (!left.empty() && left.front().size() > way.width) break_word(line, way, left, taken, size);
    if (!taken.empty() && line.is_blank(taken.back())) taken.pop_back();
    if (taken.empty()) continue;
    found += is_first ? "" : between;
    is_first = false;
    for (size_t at = taken.front().begin; at < taken.back().end; ++at) found += line.all[at];
    budget.text(found.size());
  }
  return found;
}

}  // namespace

Value word_wrapped(const Value& value, const Arguments& given, Budget& budget) {
  const Value* const hyphens = given.find(3, "break_on_hyphens");
  const Value* const own = given.find(2, "wrapstring");
  const Filling way = {integer_argument(given, 0, "width", kWidth), flag_argument(given, 1, "break_long_words", true),
                       !hyphens || (hyphens->is(Value::Kind::kBool) && hyphens->truth()), !hyphens || hyphens->truth()};
  const std::string between = own && !own->is_none() ? text_argument(given, 2, "wrapstring") : "\n";
  if (!defined(value).is_text()) throw TemplateError{std::string("'") + value.type() + "' object has no attribute 'splitlines'"};
  std::string found;
  bool is_first = true;
  for (const Value& each : lines_of(value.text(), false)) {
    if (way.width <= 0) throw TemplateError{"invalid width " + std::to_string(way.width) + " (must be > 0)"};
    found += (is_first ? "" : between) + filled(Line(each.text()), way, between, budget);
    is_first = false;
    budget.text(found.size());
  }
  return found;
}

}  // namespace spc::jinja
