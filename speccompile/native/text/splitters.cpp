#include "splitters.h"

#include "bytes.h"
#include "reading.h"
#include "splits.h"

namespace spc {
namespace {

// The pieces of a piece, at `offset` of the line; empty ones are nothing.
void add_pieces(std::vector<Piece>& list, const std::vector<Match>& pieces, size_t offset) {
  for (const auto& [begin, end] : pieces)
    if (begin < end) list.push_back({offset + begin, offset + end});
}

// Splits where something matches, and changes no text.
class Matching : public Splitter {
 public:
  Matching(Behavior behavior, bool invert) : behavior_(behavior), invert_(invert) {}

  void apply(PreTokenizedString& pieces) const override {
    std::vector<Piece> list;
    for (const Piece& piece : pieces.list) {
      if (piece.token != kNoToken) {
        list.push_back(piece);
        continue;
      }
      const std::string_view text = pieces.text(piece);
      add_pieces(list, pieces_of(parts_of(matches(text), text.size(), invert_), behavior_), piece.begin);
    }
    pieces.list = std::move(list);
  }

 private:
  virtual std::vector<Match> matches(std::string_view text) const = 0;

  Behavior behavior_;
  bool invert_;
};

class Split : public Matching {
 public:
  Split(Pattern pattern, Behavior behavior, bool invert) : Matching(behavior, invert), pattern_(std::move(pattern)) {}

 private:
  std::vector<Match> matches(std::string_view text) const override { return pattern_.find_all(text); }

  Pattern pattern_;
};

// Every character of a set is a match.
class Characters : public Matching {
 public:
  Characters(unicode::Set set, Behavior behavior) : Matching(behavior, false), set_(std::move(set)) {}

 private:
  std::vector<Match> matches(std::string_view text) const override {
    std::vector<Match> found;
    for (size_t at = 0; at < text.size();) {
      const auto [code, size] = unicode::decode(text, at);
      if (set_.has(code)) found.push_back({at, at + size});
      at += size;
    }
    return found;
  }

  unicode::Set set_;
};

// Split into words, and runs of characters that are neither of a word nor spaces.
class Whitespace : public Matching {
 public:
  Whitespace() : Matching(Behavior::kRemoved, true) {}

 private:
  std::vector<Match> matches(std::string_view text) const override {
    std::vector<Match> found;
    int last = 0;
    for (size_t at = 0; at < text.size();) {
      const auto [code, size] = unicode::decode(text, at);
      const int kind = word_.has(code) ? 1 : space_.has(code) ? 0 : 2;
      if (kind && kind == last)
        found.back().end = at + size;
      else if (kind)
        found.push_back({at, at + size});
      last = kind;
      at += size;
    }
    return found;
  }

  unicode::Set word_ = unicode::property("rust_word"), space_ = unicode::property("space");
};

class FixedLength : public Matching {
 public:
  explicit FixedLength(uint32_t length) : Matching(Behavior::kIsolated, false), length_(length) {}

 private:
  std::vector<Match> matches(std::string_view text) const override {
    std::vector<Match> found;
    uint32_t count = 0;
    for (size_t at = 0; at < text.size(); count = (count + 1) % length_) {
      const size_t end = at + unicode::length(text[at]);
      if (count == 0) found.push_back({at, end});
      found.back().end = at = end;
    }
    return found;
  }

  uint32_t length_;
};

// Writes every piece anew.
class Rewriting : public Splitter {
 public:
  void apply(PreTokenizedString& pieces) const override {
    PreTokenizedString made{pieces.line.empty_like(), {}};
    made.line.text.reserve(pieces.line.text.size() + pieces.line.text.size() / 2);
    for (const Piece& piece : pieces.list) {
      if (piece.token != kNoToken)
        made.list.push_back({0, 0, piece.token});
      else
        rewrite(pieces, piece, made);
    }
    pieces = std::move(made);
  }

 private:
  virtual void rewrite(const PreTokenizedString& pieces, const Piece& piece, PreTokenizedString& made) const = 0;
};

class ByteLevel : public Rewriting {
 public:
  ByteLevel(bool space, bool splits) : space_(space), splits_(splits) {}

 private:
  void rewrite(const PreTokenizedString& pieces, const Piece& piece, PreTokenizedString& made) const override {
    NormalizedString line = pieces.line.empty_like();
    if (space_ && pieces.line.text[piece.begin] != ' ') line.add(" ", pieces.line.origin(piece.begin));
    line.copy(pieces.line, piece.begin, piece.end);
    if (!splits_) return put(line, 0, line.text.size(), made);
    for (const auto& [begin, end, matches] : parts_of(gpt2().find_all(line.text), line.text.size(), false))
      put(line, begin, end, made);
  }

