// "normalizer" of a tokenizer.json.
#pragma once

#include <memory>
#include <vector>

#include "../json.h"
#include "pieces.h"

namespace spc {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual NormalizedString apply(const NormalizedString& line) const = 0;
};

// Return the normalizers in order; none for null. Throws NoTokenizer or NoPart.
using Normalizers = std::vector<std::unique_ptr<const Normalizer>>;
Normalizers read_normalizers(const Json& part);

NormalizedString normalized(const Normalizers& normalizers, NormalizedString line);

}  // namespace spc
