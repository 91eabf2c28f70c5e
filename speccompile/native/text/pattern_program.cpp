#include <algorithm>
#include <optional>

#include "pattern_tree.h"

namespace spc {
namespace {

using unicode::Set;

constexpr size_t kMostSteps = 20000;

Set set_of(const Node& node) {
  if (node.kind == Node::Kind::kSet) return node.set;
  const Set one({{node.code, node.code}});
  return node.caseless ? with_cases(one) : one;
}

bool one_character(const Node& node) { return node.kind == Node::Kind::kCharacter || node.kind == Node::Kind::kSet; }

// Return whether the node may match the empty text.
bool may_be_empty(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kCharacter: case Node::Kind::kSet: return false;
    case Node::Kind::kSequence: return std::all_of(node.parts.begin(), node.parts.end(), may_be_empty);
    case Node::Kind::kChoice: return std::any_of(node.parts.begin(), node.parts.end(), may_be_empty);
    case Node::Kind::kRepeat: return node.least == 0 || may_be_empty(node.parts[0]);
    case Node::Kind::kAtomic: return may_be_empty(node.parts[0]);
    default: return true;
  }
}

// Return the number of characters that the node matches, if it is fixed.
std::optional<uint32_t> width(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kCharacter: case Node::Kind::kSet: return 1;
    case Node::Kind::kAtomic: return width(node.parts[0]);
    case Node::Kind::kRepeat: {
      const std::optional<uint32_t> one = width(node.parts[0]);
      if (!one || node.least != node.most || uint64_t{*one} * node.least > kMostSteps) return std::nullopt;
      return *one * node.least;
    }
    case Node::Kind::kChoice: case Node::Kind::kSequence: {
      uint32_t sum = 0;
      for (size_t i = 0; i < node.parts.size(); ++i) {
        const std::optional<uint32_t> part = width(node.parts[i]);
        if (!part || (node.kind == Node::Kind::kChoice && i > 0 && *part != sum)) return std::nullopt;
        sum = node.kind == Node::Kind::kChoice ? *part : sum + *part;
      }
      return sum;
    }
    default: return 0;
  }
}

First bytes_of(const Set& set) {
  First found;
  for (const auto& [first, last] : set.ranges()) {
    std::string low, high;
    unicode::append(low, first);
    unicode::append(high, last);
    const auto end = static_cast<unsigned char>(high[0]);
    for (unsigned byte = static_cast<unsigned char>(low[0]); byte <= end; ++byte) found.set(byte);
  }
  return found;
}

// The bytes that can begin the node with `then` behind it; rather too many than too few.
First first_of(const Node& node, const First& then) {
  switch (node.kind) {
    case Node::Kind::kCharacter: case Node::Kind::kSet: return bytes_of(set_of(node));
    case Node::Kind::kSequence: {
      First found = then;
      for (auto part = node.parts.rbegin(); part != node.parts.rend(); ++part) found = first_of(*part, found);
      return found;
    }
    case Node::Kind::kChoice: {
      First found;
      for (const Node& part : node.parts) found |= first_of(part, then);
      return found;
    }
    case Node::Kind::kRepeat: {
      const First found = node.most == 0 ? then : first_of(node.parts[0], then);
      return node.least == 0 ? found | then : found;
    }
    case Node::Kind::kAtomic: return first_of(node.parts[0], then);
    default: return then;
  }
}

class Writer {
 public:
  SharedEngine program;

  void node(const Node& node, const First& then) {
    switch (node.kind) {
      case Node::Kind::kEmpty: return;
      case Node::Kind::kCharacter: case Node::Kind::kSet: return one(node);
      case Node::Kind::kSequence: return sequence(node, then);
      case Node::Kind::kChoice: return choice(node, then);
      case Node::Kind::kRepeat: return repeat(node, then);
      case Node::Kind::kPlace: add(Step::Kind::kPlace, static_cast<uint32_t>(node.place)); return;
      case Node::Kind::kLook: return look(node);
      case Node::Kind::kAtomic: return atomic([&] { this->node(node.parts[0], anything()); });
    }
  }

  uint32_t add(Step::Kind kind, uint32_t a = 0, uint32_t b = 0) {
    if (program.steps.size() >= kMostSteps) unknown("more than " + std::to_string(kMostSteps) + " steps");
    Step step;
    step.kind = kind;
    step.a = a;
    step.b = b;
    program.steps.push_back(step);
    return here() - 1;
  }

 private:
  static First anything() { return ~First(); }
  uint32_t here() const { return static_cast<uint32_t>(program.steps.size()); }
  Step& step(uint32_t place) { return program.steps[place]; }

  uint32_t split(const First& preferred, const First& other) {
    const uint32_t place = add(Step::Kind::kSplit);
    step(place).c = static_cast<uint32_t>(program.firsts.size());
    program.firsts.push_back(preferred);
    program.firsts.push_back(other);
    return place;
  }

