// The filter pprint: Python's pprint.pformat, in lines of 80 characters.
#include <algorithm>

#include "filters.h"

namespace spc::jinja {
namespace {

constexpr int64_t kWidth = 80;

int64_t count(const std::string& text) { return length_of(Value(text)); }

// Return whether a value is a tuple whose parts have no names: those of groupby are written in one line.
bool is_plain_tuple(const Value& value) { return value.is(Value::Kind::kTuple) && !value.named("grouper"); }

class Pretty {
 public:
  explicit Pretty(Budget& budget) : budget_(budget) {}

  // Write a value that begins in column `indent`, with room for `allowance` characters behind its last line. level: of nesting, from 1.
  void write(const Value& value, int64_t indent, int64_t allowance, int64_t level) {
    const std::string whole = repr(value);
    if (count(whole) <= kWidth - indent - allowance) return add(whole);
    if (value.is_dict()) return write_dict(value, indent, allowance + 1, level);
    if (value.is(Value::Kind::kList)) return write_items(value.values(), "[", "]", indent, allowance, level);
    if (is_plain_tuple(value)) return write_items(value.values(), "(", value.values().size() == 1 ? ",)" : ")", indent, allowance, level);
    if (value.is_text() && !value.is_markup() && !value.text().empty()) return write_text(value.text(), indent, allowance, level);
    add(whole);
  }

  std::string found;

 private:
  void add(const std::string& text) {
    found += text;
    budget_.text(found.size());
  }
  void begin_line(int64_t indent) { add("\n" + std::string(static_cast<size_t>(indent), ' ')); }

  // Items by their keys, and by the names of their types where these have no order.
  static std::vector<std::pair<Value, Value>> sorted(const Dict& dict) {
    std::vector<std::pair<Value, Value>> items;
    for (const auto& [name, own] : dict.items()) items.emplace_back(key_of_name(name), own);
    std::stable_sort(items.begin(), items.end(), [](const auto& one, const auto& other) {
      const bool have_order = one.first.is_text() ? other.first.is_text() : one.first.is_number() && other.first.is_number();
      return have_order ? is_less(one.first, other.first) : std::string(one.first.type()) < other.first.type();
    });
    return items;
  }

  // Return repr() with sorted keys.
  std::string repr(const Value& value) const {
    std::string text, between;
    const auto put = [&](const std::string& each) {
      text += between + each;
      between = ", ";
      budget_.text(text.size());
    };
    if (value.is_dict()) {
      for (const auto& [key, own] : sorted(value.dict())) put(repr(key) + ": " + repr(own));
      return "{" + text + "}";
    }
    if (!value.is(Value::Kind::kList) && !is_plain_tuple(value)) return value.repr();
    for (const Value& each : value.values()) put(repr(each));
    return value.is(Value::Kind::kList) ? "[" + text + "]" : "(" + text + (value.values().size() == 1 ? ",)" : ")");
  }

  void write_dict(const Value& value, int64_t indent, int64_t allowance, int64_t level) {
    add("{");
    bool is_first = true;
    const auto items = sorted(value.dict());
    for (const auto& [key, own] : items) {
      if (!is_first) {
        add(",");
        begin_line(indent + 1);
      }
      is_first = false;
      const std::string name = repr(key) + ": ";
      add(name);
      write(own, indent + 1 + count(name), &own == &items.back().second ? allowance : 1, level + 1);
    }
    add("}");
  }

  void write_items(const Values& values, const std::string& open, const std::string& close, int64_t indent, int64_t allowance, int64_t level) {
    add(open);
    for (const Value& each : values) {
      if (&each != &values.front()) {
        add(",");
        begin_line(indent + 1);
      }
      write(each, indent + 1, &each == &values.back() ? allowance + count(close) : 1, level + 1);
    }
    add(close);
  }

  // Write a text as several, each a line of it, or words of one that is too long.
  void write_text(const std::string& text, int64_t indent, int64_t allowance, int64_t level) {
    const bool is_alone = level == 1;
    indent += is_alone;
    allowance += is_alone;
    std::vector<std::string> parts;
    const Values lines = lines_of(text, true);
    for (const Value& line : lines) {
      const int64_t after = &line == &lines.back() ? allowance : 0;
      const std::string whole = line.repr();
      if (count(whole) <= kWidth - indent - after)
        parts.push_back(whole);
      else
        cut(line.text(), kWidth - indent, after, parts);
    }
    if (parts.size() == 1) return add(lines.back().repr());
    if (is_alone) add("(");
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i) begin_line(indent);
      add(parts[i]);
    }
    if (is_alone) add(")");
  }

  // Add parts of a line that is wider than `most`. after: characters behind its last word.
  void cut(const std::string& line, int64_t most, int64_t after, std::vector<std::string>& parts) const {
    const std::vector<std::string> words = words_of(line);
    std::string current;
    for (const std::string& word : words) {
      budget_.text(current.size());
      const int64_t room = &word == &words.back() ? most - after : most;
      if (count(Value(current + word).repr()) <= room) {
        current += word;
        continue;
      }
      if (!current.empty()) parts.push_back(Value(current).repr());
      current = word;
    }
    if (!current.empty()) parts.push_back(Value(current).repr());
  }

  // Return words with the blanks behind them.
  static std::vector<std::string> words_of(const std::string& line) {
    std::vector<std::string> found;
    bool was_blank = true;
    for (const std::string_view each : characters_of(line)) {
      const bool is_now = is_blank(each);
      if (found.empty() || (was_blank && !is_now)) found.emplace_back();
      found.back() += each;
      was_blank = is_now;
    }
    return found;
  }

  Budget& budget_;
};

}  // namespace

Value pretty_printed(const Value& value, const Arguments& /*given*/, Budget& budget) {
  Pretty pretty(budget);
  pretty.write(value, 0, 0, 1);
  return pretty.found;
}

}  // namespace spc::jinja
