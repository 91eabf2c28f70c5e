#include "regex.h"

#include <algorithm>
#include <vector>

#include "../json.h"
#include "../text/pattern_tree.h"
#include "regex_tree.h"

namespace spc::constraints {
namespace {

// An expression, and whether it begins and ends where the text does.
struct Part {
  Expr expression;
  bool begins = false, ends = false;
};

class Evaluation {
 public:
  Evaluation(Expressions& expressions, bool is_search) : expressions_(expressions), is_search_(is_search) {}

  Expr whole(const RegexNode& root) {
    Part part = evaluate(root, true, true);
    return is_search_ ? surrounded(part, !part.begins, !part.ends) : part.expression;
  }

 private:
  using Kind = RegexNode::Kind;

  Part evaluate(const RegexNode& node, bool at_begin, bool at_end) {
    switch (node.kind) {
      case Kind::kSet: return {expressions_.character(node.set)};
      case Kind::kBegin:
        if (!at_begin) throw Refused{"^ is only known at the beginning"};
        return {kEmpty, true, false};
      case Kind::kEnd:
        if (!at_end) throw Refused{"$ is only known at the end"};
        return {kEmpty, false, true};
      case Kind::kRepeat: return {expressions_.repeated(evaluate(node.parts[0], false, false).expression, node.least, node.most)};
      case Kind::kSequence: return sequence(node, at_begin, at_end);
      case Kind::kChoice: return choice(node, at_begin, at_end);
      default: return {kEmpty};
    }
  }

  Part sequence(const RegexNode& node, bool at_begin, bool at_end) {
    std::vector<Part> parts;
    for (size_t at = 0; at < node.parts.size(); ++at)
      parts.push_back(evaluate(node.parts[at], at_begin && at == 0, at_end && at + 1 == node.parts.size()));
    Part found{kEmpty};
    for (size_t at = parts.size(); at-- > 0;) found.expression = expressions_.sequence(parts[at].expression, found.expression);
    if (!parts.empty()) {
      found.begins = parts.front().begins;
      found.ends = parts.back().ends;
    }
    return found;
  }

  // If some options are anchored, the others match the text around them too.
  Part choice(const RegexNode& node, bool at_begin, bool at_end) {
    Part found{kNothing};
    std::vector<Part> parts;
    for (const RegexNode& each : node.parts) {
      parts.push_back(evaluate(each, at_begin, at_end));
      found.begins = found.begins || parts.back().begins;
      found.ends = found.ends || parts.back().ends;
    }
    std::vector<Expr> options;
    for (const Part& part : parts)
      options.push_back(is_search_ ? surrounded(part, found.begins && !part.begins, found.ends && !part.ends) : part.expression);
    found.expression = expressions_.either(std::move(options));
    return found;
  }

  Expr surrounded(const Part& part, bool before, bool behind) {
    Expr found = part.expression;
    if (behind) found = expressions_.sequence(found, expressions_.any_text());
    if (before) found = expressions_.sequence(expressions_.any_text(), found);
    return found;
  }

  Expressions& expressions_;
  const bool is_search_;
};

Expr parse(Expressions& expressions, std::string_view source, bool is_search) {
  try {
    return Evaluation(expressions, is_search).whole(read_regex_tree(source, is_search));
  } catch (const Refused& error) {
    throw Refused{error.why + " in regex /" + first_characters(source, 100) + "/"};
  }
}

}  // namespace

Expr parse_regex(Expressions& expressions, std::string_view source) { return parse(expressions, source, false); }

Expr parse_search(Expressions& expressions, std::string_view source) { return parse(expressions, source, true); }

}  // namespace spc::constraints