  void one(const Node& node) {
    Set set = set_of(node);
    if (node.kind == Node::Kind::kCharacter && set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].second)
      return text(node.code);
    add(Step::Kind::kSet, static_cast<uint32_t>(program.sets.size()));
    program.sets.push_back(std::move(set));
  }

  void text(uint32_t code) {
    add(Step::Kind::kText, static_cast<uint32_t>(program.texts.size()));
    unicode::append(program.texts.emplace_back(), code);
  }

  void sequence(const Node& node, const First& then) {
    std::vector<First> behind(node.parts.size(), then);
    for (size_t i = node.parts.size(); i-- > 1;) behind[i - 1] = first_of(node.parts[i], behind[i]);
    for (size_t i = 0; i < node.parts.size(); ++i) this->node(node.parts[i], behind[i]);
  }

  void choice(const Node& node, const First& then) {
    const size_t ways = node.parts.size();
    std::vector<First> own(ways), rest(ways + 1);
    for (size_t i = ways; i-- > 0;) {
      own[i] = first_of(node.parts[i], then);
      rest[i] = rest[i + 1] | own[i];
    }
    std::vector<uint32_t> jumps;
    for (size_t i = 0; i < ways; ++i) {
      const uint32_t place = i + 1 < ways ? split(own[i], rest[i + 1]) : 0;
      const uint32_t begin = here();
      this->node(node.parts[i], then);
      if (i + 1 == ways) break;
      jumps.push_back(add(Step::Kind::kJump));
      step(place).a = begin;
      step(place).b = here();
    }
    for (const uint32_t jump : jumps) step(jump).a = here();
  }

  void repeat(const Node& node, const First& then) {
    const Node& body = node.parts[0];
    if (one_character(body)) {
      const uint32_t place = add(Step::Kind::kRun, static_cast<uint32_t>(program.sets.size()));
      step(place).taking = node.taking;
      step(place).least = node.least;
      step(place).most = node.most;
      program.sets.push_back(set_of(body));
      return;
    }
    if (node.taking == Taking::kPossessive) return atomic([&] { rounds(node, anything()); });
    rounds(node, then);
  }

  void rounds(const Node& node, const First& then) {
    const Node& body = node.parts[0];
    const First again = node.most == 0 ? then : first_of(body, then) | then;
    // Oniguruma counts rounds that take nothing in ways of its own
    const bool counted = node.least > 1 || (node.most != kUnbounded && node.most > 1);
    if (counted && may_be_empty(body)) unknown("a counted repeat of what may be empty");
    for (uint32_t i = 0; i < node.least; ++i) this->node(body, again);
    if (node.most == kUnbounded) return loop(node, then, again);
    std::vector<uint32_t> splits;
    for (uint32_t i = node.least; i < node.most; ++i) {
      splits.push_back(way_in(node, then, again));
      this->node(body, again);
    }
    for (const uint32_t place : splits) way_out(node, place);
  }

  void loop(const Node& node, const First& then, const First& again) {
    const uint32_t place = way_in(node, then, again);
    const bool empty = may_be_empty(node.parts[0]);
    const uint32_t slot = empty ? program.slots++ : 0;
    if (empty) add(Step::Kind::kEnterLoop, slot);
    this->node(node.parts[0], again);
    const uint32_t leave = empty ? add(Step::Kind::kLeaveIfSame, slot) : 0;
    add(Step::Kind::kJump, place);
    if (empty) step(leave).b = here();
    way_out(node, place);
  }

  // The split before a round: into it or, later set by way_out, behind all.
  uint32_t way_in(const Node& node, const First& then, const First& again) {
    const bool lazy = node.taking == Taking::kLazy;
    const uint32_t place = lazy ? split(then, again) : split(again, then);
    (lazy ? step(place).b : step(place).a) = here();
    return place;
  }

  void way_out(const Node& node, uint32_t place) {
    (node.taking == Taking::kLazy ? step(place).a : step(place).b) = here();
  }

  template <class Body>
  void atomic(Body body) {
    const uint32_t place = add(Step::Kind::kAtomic);
    body();
    add(Step::Kind::kDone);
    step(place).a = here();
  }

  void look(const Node& node) {
    const uint32_t place = add(Step::Kind::kLook, 0, node.negative);
    const Node& body = node.parts[0];
    if (!node.behind) {
      this->node(body, anything());
    } else if (body.kind == Node::Kind::kChoice) {
      ways_back(body);
    } else {
      way_back(body);
    }
    add(Step::Kind::kDone);
    step(place).a = here();
  }

  void way_back(const Node& node) {
    const std::optional<uint32_t> back = width(node);
    if (!back) unknown("a look behind of no certain length");
    add(Step::Kind::kBack, *back);
    this->node(node, anything());
  }

  void ways_back(const Node& node) {
    std::vector<uint32_t> jumps;
    for (const Node& way : node.parts) {
      const uint32_t place = split(anything(), anything());
      step(place).a = here();
      way_back(way);
      jumps.push_back(add(Step::Kind::kJump));
      step(place).b = here();
    }
    add(Step::Kind::kSet, static_cast<uint32_t>(program.sets.size()));  // no way is left: a set of nothing
    program.sets.emplace_back();
    for (const uint32_t jump : jumps) step(jump).a = here();
  }
};

}  // namespace

SharedEngine make_program(const Node& root) {
  Writer writer;
  First end;
  end.set();  // whatever follows
  writer.node(root, end);
  writer.add(Step::Kind::kDone);
  writer.program.first = first_of(root, end);
  writer.program.word = escaped_set('w', false);
  return std::move(writer.program);
}

}  // namespace spc
