// Formats: https://jedisct1.github.io/minisign/, sections "Signature format" and "Public key format".
#include "signature.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <vector>

#include "../base64.h"
#include "../contract_table.h"
#include "../errors.h"
#include "../files.h"
#include "../json.h"
#include "../words.h"
#include "libcrypto.h"

namespace spc {
namespace {

constexpr std::string_view kPrehashed = "ED", kPlain = "Ed";
constexpr std::string_view kComment = "untrusted comment: ", kTrusted = "trusted comment: ";
constexpr size_t kLongest = 8192;  // most bytes of a key or a signature
constexpr const char* kMakeKeys = "`speccompile sign --new-key FILE` makes a pair of keys, as `minisign -G -W` does";
constexpr const char* kGetSigned =
    "open it without --require-signature (signed_by=..) if you trust where it is from, or get it from who signed it";

// The lines of a file. Throws Error(kUsage).
std::vector<std::string> read_lines(const std::string& path, const std::string& what, const char* hint) {
  std::string text;
  try {
    text = read_file(path, kLongest);
  } catch (const FileError& error) {
    if (error.number == EFBIG)
      throw Error(Kind::kUsage, path + ": expected " + what + " of at most " + std::to_string(kLongest) + " bytes, got more", hint);
    throw Error(Kind::kUsage, path + ": expected " + what + ", it cannot be read: " + error.reason, hint);
  }
  if (!is_utf8(text)) throw Error(Kind::kUsage, path + ": expected " + what + ", got bytes that are no text", hint);
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of("\r\n", at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + (text.compare(end, 2, "\r\n") == 0 ? 2 : 1);
  }
  return lines;
}

[[noreturn]] void refuse(const std::string& path, const std::string& problem) {
  throw Error(Kind::kBundle, path + ": " + problem, kGetSigned);
}

std::vector<std::string> read_signature(const std::string& path, const PublicKey& key) {
  try {
    return read_lines(path, "a signature", kGetSigned);
  } catch (const Error& error) {
    throw Error(Kind::kBundle, error.message + "; --require-signature (signed_by=..) asks for one by key " + key.name(), kGetSigned);
  }
}

std::string decoded_line(const std::string& line, const std::string& path) {
  const std::optional<std::string> found = from_base64(line);
  if (!found) refuse(path, "expected a signature of minisign, got another text");
  return *found;
}

}  // namespace

std::string PublicKey::name() const {
  std::string text;
  for (size_t i = number.size(); i-- > 0;) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02X", static_cast<unsigned>(static_cast<unsigned char>(number[i])));
    text += digits;
  }
  return text;
}

PublicKey PublicKey::read(const std::string& path) {
  const std::vector<std::string> lines = read_lines(path, "a public key", kMakeKeys);
  const std::optional<std::string> data = from_base64(lines.empty() ? "" : lines[lines.size() > 1]);
  if (!data) throw Error(Kind::kUsage, path + ": expected a public key of minisign, got another text", kMakeKeys);
  if (data->size() != 42 || !starts_with(*data, kPlain))
    throw Error(Kind::kUsage, path + ": expected a public key of minisign, got " + std::to_string(data->size()) + " bytes of another kind",
                kMakeKeys);
  return {data->substr(2, 8), data->substr(10)};
}

std::string check_signature(const std::string& folder, std::string_view content, const PublicKey& key) {
  const std::string path = join_path(folder, std::string(kHashes) + ".minisig");
  const std::vector<std::string> lines = read_signature(path, key);
  if (lines.size() != 4 || !starts_with(lines[0], kComment) || !starts_with(lines[2], kTrusted))
    refuse(path, "expected a signature of minisign, got " + std::to_string(lines.size()) + " lines");
  const std::string data = decoded_line(lines[1], path), whole = decoded_line(lines[3], path);
  const bool is_prehashed = starts_with(data, kPrehashed);
  if (data.size() != 74 || whole.size() != 64 || (!is_prehashed && !starts_with(data, kPlain)))
    refuse(path, "expected a signature of minisign, got " + std::to_string(data.size()) + " and " + std::to_string(whole.size()) + " bytes");
  const PublicKey signer{data.substr(2, 8), ""};
  if (signer.number != key.number) refuse(path, "the signature is by key " + signer.name() + ", expected " + key.name());
  const std::string comment = lines[2].substr(kTrusted.size()), signature = data.substr(10);
  const std::string hashed = is_prehashed ? blake2b(content) : "";
  if (!is_signed(is_prehashed ? hashed : content, signature, key.key))
    refuse(path, "the signature by key " + key.name() + " is not of " + kHashes);
  if (!is_signed(signature + comment, whole, key.key)) refuse(path, "the signature by key " + key.name() + " is not of its comment");
  return comment;
}

}  // namespace spc