  static void put(const NormalizedString& line, size_t begin, size_t end, PreTokenizedString& made) {
    const size_t start = made.line.text.size();
    for (size_t at = begin; at < end; ++at) made.line.add(letter_of_byte(line.text[at]), line.origin(at));
    if (begin < end) made.list.push_back({start, made.line.text.size()});
  }

  static const Pattern& gpt2() {
    static const Pattern kPattern(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
    return kPattern;
  }

  bool space_, splits_;
};

enum class Scheme { kFirst, kNever, kAlways };

class Metaspace : public Rewriting {
 public:
  Metaspace(uint32_t replacement, Scheme scheme, bool splits) : scheme_(scheme), splits_(splits) {
    unicode::append(mark_, replacement);
  }
  bool asks_origin() const override { return scheme_ == Scheme::kFirst; }

 private:
  void rewrite(const PreTokenizedString& pieces, const Piece& piece, PreTokenizedString& made) const override {
    const NormalizedString& line = pieces.line;
    const std::string_view text = pieces.text(piece);
    const size_t start = made.line.text.size(), origin = line.origin(piece.begin);
    const bool marked = text[0] == ' ' || text.substr(0, mark_.size()) == mark_;
    if (!marked && (scheme_ == Scheme::kAlways || (scheme_ == Scheme::kFirst && origin == 0))) made.line.add(mark_, origin);
    for (size_t at = piece.begin; at < piece.end; ++at) {
      if (line.text[at] == ' ')
        made.line.add(mark_, line.origin(at));
      else
        made.line.copy(line, at, at + 1);
    }
    if (!splits_) return made.list.push_back({start, made.line.text.size()});
    const std::string_view written = std::string_view(made.line.text).substr(start);
    const std::vector<Part> parts = parts_of(Pattern::literal(mark_).find_all(written), written.size(), false);
    add_pieces(made.list, pieces_of(parts, Behavior::kMergedWithNext), start);
  }

  std::string mark_;
  Scheme scheme_;
  bool splits_;
};

Scheme read_scheme(const Json& part) {
  const std::string& name = part.find("prepend_scheme") ? read_text(part, "prepend_scheme") : "always";
  if (name != "first" && name != "never" && name != "always") throw InvalidTokenizer{"no prepend_scheme " + python_repr(name)};
  const Scheme scheme = name == "first" ? Scheme::kFirst : name == "never" ? Scheme::kNever : Scheme::kAlways;
  if (!read_flag(part, "add_prefix_space", true)) {
    if (scheme != Scheme::kNever) throw InvalidTokenizer{"add_prefix_space is not what prepend_scheme says"};
  }
  return scheme;
}

void add(Splitters& found, const Json& part) {
  const std::string& type = read_text(part, "type");
  const auto put = [&](Splitter* made) { found.emplace_back(made); };
  if (type == "Sequence") {
    for (const Json& each : read_list(part, "pretokenizers")) add(found, each);
  } else if (type == "ByteLevel") {
    put(new ByteLevel(read_flag(part, "add_prefix_space"), read_flag(part, "use_regex", true)));
  } else if (type == "Split") {
    put(new Split(read_pattern(part), read_behavior(part["behavior"]), read_flag(part, "invert")));
  } else if (type == "Digits") {
    const Behavior behavior = read_flag(part, "individual_digits") ? Behavior::kIsolated : Behavior::kContiguous;
    put(new Characters(unicode::property("rust_numeric"), behavior));
  } else if (type == "Punctuation") {
    const Json* behavior = part.find("behavior");
    put(new Characters(unicode::property("rust_punctuation"), behavior ? read_behavior(*behavior) : Behavior::kIsolated));
  } else if (type == "BertPreTokenizer") {
    put(new Characters(unicode::property("space"), Behavior::kRemoved));
    put(new Characters(unicode::property("rust_punctuation"), Behavior::kIsolated));
  } else if (type == "Whitespace") {
    put(new Whitespace);
  } else if (type == "WhitespaceSplit") {
    put(new Characters(unicode::property("space"), Behavior::kRemoved));
  } else if (type == "CharDelimiterSplit") {
    const uint32_t code = read_character(part, "delimiter");
    put(new Characters(unicode::Set({{code, code}}), Behavior::kRemoved));
  } else if (type == "FixedLength") {
    const uint32_t length = part.find("length") ? read_number(part["length"], "length") : 5;
    if (length == 0) throw InvalidTokenizer{"pieces of no length"};
    put(new FixedLength(length));
  } else if (type == "Metaspace") {
    put(new Metaspace(read_character(part, "replacement"), read_scheme(part), read_flag(part, "split", true)));
  } else {
    throw UnsupportedComponent{"pre-tokenizer " + python_repr(type)};
  }
}

}  // namespace

Splitters read_splitters(const Json& part) {
  Splitters found;
  if (!part.is_null()) add(found, part);
  return found;
}

}  // namespace spc
