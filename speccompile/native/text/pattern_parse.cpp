// Oniguruma's syntax, as far as tokenizers use it. What is left out is refused by name: back references, calls,
// conditions, absent operators, text segments, extended patterns and bytes.
#include <algorithm>

#include "pattern_tree.h"

namespace spc {
namespace {

using unicode::Set;

constexpr uint32_t kMostRepeats = 100000;  // Oniguruma's own

struct Options {
  bool caseless = false, dot_takes_newlines = false;
};

Node of_set(Set set) {
  Node node;
  node.kind = Node::Kind::kSet;
  node.set = std::move(set);
  return node;
}

Node of_place(Place place) {
  Node node;
  node.kind = Node::Kind::kPlace;
  node.place = place;
  return node;
}

Node of_parts(Node::Kind kind, std::vector<Node> parts) {
  Node node;
  node.kind = kind;
  node.parts = std::move(parts);
  return node;
}

class Parser {
 public:
  explicit Parser(std::string_view source) : source_(source) {}

  Node whole() {
    Node node = choice(Options(), 0);
    if (at_ < source_.size()) broken(") without (");
    return node;
  }

 private:
  bool ended() const { return at_ >= source_.size(); }
  char here() const { return ended() ? '\0' : source_[at_]; }
  bool next(std::string_view text) {
    const bool found = source_.substr(at_, text.size()) == text;
    if (found) at_ += text.size();
    return found;
  }

  // Up to the ) or the end. An option in the middle, (?i), holds up to there and takes all that follows with it.
  Node choice(Options options, int depth) {
    if (depth > kDepth) unknown("groups nested deeper than " + std::to_string(kDepth));
    std::vector<Node> ways;
    do ways.push_back(sequence(options, depth));
    while (next("|"));
    return ways.size() == 1 ? std::move(ways[0]) : of_parts(Node::Kind::kChoice, std::move(ways));
  }

  Node sequence(Options options, int depth) {
    std::vector<Node> parts;
    while (!ended() && here() != '|' && here() != ')') {
      if (Options changed = options; isolated_option(changed)) {
        parts.push_back(choice(changed, depth + 1));
        break;
      }
      parts.push_back(repeated(atom(options, depth), depth));
    }
    check_cases(parts);
    return parts.size() == 1 ? std::move(parts[0]) : of_parts(Node::Kind::kSequence, std::move(parts));
  }

  static void check_cases(const std::vector<Node>& parts) {
    std::vector<uint32_t> row;
    for (size_t i = 0; i <= parts.size(); ++i) {
      if (i < parts.size() && parts[i].kind == Node::Kind::kCharacter && parts[i].caseless) {
        row.push_back(parts[i].code);
      } else {
        if (folds_to_several(row)) unknown("(?i) with characters that stand for another one");
        row.clear();
      }
    }
  }

  // (?i), (?m), (?-i), ..: whether one is here.
  bool isolated_option(Options& options) {
    const size_t start = at_;
    if (next("(?") && flags(options) && next(")")) return true;
    at_ = start;
    return false;
  }

  bool flags(Options& options) {
    const size_t start = at_;
    for (bool on = true;; ++at_) {
      switch (here()) {
        case '-': on = false; break;
        case 'i': options.caseless = on; break;
        case 'm': options.dot_takes_newlines = on; break;
        default: return at_ > start;
      }
    }
  }

  Node repeated(Node node, int depth) {
    for (int times = 0;; ++times) {
      const size_t start = at_;
      uint32_t least = 0, most = kUnbounded;
      bool interval = false;
      if (next("+")) {
        least = 1;
      } else if (next("?")) {
        most = 1;
      } else if (!next("*")) {
        interval = here() == '{' && bounds(least, most);
        if (!interval) return at_ = start, node;
      }
      if (is_place(node)) broken("a repeat of a place");
      if (depth + times > kDepth) unknown("repeats nested deeper than " + std::to_string(kDepth));
      Node repeat = of_parts(Node::Kind::kRepeat, {});
      repeat.parts.push_back(std::move(node));
      repeat.least = least;
      repeat.most = most;
      // behind {2} a ? is one more repeat, behind any interval a +
      if (!(interval && least == most) && next("?")) repeat.taking = Taking::kLazy;
      else if (!interval && next("+")) repeat.taking = Taking::kPossessive;
      node = std::move(repeat);
    }
  }

  // A group of its own, unlike (?:..), may hold a place and be repeated.
  static bool is_place(const Node& node) {
    if (node.kind == Node::Kind::kChoice) return std::any_of(node.parts.begin(), node.parts.end(), is_place);
    return node.kind == Node::Kind::kPlace || node.kind == Node::Kind::kLook;
  }

