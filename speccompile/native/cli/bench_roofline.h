// Decoding against the memory: the bytes that a token needs, and how fast this machine reads (speccompile/measure/bench/roofline.py,
// weights.py).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "../json.h"
#include "../runtime/bundle.h"

namespace spc::cli {

// Bytes of weights that one run of a graph reads. whole: of weights that are read to their end, as often as a node reads them; row:
// of one row of every table in which tokens are looked up, each as often as a node does.
struct WeightReads {
  int64_t whole = 0, row = 0;
};

// Return the bytes of weights that one run of the graph in this ONNX file reads. Nodes of subgraphs count as if they
// ran once. Throws FileError, Error(kEngine) for what is no ONNX file.
WeightReads weight_reads(const std::string& path);

// The object of `bench --json`, from those of both ways; null for engines that are no ONNX graphs on the processor. context:
// committed tokens.
Json measure_roofline(const Bundle& bundle, int64_t context, const Json& speculative, const Json& alone);

}  // namespace spc::cli
