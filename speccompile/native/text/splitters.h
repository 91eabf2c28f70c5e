// "pre_tokenizer" of a tokenizer.json.
#pragma once

#include <memory>
#include <vector>

#include "../json.h"
#include "pieces.h"

namespace spc {

class Splitter {
 public:
  virtual ~Splitter() = default;
  // Leaves pieces that are added tokens as they are. No piece is empty afterwards.
  virtual void apply(PreTokenizedString& pieces) const = 0;
  // Return whether it needs the position of a piece in the text.
  virtual bool asks_origin() const { return false; }
};

// In order; none for null. Throws NoTokenizer or NoPart.
using Splitters = std::vector<std::unique_ptr<const Splitter>>;
Splitters read_splitters(const Json& part);

}  // namespace spc
