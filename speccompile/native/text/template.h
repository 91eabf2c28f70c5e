// "post_processor" of a tokenizer.json: the special tokens around a text.
#pragma once

#include <vector>

#include "../json.h"
#include "text.h"

namespace spc {

class Template {
 public:
  // Throws NoTokenizer or NoPart.
  explicit Template(const Json& part);

  TokenIds apply(const TokenIds& ids, bool special_tokens) const;

 private:
  struct Part {
    bool text;      // the text itself
    TokenIds ids;   // or these
  };

  void read(const Json& part);
  void read_single(const Json& part);

  std::vector<std::vector<Part>> steps_;  // each around what the ones before made
};

}  // namespace spc
