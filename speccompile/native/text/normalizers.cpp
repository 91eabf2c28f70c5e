#include "normalizers.h"

#include "bytes.h"
#include "charsmap.h"
#include "forms.h"
#include "reading.h"

namespace spc {
namespace {

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string text) : text_(std::move(text)) {}
  NormalizedString apply(const NormalizedString& line) const override {
    if (line.text.empty()) return line;
    NormalizedString made = line.empty_like();
    made.add(text_, line.origin(0));
    made.copy(line, 0, line.text.size());
    return made;
  }

 private:
  std::string text_;
};

class Replace : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  NormalizedString apply(const NormalizedString& line) const override {
    NormalizedString made = line.empty_like();
    size_t last = 0;
    for (const auto& [begin, end] : pattern_.find_all(line.text)) {
      made.copy(line, last, begin);
      made.add(content_, end ? line.origin(end - 1) : 0);
      last = end;
    }
    made.copy(line, last, line.text.size());
    return made;
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class Formed : public Normalizer {
 public:
  explicit Formed(Form form) : form_(form) {}
  NormalizedString apply(const NormalizedString& line) const override { return normal_form(line, form_); }

 private:
  Form form_;
};

class Lowercase : public Normalizer {
 public:
  NormalizedString apply(const NormalizedString& line) const override { return lowercase(line); }
};

// Keeps the characters outside a set.
class Without : public Normalizer {
 public:
  explicit Without(unicode::Set set) : set_(std::move(set)) {}
  NormalizedString apply(const NormalizedString& line) const override {
    NormalizedString made = line.empty_like();
    for (size_t at = 0; at < line.text.size();) {
      const auto [code, size] = unicode::decode(line.text, at);
      if (!set_.has(code)) made.copy(line, at, at + size);
      at += size;
    }
    return made;
  }

 private:
  unicode::Set set_;
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  NormalizedString apply(const NormalizedString& line) const override {
    const std::string& text = line.text;
    size_t begin = 0, end = text.size();
    while (left_ && begin < end && space_.has(unicode::decode(text, begin).code)) begin += unicode::length(text[begin]);
    while (right_ && end > begin && space_.has(unicode::decode(text, unicode::before(text, end)).code))
      end = unicode::before(text, end);
    NormalizedString made = line.empty_like();
    made.copy(line, begin, end);
    return made;
  }

 private:
  bool left_, right_;
  unicode::Set space_ = unicode::property("space");
};

class ByteLevel : public Normalizer {
 public:
  NormalizedString apply(const NormalizedString& line) const override {
    NormalizedString made = line.empty_like();
    for (size_t at = 0; at < line.text.size(); ++at) made.add(letter_of_byte(line.text[at]), line.origin(at));
    return made;
  }
};

// Normalization of BERT before words are split.
class Bert : public Normalizer {
 public:
  Bert(bool cleans, bool spaces_chinese) : cleans_(cleans), spaces_chinese_(spaces_chinese) {}
  NormalizedString apply(const NormalizedString& line) const override {
    NormalizedString made = line.empty_like();
    for (size_t at = 0; at < line.text.size();) {
      const auto [code, size] = unicode::decode(line.text, at);
      if (!cleans_ || !dropped_.has(code)) {
        const bool is_chinese = spaces_chinese_ && chinese_.has(code);
        if (is_chinese) made.add(" ", line.origin(at));
        if (cleans_ && space_.has(code))
          made.add(" ", line.origin(at));
        else
          made.copy(line, at, at + size);
        if (is_chinese) made.add(" ", line.origin(at));
      }
      at += size;
    }
    return made;
  }

 private:
  bool cleans_, spaces_chinese_;
  unicode::Set space_ = unicode::property("space"), dropped_ = unicode::property("rust_dropped");
  unicode::Set chinese_{{{0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xF900, 0xFAFF}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
                         {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}}};
};

void add(Normalizers& found, const Json& part) {
  const std::string& type = read_text(part, "type");
  const auto put = [&](auto* made) { found.emplace_back(made); };
  if (type == "Sequence") {
    for (const Json& each : read_list(part, "normalizers")) add(found, each);
  } else if (type == "Prepend") {
    put(new Prepend(read_text(part, "prepend")));
  } else if (type == "Replace") {
    put(new Replace(read_pattern(part), read_text(part, "content")));
  } else if (type == "NFC") {
    put(new Formed(Form::kNfc));
  } else if (type == "NFD") {
    put(new Formed(Form::kNfd));
  } else if (type == "NFKC") {
    put(new Formed(Form::kNfkc));
  } else if (type == "NFKD") {
    put(new Formed(Form::kNfkd));
  } else if (type == "Lowercase") {
    put(new Lowercase);
  } else if (type == "Strip") {
    put(new Strip(read_flag(part, "strip_left"), read_flag(part, "strip_right")));
  } else if (type == "StripAccents") {
    put(new Without(unicode::property("combining_mark")));
  } else if (type == "ByteLevel") {
    put(new ByteLevel);
  } else if (type == "Precompiled") {
    put(new Precompiled(read_text(part, "precompiled_charsmap")));
  } else if (type == "BertNormalizer") {
    const bool lowers = read_flag(part, "lowercase");
    put(new Bert(read_flag(part, "clean_text"), read_flag(part, "handle_chinese_chars")));
    if (read_flag(part, "strip_accents", lowers)) {
      put(new Formed(Form::kNfd));
      put(new Without(unicode::property("rust_nonspacing")));
    }
    if (lowers) put(new Lowercase);
  } else {
    throw UnsupportedComponent{"normalizer " + python_repr(type)};
  }
}

}  // namespace

Normalizers read_normalizers(const Json& part) {
  Normalizers found;
  if (!part.is_null()) add(found, part);
  return found;
}

NormalizedString normalized(const Normalizers& normalizers, NormalizedString line) {
  for (const auto& each : normalizers) line = each->apply(line);
  return line;
}

}  // namespace spc
