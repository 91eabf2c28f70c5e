// Weights as kernels read them, kept on this machine and mapped: speccompile/runtime/devices/prepacked.py says how and why.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "../bundle/cache.h"
#include "../json.h"

namespace spc {

// Opens the graph in the first file and writes it to the second, beside it its weights, as they are and packed.
using SaveGraph = std::function<void(const std::string& graph, const std::string& output)>;
// Opens a serialized graph.
using OpenGraph = std::function<void(const std::string& model)>;

// What packed weights were made from. files: path in the bundle and BLAKE3; size: bytes of the weights.
struct PrepackedKey {
  std::vector<std::pair<std::string, std::string>> files;
  int64_t size = 0;
  std::string onnxruntime;
  Json processor;

  Json to_json() const;
  std::string digest() const;
};

// The key of a graph of the bundle in `folder`. onnxruntime: its version. Throws Error(kBundle).
PrepackedKey packed_key(const std::string& folder, const std::string& file, const std::string& onnxruntime);

// The cache of packed weights: an entry for every graph.
class PrepackedWeights {
 public:
  explicit PrepackedWeights(std::string folder = cache_folder(kPrepackedFolder), double limit = default_limit());

  const FolderCache& cache() const { return cache_; }
  // Pack the weights of a graph and keep them. Throws FileError, Error(kEngine), or what `save` throws.
  void store(const PrepackedKey& key, const std::string& graph, const SaveGraph& save) const;
  // Opens a graph with its packed weights, where they are kept. Returns whether they are. Throws as `store`.
  bool open(const PrepackedKey& key, const std::string& graph, const OpenGraph& open_graph, bool verify) const;

 private:
  Json take_over(const std::string& saved, const std::string& part) const;
  std::string keep(const std::vector<std::string_view>& buffers, const std::string& part) const;
  bool is_linked(const std::string& name, const std::string& part) const;

  FolderCache cache_;
};

// The files beside a graph whose names stand in it: those of its weights do, as a rule no others. None for a graph that cannot
// be read.
std::vector<std::string> weights_of(const std::string& graph);

// Opens a graph of the bundle in `folder` with its packed weights mapped, in which its weights lie relative to kRoot. Returns
// whether `open_graph` did. verify: compare what is mapped with its hashes.
//
// Not so, with a warning, where they cannot be kept or ONNX Runtime does not take them; without one for small graphs, for
// folders without hashes, as while a bundle is built, and with a limit of 0. Throws Error(kBundle) for broken hashes.
bool open_with_prepacked(const std::string& folder, const std::string& file, const std::string& onnxruntime, bool verify,
                 const SaveGraph& save, const OpenGraph& open_graph);

}  // namespace spc
