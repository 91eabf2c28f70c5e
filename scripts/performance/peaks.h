// What a processor can do at most: products a second of the instruction that a path of the kernels uses, from registers
// alone, and reading.
#pragma once

#include <cstdint>

// The instruction: of floats fused multiply and add; of bytes (unsigned by signed) and of halves of bytes what the path has.
enum class Peak { kFloats, kBytes, kNibbles };

// Processor time of this thread: what others do in between is not counted, though they use the memory as well.
double thread_seconds();

// Products a second on one core: the best of several passes.
double products_a_second(const char* path, Peak peak);

// Read every byte of a place.
void read_all(const uint8_t* from, int64_t bytes);
