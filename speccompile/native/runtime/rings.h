// Caches that are rings: how far back a slot's text may go (runtime/rounds/rings.py). Position p stands in row p mod the number
// of rows, so that a row behind the text, of a rejected draft or of a longer text, has replaced one before it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../bundle/manifest.h"

namespace spc {

// Reach of the rings of a bundle. Without rings a text may go back to any of its tokens.
class RingReach {
 public:
  explicit RingReach(const Manifest& manifest);

  bool has_rings() const { return !sizes_.empty(); }
  // Return whether the rings hold all rows that a token at `position` reads. written: end of the positions whose rows have been
  // written.
  bool holds(int64_t written, int64_t position) const;
  // Return whether rows up to `written` can have been written in a slot that holds a text of `length` tokens.
  bool may_end(int64_t written, int64_t length) const { return length <= written && holds(written, length); }
  // Return the caches in words, as sessions name them.
  std::string words() const;

 private:
  std::vector<int64_t> sizes_;  // rows of the rings, each number once, in order
  int64_t room_ = 0;
};

}  // namespace spc
