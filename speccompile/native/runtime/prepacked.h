// Prepacked weights: cached on this machine in the kernels' layout, and memory-mapped. See
// speccompile/runtime/devices/prepacked.py for the method and its reasons.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "../bundle/cache.h"
#include "../json.h"

namespace spc {

// Function that opens the graph in the first file and writes it to the second, with original and packed weights next to it.
using SaveGraph = std::function<void(const std::string& graph, const std::string& output)>;
// Function that opens a serialized graph.
using OpenGraph = std::function<void(const std::string& model)>;

// Key of packed weights: their inputs. files: path in the bundle and BLAKE3; size: bytes of the weights.
struct PrepackedKey {
  std::vector<std::pair<std::string, std::string>> files;
  int64_t size = 0;
  std::string onnxruntime;
  Json processor;

  Json to_json() const;
  std::string digest() const;
};

// Return the key of a graph of the bundle in `folder`. onnxruntime: its version. Throws Error(kBundle).
PrepackedKey packed_key(const std::string& folder, const std::string& file, const std::string& onnxruntime);

// Cache of packed weights, one entry per graph.
class PrepackedWeights {
 public:
  explicit PrepackedWeights(std::string folder = cache_folder(kPrepackedFolder), double limit = default_limit());

  const FolderCache& cache() const { return cache_; }
  // Pack the weights of a graph and store them. Throws FileError, Error(kEngine), or the errors of `save`.
  void store(const PrepackedKey& key, const std::string& graph, const SaveGraph& save) const;
  // Open a graph with its packed weights if they are stored; return whether they are. Throws the errors of `store`.
  bool open(const PrepackedKey& key, const std::string& graph, const OpenGraph& open_graph, bool verify) const;

 private:
  Json extract_packed(const std::string& saved, const std::string& part) const;
  std::string write_buffers(const std::vector<std::string_view>& buffers, const std::string& part) const;
  bool link_equal_file(const std::string& name, const std::string& part) const;

  FolderCache cache_;
};

// Return the files next to a graph whose names occur in it: its weights, and normally no other files. Empty for a graph that
// cannot be read.
std::vector<std::string> weights_of(const std::string& graph);

// Open a graph of the bundle in `folder` with its packed weights mapped; its weights are located relative to kRoot. Return
// whether `open_graph` was used. verify: check the mapped files against their hashes.
//
// Return false with a warning if the weights cannot be stored or ONNX Runtime rejects them; without a warning for small
// graphs, folders without hashes (a bundle under construction), and a limit of 0. Throws Error(kBundle) for broken hashes.
bool open_with_prepacked(const std::string& folder, const std::string& file, const std::string& onnxruntime, bool verify,
                         const SaveGraph& save, const OpenGraph& open_graph);

}  // namespace spc
