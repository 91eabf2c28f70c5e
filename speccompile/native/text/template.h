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
    bool is_text;  // the text's own tokens stand here, and not `ids`
    TokenIds ids;
  };

  void read(const Json& part);
  void read_single(const Json& part);

  std::vector<std::vector<Part>> steps_;  // each adds tokens around the output of the step before
};

}  // namespace spc
