#include "regex_tree.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "../json.h"
#include "../text/pattern_tree.h"
#include "regex.h"

namespace spc::constraints {
namespace {

using unicode::Set;
using Kind = RegexNode::Kind;

constexpr int kDeepest = 100;
constexpr uint32_t kMostRepeats = 100'000;

class Reader : RegexClasses {
 public:
  using RegexClasses::RegexClasses;

  RegexNode whole() {
    RegexNode found = choice(0, Flags());
    if (more()) throw Refused{") without ("};
    return found;
  }

 private:
  struct Flags {
    bool caseless = false, dotall = false, lines = false;
  };

  RegexNode choice(int depth, Flags flags) {
    if (depth > kDeepest) throw Refused{"it is nested too deeply"};
    RegexNode found{Kind::kChoice};
    do found.parts.push_back(sequence(depth, flags));
    while (next("|"));
    return found.parts.size() == 1 ? std::move(found.parts[0]) : found;
  }

  // flags: as they are behind the sequence, which may set them.
  RegexNode sequence(int depth, Flags& flags) {
    RegexNode found{Kind::kSequence};
    while (more() && source_[at_] != '|' && source_[at_] != ')') {
      if (next("(")) {
        Flags inner = flags;
        if (!group(inner)) {  // (?i) alone
          flags = inner;
          continue;
        }
        found.parts.push_back(choice(depth + 1, inner));
        if (!next(")")) throw Refused{"( without )"};
      } else {
        found.parts.push_back(atom(flags));
      }
      repeat(found.parts.back());
    }
    if (found.parts.size() == 1) return std::move(found.parts[0]);
    return found;
  }

  // Read what stands behind (. Return whether a group follows.
  bool group(Flags& flags) {
    if (!next("?")) return true;
    if (next("P<") || next("<")) {
      if (next("=") || next("!")) throw Refused{"it looks behind, which is not supported"};
      const size_t end = source_.find('>', at_);
      if (end == std::string_view::npos) throw Refused{"a name of a group without >"};
      if (source_.substr(at_, end - at_) == "stop") throw Refused{"a group of the name stop, which looks ahead, is not known here"};
      at_ = end + 1;
      return true;
    }
    if (next("=") || next("!")) throw Refused{"it looks ahead, which is not supported"};
    for (bool value = true;;) {
      if (next(":")) return true;
      if (next(")")) return false;
      if (next("-"))
        value = false;
      else if (next("i"))
        flags.caseless = value;
      else if (next("s"))
        flags.dotall = value;
      else if (next("m"))
        flags.lines = value;
      else if (!(value && next("u")) && !next("U"))
        throw Refused{"flags that are not known here: i, s, m, u and U are"};
    }
  }

  RegexNode atom(const Flags& flags) {
    if (next(".")) {
      RegexNode found{Kind::kSet};
      found.set = flags.dotall ? ~Set() : ~Set({{'\n', '\n'}});
      return found;
    }
    if (next("^") || next("\\A")) return anchor(Kind::kBegin, flags);
    if (next("$") || next("\\z")) return anchor(Kind::kEnd, flags);
    RegexNode found{Kind::kSet};
    if (next("[")) {
      found.set = brackets(flags.caseless, 0);
      return found;
    }
    uint32_t code = 0;
    if (next("\\")) {
      found.set = escaped_set();
      if (!found.set.empty()) return found;
      if (more() && (source_[at_] == 'b' || source_[at_] == 'B')) throw Refused{"word boundaries are not supported"};
      code = escaped_character();
    } else {
      code = character();
      if (std::string_view("*+?{").find(static_cast<char>(code)) != std::string_view::npos && code < 0x80)
        throw Refused{std::string(1, static_cast<char>(code)) + " behind nothing"};
    }
    found.set = Set({{code, code}});
    if (flags.caseless) found.set = with_cases(found.set);
    return found;
  }

  static RegexNode anchor(Kind kind, const Flags& flags) {
    if (flags.lines) throw Refused{"anchors of lines are not supported"};
    return RegexNode{kind};
  }

  void repeat(RegexNode& node) {
    for (int times = 0;; ++times) {
      uint32_t least = 0, most = kUnlimited;
      if (next("+"))
        least = 1;
      else if (next("?"))
        most = 1;
      else if (next("{"))
        counts(least, most);
      else if (!next("*"))
        return;
      next("?");  // greedy or not: the texts are the same
      RegexNode found{Kind::kRepeat};
      found.least = least;
      found.most = most;
      found.parts.push_back(std::move(node));
      node = std::move(found);
      if (times > kDeepest) throw Refused{"it repeats repetitions too often"};
    }
  }

  void counts(uint32_t& least, uint32_t& most) {
    least = number();
    most = least;
    if (next(",")) most = more() && source_[at_] == '}' ? kUnlimited : number();
    if (!next("}")) throw Refused{"a repetition without }"};
    if (most < least) throw Refused{"a repetition of fewer times at most than at least"};
  }

  uint32_t number() {
    uint32_t found = 0;
    const size_t begin = at_;
    for (; more() && source_[at_] >= '0' && source_[at_] <= '9' && found <= kMostRepeats; ++at_) found = found * 10 + static_cast<uint32_t>(source_[at_] - '0');
    if (at_ == begin) throw Refused{"a repetition without a number"};
    if (found > kMostRepeats) throw Refused{"a repetition of more than " + std::to_string(kMostRepeats)};
    return found;
  }
};

}  // namespace

RegexNode read_regex_tree(std::string_view source, bool ascii) {
  if (!is_utf8(source)) throw Refused{"it is not UTF-8 text"};
  return Reader(source, ascii).whole();
}

}  // namespace spc::constraints
