// Checks of a slot before it is used, and of the numbers of tokens that a graph accepted.
#pragma once

#include <cstdint>
#include <string>

#include "../errors.h"

namespace spc {

inline void require(bool holds, const std::string& otherwise) {
  if (!holds) throw Error(Kind::kDefect, otherwise);
}

inline std::string of_slot(int64_t slot) { return "slot " + std::to_string(slot); }

// A graph with wrong counts must not cause reads beyond a buffer, nor one that writes over its counts. most: of the path, without the
// token behind it.
inline void check_path(int64_t given, int64_t accepted, int64_t most) {
  if (given < 0 || accepted < given || accepted > most)
    throw Error(Kind::kEngine, "the graph accepted " + std::to_string(accepted) + " of " + std::to_string(most) + " tokens, " +
                                   std::to_string(given) + " of them given", "build the bundle again");
}

}  // namespace spc
