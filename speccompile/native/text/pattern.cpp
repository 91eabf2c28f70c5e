#include "pattern.h"

#include <memory>

#include "pattern_tree.h"

namespace spc {
namespace {

constexpr size_t kLongestPattern = 16384;
// Steps for a text, and for each of its bytes; ways to go back to.
constexpr size_t kSteps = 30'000'000, kStepsOfByte = 1000, kWays = 8'000'000;

// Goes back to the last place where there was another way, until one leads to the end.
class Matcher {
 public:
  Matcher(const SharedEngine& program, std::string_view text)
      : program_(program), text_(text), slots_(program.slots), steps_(kSteps + kStepsOfByte * text.size()) {}

  // The first match from `from` on.
  bool search(size_t from, Match& match) {
    for (size_t at = from; at <= text_.size(); at += at < text_.size() ? unicode::length(text_[at]) : 1) {
      if (!program_.first.test(byte(at))) continue;
      if (run(0, at, match.end)) {
        match.begin = at;
        return true;
      }
    }
    return false;
  }

 private:
  // Alternative to try when a match fails: go on at `step`, with ..
  struct Way {
    enum Kind : uint32_t { kPlace, kShorter, kLonger, kSlot } kind;
    uint32_t step;
    size_t at;
    size_t limit;  // kShorter: not before here; kLonger: how many characters more; kSlot: what the slot `step` held
  };

  size_t byte(size_t at) const { return at < text_.size() ? static_cast<unsigned char>(text_[at]) : 256; }

  void charge(size_t steps) {
    if (steps > steps_) throw PatternLimit{};
    steps_ -= steps;
  }

  void push(Way way) {
    if (ways_.size() >= kWays) throw PatternLimit{};
    ways_.push_back(way);
  }

  // Looks and atomic groups call this again; how deep is bounded by the pattern.
  bool run(uint32_t pc, size_t at, size_t& end) {
    const size_t base = ways_.size();
    for (;;) {
      charge(1);
      const Step& step = program_.steps[pc];
      if (step.kind == Step::Kind::kDone) {
        ways_.resize(base);
        end = at;
        return true;
      }
      if (!advance(step, pc, at) && !back(base, pc, at)) return false;
    }
  }

  // One step; false where it fails.
  bool advance(const Step& step, uint32_t& pc, size_t& at) {
    switch (step.kind) {
      case Step::Kind::kText:
        if (!take(program_.texts[step.a], at)) return false;
        break;
      case Step::Kind::kSet:
        if (!take(program_.sets[step.a], at)) return false;
        break;
      case Step::Kind::kRun: return run_of(step, pc, at);
      case Step::Kind::kSplit: return split(step, pc, at);
      case Step::Kind::kJump: pc = step.a; return true;
      case Step::Kind::kPlace:
        if (!is_place(static_cast<Place>(step.a), at)) return false;
        break;
      case Step::Kind::kBack:
        if (!go_back(step.a, at)) return false;
        break;
      case Step::Kind::kLook: {
        size_t end = 0;
        if (run(pc + 1, at, end) == (step.b != 0)) return false;
        pc = step.a;
        return true;
      }
      case Step::Kind::kAtomic:
        if (!run(pc + 1, at, at)) return false;
        pc = step.a;
        return true;
      case Step::Kind::kEnterLoop:
        push({Way::kSlot, step.a, 0, slots_[step.a]});
        slots_[step.a] = at;
        break;
      case Step::Kind::kLeaveIfSame:
        if (slots_[step.a] != at) break;
        pc = step.b;
        return true;
      case Step::Kind::kDone: break;
    }
    ++pc;
    return true;
  }

  bool take(const std::string& text, size_t& at) const {
    if (text_.compare(at, text.size(), text) != 0) return false;
    at += text.size();
    return true;
  }

  bool take(const unicode::Set& set, size_t& at) const {
    if (at >= text_.size()) return false;
    const auto [code, size] = unicode::decode(text_, at);
    if (!set.has(code)) return false;
    at += size;
    return true;
  }

  // Go back by some characters, as a look behind does.
  bool go_back(uint32_t count, size_t& at) {
    charge(count);
    for (; count > 0; --count) {
      if (at == 0) return false;
      at = unicode::before(text_, at);
    }
    return true;
  }

