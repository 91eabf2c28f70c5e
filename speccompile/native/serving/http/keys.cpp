#include "keys.h"

#include <strings.h>

#include "../../bundle/sha256.h"
#include "../../words.h"
#include "errors.h"

namespace spc::http {
namespace {

constexpr size_t kShownOfHash = 16;

// Hashes have one length: the time tells nothing of a key, nor how long it is.
bool is_equal(const std::string& one, const std::string& other) {
  unsigned differs = 0;
  for (size_t i = 0; i < one.size(); ++i) differs |= static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(other[i]);
  return !differs;
}

}  // namespace

Keys::Keys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) hashes_.push_back(sha256(key));
}

std::string Keys::authenticate(const std::string* authorization) const {
  if (hashes_.empty()) return "";
  const std::string given = authorization ? *authorization : "";
  const size_t blank = std::min(given.find(' '), given.size());
  const std::string hash = sha256(trimmed(given.substr(blank)));
  unsigned found = 0;
  for (const std::string& each : hashes_) found |= is_equal(hash, each);
  if (found && strcasecmp(given.substr(0, blank).c_str(), "bearer") == 0) return hash.substr(0, kShownOfHash);
  throw RequestError(401, std::string("received ") + (authorization ? "an API key that is not known" : "no API key") +
                              ", expected one of this server's in the header Authorization: Bearer KEY",
                     "", "invalid_api_key")
      .with("WWW-Authenticate", "Bearer");
}

std::vector<std::string> read_keys(const std::string& text) {
  std::vector<std::string> found;
  for (const std::string& line : split(text, '\n'))
    if (const std::string key = trimmed(line); !key.empty() && key[0] != '#') found.push_back(key);
  return found;
}

}  // namespace spc::http