  static Node own_group(Node node) {
    std::vector<Node> parts;
    parts.push_back(std::move(node));
    return of_parts(Node::Kind::kSequence, std::move(parts));
  }

  // {2}, {2,}, {,2}, {2,3}; false, for braces that stand for themselves.
  bool bounds(uint32_t& least, uint32_t& most) {
    ++at_;
    const bool from = digits(least);
    if (!next(",")) {
      most = least;
      return from && next("}");
    }
    const bool to = digits(most);
    if (!(from || to) || !next("}")) return false;
    if (!from) least = 0;
    if (!to) most = kUnbounded;
    if (most < least) unknown("a repeat whose bounds are exchanged");
    return true;
  }

  bool digits(uint32_t& value) {
    const size_t start = at_;
    uint32_t found = 0;
    for (; here() >= '0' && here() <= '9'; ++at_) {
      found = found * 10 + static_cast<uint32_t>(here() - '0');
      if (found > kMostRepeats) broken("too many repeats");
    }
    if (at_ == start) return false;
    value = found;
    return true;
  }

  Node atom(Options options, int depth) {
    const char letter = here();
    switch (letter) {
      case '(': ++at_; return group(options, depth);
      case '[': ++at_; return of_set(parse_brackets(source_, at_, options.caseless));
      case '.': ++at_; return of_set(options.dot_takes_newlines ? ~Set() : ~Set({{'\n', '\n'}}));
      case '^': ++at_; return of_place(Place::kLineBegin);
      case '$': ++at_; return of_place(Place::kLineEnd);
      case '*': case '+': case '?': broken("a repeat of nothing");
      case '\\': ++at_; return escape(options);
      default: break;
    }
    const auto [code, size] = unicode::decode(source_, at_);
    at_ += size;
    return character(code, options);
  }

  static Node character(uint32_t code, Options options) {
    Node node;
    node.kind = Node::Kind::kCharacter;
    node.code = code;
    node.caseless = options.caseless;
    return node;
  }

  Node group(Options options, int depth) {
    Node node;
    if (next("?:")) {
      node = choice(options, depth + 1);
    } else if (next("?>")) {
      node = of_parts(Node::Kind::kAtomic, {});
      node.parts.push_back(choice(options, depth + 1));
    } else if (next("?=")) {
      node = look(options, depth, false, false);
    } else if (next("?!")) {
      node = look(options, depth, false, true);
    } else if (next("?<=")) {
      node = look(options, depth, true, false);
    } else if (next("?<!")) {
      node = look(options, depth, true, true);
    } else if (next("?<")) {
      named_group();
      node = own_group(choice(options, depth + 1));
    } else if (here() == '?') {
      ++at_;
      if (!flags(options) || !next(":")) unknown("(?" + std::string(source_.substr(at_, 1)));
      node = own_group(choice(options, depth + 1));
    } else {
      if (here() == '*') unknown("(*");
      node = own_group(choice(options, depth + 1));
    }
    if (!next(")")) broken("( without )");
    return node;
  }

  void named_group() {
    const size_t end = source_.find('>', at_);
    if (end == std::string_view::npos || end == at_) broken("a group without a name");
    for (; at_ < end; ++at_)
      if (here() != '_' && ((here() | 0x20) < 'a' || (here() | 0x20) > 'z')) unknown("a name of a group");
    ++at_;
  }

  Node look(Options options, int depth, bool behind, bool negative) {
    Node node = of_parts(Node::Kind::kLook, {});
    node.behind = behind;
    node.negative = negative;
    node.parts.push_back(choice(options, depth + 1));
    return node;
  }

  Node escape(Options options) {
    if (ended()) broken("a backslash at the end");
    const char letter = here();
    if (Set set = escaped_set(letter, false); !set.empty()) {
      ++at_;
      return of_set(std::move(set));
    }
    switch (letter) {
      case 'p': case 'P': ++at_; return of_set(parse_property(source_, at_, letter == 'P'));
      case 'A': ++at_; return of_place(Place::kTextBegin);
      case 'z': ++at_; return of_place(Place::kTextEnd);
      case 'Z': ++at_; return of_place(Place::kTextEndOrNewline);
      case 'b': ++at_; return of_place(Place::kWordBoundary);
      case 'B': ++at_; return of_place(Place::kNoWordBoundary);
      case 'N': ++at_; return of_set(~Set({{'\n', '\n'}}));
      case 'O': ++at_; return of_set(~Set());
      default: return character(parse_escape(source_, at_), options);
    }
  }

  std::string_view source_;
  size_t at_ = 0;
};

}  // namespace

Node parse_pattern(std::string_view source) { return Parser(source).whole(); }

}  // namespace spc