  bool split(const Step& step, uint32_t& pc, size_t at) {
    const size_t next = byte(at);
    if (!program_.firsts[step.c].test(next)) {
      pc = step.b;
      return true;
    }
    if (program_.firsts[step.c + 1].test(next)) push({Way::kPlace, step.b, at, 0});
    pc = step.a;
    return true;
  }

  bool run_of(const Step& step, uint32_t& pc, size_t& at) {
    const unicode::Set& set = program_.sets[step.a];
    uint32_t count = 0;
    while (count < step.least && take(set, at)) ++count;
    if (count < step.least) return charge(count / 8), false;
    ++pc;
    if (step.taking == Taking::kLazy) {
      if (step.most > step.least) push({Way::kLonger, pc, at, step.most - step.least});
      return true;
    }
    const size_t least = at;
    while (count < step.most && take(set, at)) ++count;
    charge(count / 8);
    if (step.taking == Taking::kGreedy && at > least) push({Way::kShorter, pc, at, least});
    return true;
  }

  // The way that was left last; false for none since `base`.
  bool back(size_t base, uint32_t& pc, size_t& at) {
    while (ways_.size() > base) {
      Way& way = ways_.back();
      pc = way.step;
      at = way.at;
      switch (way.kind) {
        case Way::kPlace: ways_.pop_back(); return true;
        case Way::kSlot:
          slots_[way.step] = way.limit;
          ways_.pop_back();
          break;
        case Way::kShorter:
          at = way.at = unicode::before(text_, at);
          if (at == way.limit) ways_.pop_back();
          return true;
        case Way::kLonger: {
          const bool longer = take(program_.sets[program_.steps[pc - 1].a], at);
          way.at = at;
          if (way.limit != kUnbounded) --way.limit;
          if (!longer || way.limit == 0) ways_.pop_back();
          if (longer) return true;
          break;
        }
      }
    }
    return false;
  }

  bool is_word(size_t at) const { return program_.word.has(unicode::decode(text_, at).code); }

  bool is_place(Place place, size_t at) const {
    const bool begin = at == 0, end = at == text_.size();
    switch (place) {
      case Place::kTextBegin: return begin;
      case Place::kTextEnd: return end;
      case Place::kLineBegin: return begin || (text_[at - 1] == '\n' && !end);
      case Place::kLineEnd: return end || text_[at] == '\n';
      case Place::kTextEndOrNewline: return end || (at + 1 == text_.size() && text_[at] == '\n');
      default: break;
    }
    const bool before = !begin && is_word(unicode::before(text_, at)), after = !end && is_word(at);
    return (before != after) == (place == Place::kWordBoundary);
  }

  const SharedEngine& program_;
  std::string_view text_;
  std::vector<Way> ways_;
  std::vector<size_t> slots_;
  size_t steps_;
};

std::vector<Match> find_literal(std::string_view text, std::string_view wanted) {
  std::vector<Match> found;
  for (size_t at = text.find(wanted); at != std::string_view::npos; at = text.find(wanted, found.back().end))
    found.push_back({at, at + wanted.size()});
  return found;
}

}  // namespace

Pattern::Pattern(std::string_view source) {
  if (source.size() > kLongestPattern)
    unknown("more than " + std::to_string(kLongestPattern) + " bytes");
  program_ = std::make_shared<const SharedEngine>(make_program(parse_pattern(source)));
}

Pattern Pattern::literal(std::string_view text) {
  if (text.empty()) return Pattern(text);
  Pattern pattern;
  pattern.literal_ = text;
  return pattern;
}

std::vector<Match> Pattern::find_all(std::string_view text) const {
  if (text.empty()) return {};
  if (!program_) return find_literal(text, literal_);
  std::vector<Match> found;
  Matcher matcher(*program_, text);
  Match match{};
  for (size_t from = 0; from <= text.size() && matcher.search(from, match);) {
    if (match.begin == match.end && !found.empty() && found.back().end == match.end) {
      from += from < text.size() ? unicode::length(text[from]) : 1;
    } else {
      found.push_back(match);
      from = match.end;
    }
  }
  return found;
}

}  // namespace spc
