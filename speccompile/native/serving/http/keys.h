// API keys of clients (serving/http/keys.py).
#pragma once

#include <string>
#include <vector>

namespace spc::http {

class Keys {
 public:
  // Without any key, all clients are accepted.
  explicit Keys(const std::vector<std::string>& keys = {});
  // Return an id of the client, which does not reveal its key, from the header `Authorization: Bearer KEY`, null without one.
  // Throws RequestError for an unknown key, in a time that does not depend on where it differs.
  std::string authenticate(const std::string* authorization) const;

 private:
  std::vector<std::string> hashes_;
};

// Return the keys in a file's text, one a line; skip empty lines and those that begin with #.
std::vector<std::string> read_keys(const std::string& text);

}  // namespace spc::http
