#include "lark_syntax.h"

#include <algorithm>
#include <array>
#include <string>

#include "lark_words.h"
#include "expressions.h"
#include "regex.h"

namespace spc::constraints {
namespace {

using Kind = LarkTerm::Kind;
using Word = LarkWord;

constexpr int kDeepest = 30;

class Reader {
 public:
  explicit Reader(std::vector<Word> words) : words_(std::move(words)) {}

  LarkGrammar whole() {
    while (at_ < words_.size()) {
      try {
        if (!next(Word::Kind::kNewline)) item();
      } catch (const Refused& error) {
        const size_t line = words_[std::min(at_, words_.size() - 1)].line;
        throw Refused{"line " + std::to_string(line) + ": " + error.why};
      }
    }
    return std::move(found_);
  }

 private:
  bool is(Word::Kind kind) const { return at_ < words_.size() && words_[at_].kind == kind; }
  bool is_sign(std::string_view text) const { return is(Word::Kind::kSign) && words_[at_].text == text; }
  // Pass the next word if it is of this kind, or is this sign. Return whether it is.
  bool next(Word::Kind kind) { return is(kind) && ++at_; }
  bool next_sign(std::string_view text) { return is_sign(text) && ++at_; }
  [[noreturn]] void refuse(const std::string& expected) const {
    throw Refused{"expected " + expected + (at_ < words_.size() ? ", received " + python_repr(words_[at_].text) : "")};
  }
  // Pass the next word and return its text. Throws Refused unless it is of this kind.
  std::string take(Word::Kind kind, const char* expected) {
    if (!is(kind)) refuse(expected);
    return words_[at_++].text;
  }
  void take_sign(const char* text) {
    if (!next_sign(text)) refuse(text);
  }

  void item() {
    if (next_sign("%ignore"))
      found_.ignored.push_back(options(0));
    else if (next_sign("%import"))
      import();
    else
      definition();
    if (at_ < words_.size() && !next(Word::Kind::kNewline)) refuse("the end of the line");
  }

  void definition() {
    const bool is_token = is(Word::Kind::kToken);
    std::string name = is_token ? words_[at_++].text : take(Word::Kind::kRule, "a rule, a TOKEN, %ignore or %import");
    name.erase(0, name.find_first_not_of("!?"));
    for (const char* const sign : {"[", "{", "::", "."})
      if (is_sign(sign)) throw Refused{std::string(sign) + " behind the name of a rule is not known here: no attributes, templates, parameters and priorities"};
    take_sign(":");
    auto& known = is_token ? found_.tokens : found_.rules;
    if (!known.emplace(name, options(0)).second) throw Refused{"a second definition of " + name};
  }

  void import() {
    std::string path;
    do path += (path.empty() ? "" : ".") + (is(Word::Kind::kToken) ? words_[at_++].text : take(Word::Kind::kRule, "a name"));
    while (next_sign("."));
    std::vector<std::pair<std::string, std::string>> names;  // path, own name
    if (next_sign("(")) {
      do {
        const std::string name = take(Word::Kind::kToken, "a TOKEN");
        names.emplace_back(path + "." + name, name);
      } while (next_sign(","));
      take_sign(")");
    } else {
      names.emplace_back(path, next_sign("->") ? take(Word::Kind::kToken, "a TOKEN") : path.substr(path.rfind('.') + 1));
    }
    for (const auto& [from, name] : names) {
      LarkTerm term{Kind::kRegex};
      term.text = common_regex(from);
      if (!found_.tokens.emplace(name, LarkOptions{{{term}}}).second) throw Refused{"a second definition of " + name};
    }
  }

  LarkOptions options(int depth) {
    if (depth > kDeepest) throw Refused{"it is nested too deeply"};
    LarkOptions found;
    do {
      LarkOption& option = found.emplace_back();
      do option.push_back(terms(depth));
      while (next_sign("&"));
      if (next_sign("->")) take(Word::Kind::kRule, "a name");  // of the tree, which is not built
    } while (next_option());
    return found;
  }

