// "decoder" of a tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../json.h"

namespace spc {

using Words = std::vector<std::string>;

class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual Words apply(Words words) const = 0;
};

using Decoders = std::vector<std::unique_ptr<const Decoder>>;
// Return the decoders in the order in which they apply. Throws NoTokenizer or NoPart.
Decoders read_decoders(const Json& part);

}  // namespace spc
