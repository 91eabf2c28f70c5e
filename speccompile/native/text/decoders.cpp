#include "decoders.h"

#include "bytes.h"
#include "reading.h"
#include "unicode.h"

namespace spc {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

// Each word by itself.
class OfWords : public Decoder {
 public:
  Words apply(Words words) const override {
    for (size_t i = 0; i < words.size(); ++i) words[i] = word(words[i], i == 0, i + 1 == words.size());
    return words;
  }

 private:
  virtual std::string word(const std::string& word, bool first, bool last) const = 0;
};

std::string replaced(const std::string& text, const std::vector<Match>& matches, std::string_view content) {
  std::string made;
  size_t from = 0;
  for (const auto& [begin, end] : matches) {
    made.append(text, from, begin - from).append(content);
    from = end;
  }
  return made.append(text, from, std::string::npos);
}

class Replace : public OfWords {
 public:
  Replace(Pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}

 private:
  std::string word(const std::string& word, bool, bool) const override {
    return replaced(word, pattern_.find_all(word), content_);
  }

  Pattern pattern_;
  std::string content_;
};

// The mark of a word's end is a space, but for the last word's.
class Suffix : public OfWords {
 public:
  explicit Suffix(const std::string& suffix) : suffix_(Pattern::literal(suffix)), empty_(suffix.empty()) {}

 private:
  std::string word(const std::string& word, bool, bool last) const override {
    if (word.empty() && empty_) return last ? "" : " ";
    return replaced(word, suffix_.find_all(word), last ? "" : " ");
  }

  Pattern suffix_;
  bool empty_;
};

class Metaspace : public OfWords {
 public:
  Metaspace(uint32_t replacement, bool prepended) : prepended_(prepended) { unicode::append(mark_, replacement); }

 private:
  std::string word(const std::string& word, bool first, bool) const override {
    return replaced(word, Pattern::literal(mark_).find_all(word), first && prepended_ ? "" : " ");
  }

  std::string mark_;
  bool prepended_;
};

class Strip : public OfWords {
 public:
  Strip(uint32_t character, uint32_t begin, uint32_t end) : begin_(begin), end_(end) { unicode::append(text_, character); }

 private:
  std::string word(const std::string& word, bool, bool) const override {
    const size_t size = text_.size();
    size_t begin = 0, end = word.size();
    for (uint32_t i = 0; i < begin_ && word.compare(begin, size, text_) == 0; ++i) begin += size;
    for (uint32_t i = 0; i < end_ && end >= begin + size && word.compare(end - size, size, text_) == 0; ++i) end -= size;
    return word.substr(begin, end - begin);
  }

  std::string text_;
  uint32_t begin_, end_;
};

class Fuse : public Decoder {
 public:
  Words apply(Words words) const override {
    std::string all;
    for (const std::string& word : words) all += word;
    return {all};
  }
};

class ByteLevel : public Decoder {
 public:
  Words apply(Words words) const override {
    std::string bytes;
    for (const std::string& word : words)
      if (!append_bytes(bytes, word)) bytes += word;
    return {unicode::lossy(bytes)};
  }

 private:
  // False when the word is no bytes.
  static bool append_bytes(std::string& bytes, const std::string& word) {
    const size_t before = bytes.size();
    for (size_t at = 0; at < word.size();) {
      const auto [code, size] = unicode::decode(word, at);
      const int byte = byte_of_letter(code);
      if (byte < 0) {
        bytes.resize(before);
        return false;
      }
      bytes += static_cast<char>(byte);
      at += size;
    }
    return true;
  }
};

// Runs of <0xE4> and the like are UTF-8; one that is not is as many replacement characters.
class ByteFallback : public Decoder {
 public:
  Words apply(Words words) const override {
    Words made;
    std::string bytes;
    const auto finish = [&] {
      if (is_utf8(bytes) && !bytes.empty())
        made.push_back(bytes);
      else
        made.insert(made.end(), bytes.size(), kReplacement);
      bytes.clear();
    };
    for (std::string& word : words) {
      const int byte = byte_of(word);
      if (byte >= 0) {
        bytes += static_cast<char>(byte);
      } else {
        finish();
        made.push_back(std::move(word));
      }
    }
    finish();
    return made;
  }

 private:
  static int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  }

  static int byte_of(const std::string& word) {
    if (word.size() != 6 || word.compare(0, 3, "<0x") != 0 || word[5] != '>') return -1;
    const int high = word[3] == '+' ? 0 : digit(word[3]), low = digit(word[4]);  // Rust reads +A as a number
    return high < 0 || low < 0 ? -1 : high * 16 + low;
  }
};

// Words that do not continue the one before begin with a space. What English spelling sets apart is joined.
class WordPiece : public OfWords {
 public:
  WordPiece(std::string prefix, bool cleans) : prefix_(std::move(prefix)), cleans_(cleans) {}

 private:
  std::string word(const std::string& word, bool first, bool) const override {
    std::string made = word;
    if (!first) made = word.compare(0, prefix_.size(), prefix_) == 0 ? word.substr(prefix_.size()) : " " + word;
    if (!cleans_) return made;
    for (const auto& [from, to] : kJoined) made = replaced(made, Pattern::literal(from).find_all(made), to);
    return made;
  }

  static constexpr std::pair<const char*, const char*> kJoined[] = {
      {" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

  std::string prefix_;
  bool cleans_;
};

void add(Decoders& found, const Json& part) {
  const std::string& type = read_text(part, "type");
  const auto put = [&](Decoder* made) { found.emplace_back(made); };
  if (type == "Sequence") {
    for (const Json& each : read_list(part, "decoders")) add(found, each);
  } else if (type == "ByteLevel") {
    put(new ByteLevel);
  } else if (type == "Replace") {
    put(new Replace(read_pattern(part), read_text(part, "content")));
  } else if (type == "ByteFallback") {
    put(new ByteFallback);
  } else if (type == "Fuse") {
    put(new Fuse);
  } else if (type == "Strip") {
    const uint32_t start = read_number(part["start"], "start"), stop = read_number(part["stop"], "stop");
    put(new Strip(read_character(part, "content"), start, stop));
  } else if (type == "Metaspace") {
    const Json* scheme = part.find("prepend_scheme");
    const bool never = (scheme && *scheme == Json("never")) || !read_flag(part, "add_prefix_space", true);
    put(new Metaspace(read_character(part, "replacement"), !never));
  } else if (type == "WordPiece") {
    put(new WordPiece(read_text(part, "prefix"), read_flag(part, "cleanup", true)));
  } else if (type == "BPEDecoder") {
    put(new Suffix(read_text(part, "suffix")));
  } else {
    throw UnsupportedComponent{"decoder " + python_repr(type)};
  }
}

}  // namespace

Decoders read_decoders(const Json& part) {
  Decoders found;
  add(found, part);
  return found;
}

}  // namespace spc