  // Pass a |, which may stand at the beginning of the next line. Return whether there is one.
  bool next_option() {
    const size_t before = at_;
    next(Word::Kind::kNewline);
    if (next_sign("|")) return true;
    at_ = before;
    return false;
  }

  LarkTerms terms(int depth) {
    LarkTerms found;
    const auto ends = [&] {
      if (at_ >= words_.size() || is(Word::Kind::kNewline)) return true;
      return std::any_of(kEnds.begin(), kEnds.end(), [&](const char* sign) { return is_sign(sign); });
    };
    while (!ends()) found.push_back(term(depth));
    return found;
  }

  LarkTerm term(int depth) {
    LarkTerm found;
    if (next_sign("~")) {
      found.kind = Kind::kNegated;
      found.options = {{{atom(depth + 1)}}};
    } else {
      found = atom(depth);
    }
    repeats(found);
    return found;
  }

  LarkTerm atom(int depth) {
    LarkTerm found;
    if (next_sign("(") || next_sign("[")) {
      const bool is_optional = words_[at_ - 1].text == "[";
      found.kind = is_optional ? Kind::kOptional : Kind::kGroup;
      found.options = options(depth + 1);
      take_sign(is_optional ? "]" : ")");
      return found;
    }
    if (at_ >= words_.size()) throw Refused{"it ends too early"};
    const Word& word = words_[at_];
    found.text = word.text;
    found.flags = word.flags;
    found.schema = word.json;
    switch (word.kind) {
      case Word::Kind::kRule:
      case Word::Kind::kToken: found.kind = Kind::kName; break;
      case Word::Kind::kText: found.kind = Kind::kText; break;
      case Word::Kind::kRegex: found.kind = Kind::kRegex; break;
      case Word::Kind::kSpecial: found.kind = Kind::kSpecial; break;
      case Word::Kind::kJson: found.kind = Kind::kJson; break;
      default: throw Refused{python_repr(word.text) + " is not known here"};
    }
    ++at_;
    if (found.kind == Kind::kText && next_sign("..")) {
      found.kind = Kind::kRange;
      found.end = take(Word::Kind::kText, "a text");
    }
    return found;
  }

  void repeats(LarkTerm& term) {
    if (next_sign("*"))
      term.repeats = {0, kUnlimited};
    else if (next_sign("+"))
      term.repeats = {1, kUnlimited};
    else if (next_sign("?"))
      term.repeats = {0, 1};
    else if (is_sign("~") && at_ + 1 < words_.size() && words_[at_ + 1].kind == Word::Kind::kNumber) {
      ++at_;
      const size_t least = number();
      term.repeats = {least, next_sign("..") ? number() : least};
    } else if (next_sign("{")) {
      const size_t least = is_sign(",") ? 0 : number();
      size_t most = least;
      if (next_sign(",")) most = is_sign("}") ? kUnlimited : number();
      take_sign("}");
      term.repeats = {least, most};
    }
    if (!term.repeats) return;
    const auto [least, most] = *term.repeats;
    if (most < least || !most) throw Refused{"a repetition of no times, or of fewer at most than at least"};
  }

  size_t number() {
    const std::string text = take(Word::Kind::kNumber, "a number");
    if (text.size() > 6 || text.find_first_not_of("0123456789") != std::string::npos)
      throw Refused{"a repetition of " + text + ", expected a number of up to six digits"};
    return std::stoul(text);
  }

  static constexpr std::array<const char*, 6> kEnds = {"|", "->", "}", ")", "]", "&"};

  std::vector<Word> words_;
  size_t at_ = 0;
  LarkGrammar found_;
};

}  // namespace

LarkGrammar read_lark(const std::string& source) { return Reader(read_lark_words(source)).whole(); }

}  // namespace spc::constraints
