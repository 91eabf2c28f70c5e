// A tokenizer.json, read and used as the Python package tokenizers does.
#include <algorithm>
#include <array>
#include <cstdio>

#include "../errors.h"
#include "../files.h"
#include "added.h"
#include "bytes.h"
#include "decoders.h"
#include "normalizers.h"
#include "reading.h"
#include "splitters.h"
#include "template.h"
#include "text.h"
#include "token_bytes.h"
#include "vocabulary.h"

namespace spc {
namespace {

constexpr char kRebuild[] = "build the bundle again";
constexpr char kUseIds[] = "give token ids instead of text, or use the Python runtime";

// Throw Python's error: its position counts characters, and an invalid byte is shown as a lone surrogate.
[[noreturn]] void refuse_bytes(std::string_view text, size_t invalid) {
  size_t characters = 0;
  for (size_t i = 0; i < invalid; ++i) characters += !unicode::continues(text[i]);
  const auto byte = static_cast<unsigned char>(text[invalid]);
  char surrogate[16];
  std::snprintf(surrogate, sizeof surrogate, "'\\udc%02x'", static_cast<unsigned>(byte));
  throw Error(Kind::kPrompt, "the prompt is not UTF-8 text: character " + std::to_string(characters) + " is " + surrogate,
              "save the prompt as UTF-8");
}

// Lone surrogates, which JSON can write, are no text. What is nested deeper than Json reads is not there.
void check_texts(const Json& value) {
  if (!is_utf8(value.text())) throw InvalidTokenizer{"a text that is not UTF-8"};
  for (const Json& each : value.list()) check_texts(each);
  for (const auto& [name, each] : value.object()) {
    if (!is_utf8(name)) throw InvalidTokenizer{"a name that is not UTF-8"};
    check_texts(each);
  }
}

// Return the largest token id and one.
int64_t size_of(const Json& file) {
  int64_t most = -1;
  for (const auto& each : file["model"]["vocab"].object()) most = std::max(most, each.second.is_integer() ? each.second.integer() : -1);
  most = std::max(most, static_cast<int64_t>(file["model"]["vocab"].list().size()) - 1);
  for (const Json& each : file["added_tokens"].list()) most = std::max(most, each["id"].is_integer() ? each["id"].integer() : -1);
  return most + 1;
}

class Tokenizer : public Text {
 public:
  explicit Tokenizer(const Json& file)
      : vocabulary_(file["model"]),
        normalizers_(read_normalizers(file["normalizer"])),
        added_(file["added_tokens"], vocabulary_, normalizers_),
        splitters_(read_splitters(file["pre_tokenizer"])),
        template_(file["post_processor"]),
        has_decoder_(!file["decoder"].is_null()),
        size_(size_of(file)),
        longest_(spc::longest_token_bytes(file)) {
    if (const Json& version = file["version"]; !version.is_null() && version != Json("1.0"))
      throw InvalidTokenizer{"unknown version " + version.repr()};
    if (has_decoder_) decoders_ = read_decoders(file["decoder"]);
    for (const auto& each : splitters_) tracked_ = tracked_ || each->asks_origin();
    find_bytes();
  }

  TokenIds encode(std::string_view text, bool special_tokens) const override {
    const size_t invalid = first_invalid_utf8(text);
    if (invalid != std::string_view::npos) refuse_bytes(text, invalid);
    TokenIds ids;
    try {
      PreTokenizedString pieces = added_.split(text, tracked_);
      for (const auto& each : splitters_) each->apply(pieces);
      for (const Piece& piece : pieces.list) {
        if (piece.token != kNoToken)
          ids.push_back(piece.token);
        else
          vocabulary_.encode(pieces.text(piece), ids);
      }
    } catch (const PatternLimit&) {
      throw Error(Kind::kPrompt, "the tokenizer's patterns take too long on this text", "cut the text, or give token ids");
    } catch (const NoUnknownToken& error) {
      throw Error(Kind::kBundle, "the tokenizer's unknown token " + python_repr(error.name) + " is not in its vocabulary",
                  kRebuild);
    }
    return template_.apply(ids, special_tokens);
  }

  std::string decode(const TokenIds& ids) const override {
    Words words;
    words.reserve(ids.size());
    for (const int64_t id : ids) {
      const std::optional<std::string_view> token = this->token(id);
      if (token && !added_.is_special_text(*token)) words.emplace_back(*token);
    }
    try {
      for (const auto& each : decoders_) words = each->apply(std::move(words));
    } catch (const PatternLimit&) {
      throw Error(Kind::kPrompt, "the tokenizer's patterns take too long on these tokens", kUseIds);
    }
    std::string text;
    for (size_t i = 0; i < words.size(); ++i) text.append(i > 0 && !has_decoder_ ? " " : "").append(words[i]);
    return text;
  }

  TokenIds shown(const TokenIds& ids) const override {
    TokenIds found;
    for (const int64_t id : ids)
      if (!added_.is_special(id) && token(id)) found.push_back(id);
    return found;
  }

  bool is_byte(int64_t id) const override { return bytes_.count(id) > 0; }

  std::string special_text(int64_t id) const override { return added_.special_text(id); }

  int64_t size() const override { return size_; }

  int64_t longest_token_bytes() const override { return longest_; }

  std::string id_to_token(int64_t id) const override { return std::string(token(id).value_or("")); }

 private:
  std::optional<std::string_view> token(int64_t id) const {
    if (id < 0) return std::nullopt;
    if (const std::string* added = added_.token(id)) return *added;
    const std::string_view* found = vocabulary_.token(static_cast<uint64_t>(id));
    return found ? std::optional(*found) : std::nullopt;
  }

  std::optional<uint32_t> id(const std::string& token) const {
    const std::optional<uint32_t> added = added_.id(token);
    return added ? added : vocabulary_.id(token);
  }

  // Asked by decoding, because only some decoders read such tokens as bytes.
  void find_bytes() {
    const std::optional<uint32_t> letter = id("<0x41>");
    if (!letter || decode({*letter}) != "A") return;
    for (unsigned byte = 0; byte < 256; ++byte)
      if (const std::optional<uint32_t> found = id(byte_token(byte))) bytes_.insert(*found);
  }

  Vocabulary vocabulary_;
  Normalizers normalizers_;
  AddedTokens added_;
  Splitters splitters_;
  Decoders decoders_;
  Template template_;
  bool has_decoder_, tracked_ = false;
  const int64_t size_, longest_;
  std::set<int64_t> bytes_;
};

}  // namespace

std::shared_ptr<const Text> Text::of(const Json& definition) { return std::make_shared<const Tokenizer>(definition); }

std::shared_ptr<const Text> Text::open(const std::string& path) {
  std::string why;
  try {
    const Json file = Json::parse(read_file(path));
    check_texts(file);
    return std::make_shared<const Tokenizer>(file);
  } catch (const UnsupportedComponent& part) {
    throw Error(Kind::kEngine, path + ": this runtime has no " + part.what, kUseIds);
  } catch (const InvalidTokenizer& error) {
    why = error.why;
  } catch (const JsonError& error) {
    why = error.what();
  } catch (const FileError& error) {
    why = error.reason;
  } catch (const PatternLimit&) {
    why = "its patterns take too long on its own tokens";
  }
  throw Error(Kind::kBundle, path + ": expected a tokenizer: " + why, kRebuild);
}

}  // namespace spc
