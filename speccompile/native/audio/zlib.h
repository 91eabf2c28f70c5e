// zlib, loaded when the first transcript asks how much its text repeats: a program that has none starts all the same.
#pragma once

#include <cstddef>
#include <string_view>

namespace spc::audio {

// Return how many bytes zlib makes of some. Throws Error(kEngine) where the library cannot be loaded.
size_t compressed_size(std::string_view plain);

}  // namespace spc::audio
