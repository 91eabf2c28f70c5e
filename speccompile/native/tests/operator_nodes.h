// Nodes of the library with what they are given, and checks of them: the same bits with one thread and with several, and errors.
#pragma once

#include <functional>

#include "fake_ort.h"

extern "C" int speccompile_kernels_use(const char* name);
extern "C" const char* speccompile_kernels_path(int index);

namespace speccompile {

// A node of the library and what it is given.
struct Node {
  std::string name;
  OrtKernelInfo info;
  std::vector<OrtValue> inputs;
  std::vector<bool> is_constant;

  void add(OrtValue value, bool constant = false) {
    inputs.push_back(std::move(value));
    is_constant.push_back(constant);
  }
};

// Runs it on threads of ONNX Runtime's or, where they are more than 0, of operators' own: the outputs, or the error in `message`.
inline std::vector<OrtValue> run(Node& node, Place place, size_t threads, int own, std::string* message) {
  const OrtCustomOp& op = operator_named(node.name, own);
  CHECK(op.GetInputTypeCount(&op) == node.inputs.size() || node.name == "Chain", "%s", node.name.c_str());
  OrtKernelContext context{{}, {}, place, threads};
  node.info.constants.clear();
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    context.inputs.push_back(&node.inputs[i]);
    node.info.constants.push_back(node.is_constant[i] ? &node.inputs[i] : nullptr);
  }
  void* kernel = nullptr;
  std::unique_ptr<OrtStatus> failed(op.CreateKernelV2(&op, &stand_in::api(), &node.info, &kernel));
  if (!failed) {
    failed.reset(op.KernelComputeV2(kernel, &context));
    op.KernelDestroy(kernel);
  }
  message->assign(failed ? failed->message : "");
  return std::move(context.outputs);
}

using Make = std::function<Node(Place)>;

inline void check_threads(const Make& make) {
  std::vector<OrtValue> first;
  for (const Place place : {Place::kStart, Place::kEnd}) {
    Node node = make(place);
    const char* name = node.name.c_str();
    for (int path = 0; speccompile_kernels_path(path); ++path) {
      CHECK(speccompile_kernels_use(speccompile_kernels_path(path)), "%s", speccompile_kernels_path(path));
      for (const auto& [threads, own] : {std::pair<size_t, int>{1, 0}, {4, 0}, {1, 1}, {1, 3}}) {
        std::string message;
        const std::vector<OrtValue> found = run(node, place, threads, own, &message);
        CHECK(message.empty() && !found.empty(), "%s: %s", name, message.c_str());
        if (first.empty()) first = found;
        for (size_t i = 0; i < found.size(); ++i) {
          CHECK(found[i].shape == first[i].shape, "%s", name);
          for (int64_t k = 0; k < found[i].count(); ++k) {
            CHECK(found[i].data<float>()[k] != kUnwritten, "%s", name);
            CHECK(same(found[i].data<float>()[k], first[i].data<float>()[k]), "%s, %s, %zu threads, %d", name,
                  speccompile_kernels_path(path), threads, own);
          }
        }
      }
    }
  }
}

inline void check_refused(const Make& make, const std::function<void(Node&)>& spoil, const char* expected) {
  Node node = make(Place::kEnd);
  spoil(node);
  std::string message;
  run(node, Place::kEnd, 1, 0, &message);
  CHECK(message.find(expected) != std::string::npos, "%s: \"%s\" is not in \"%s\"", node.name.c_str(), expected, message.c_str());
}

inline OrtValue floats(const Ints& shape, Place place) {
  return tensor<float>(shape, place, [random = Random(1)]() mutable { return random.number(); });
}

inline OrtValue bytes(const Ints& shape, Place place, int64_t last = 255) {
  return tensor<uint8_t>(shape, place, [last, random = Random(2)]() mutable { return random.integer(0, last); });
}

// Positive floats of 16 bits, from one on.
inline OrtValue words(const Ints& shape, Place place, int64_t first) {
  return tensor<uint16_t>(shape, place, [first, random = Random(3)]() mutable { return random.integer(first, 0x3fff); });
}

inline OrtValue integers(const Ints& shape, Place place, int64_t first, int64_t step) {
  return tensor<int64_t>(shape, place, [next = first, step]() mutable { return (next += step) - step; });
}

// rows: of x; block: 0 for formats without blocks.
inline Make linear(const char* name, int64_t rows, int64_t depth, int64_t columns, int64_t block = 0) {
  return [=](Place place) {
    const std::string word = name;
    const int64_t across = tiles(columns), all = across * kTile, multiple = block ? block : 64;
    const int64_t filled = (depth + multiple - 1) / multiple * multiple;
    Node node{word, {{{"columns", columns}, {"depth", depth}, {"block_size", block}}, {}, {}}, {}, {}};
    node.add(floats({2, rows, depth}, place));
    if (word == "LinearFloat32") node.add(floats({across, depth, kTile}, place), true);
    if (word == "LinearBFloat16") node.add(words({across, depth, kTile}, place, 0x3f00), true);
    if (word == "LinearInt8") node.add(bytes({across, filled / 4, kTile, 4}, place), true);
    if (word == "LinearInt8") node.add(floats({all}, place), true);
    if (word == "LinearInt4") {
      const Ints by_block = {across, filled / block, kTile};
      node.add(bytes({across, filled / 8, kTile, 4}, place), true);
      node.add(words(by_block, place, 0x2000), true);
      node.add(bytes(by_block, place, 15), true);
      node.add(floats({all}, place), true);
    }
    node.add(floats({columns}, place));
    return node;
  };
}

inline Make heads(const char* name, int64_t turned) {
  return [=](Place place) {
    const std::string word = name;
    Node node{word, {{}, {{"epsilon", 1e-5f}}, {}}, {}, {}};
    node.info.integers = {{"heads", 6}, {"groups", 2}, {"key_width", 10}, {"value_width", 7}, {"query_offset", 0},
                          {"key_offset", 60}, {"value_offset", 80}, {"turned", turned}, {"interleaved", 0}};
    for (int i = 0; i < 3; ++i) node.add(floats({2, 9, 94}, place));
    for (int i = 0; word != "SplitHeads" && i < 2; ++i) node.add(floats({2, 9, turned / 2}, place));
    for (int i = 0; word == "NormRotaryHeads" && i < 2; ++i) node.add(floats({10}, place));
    return node;
  };
}

inline Make rows(const char* name, const std::vector<Ints>& shapes) {
  return [=](Place place) {
    Node node{name, {{{"width", 800}, {"gate_offset", 3}, {"up_offset", 1}}, {{"epsilon", 1e-5f}}, {}}, {}, {}};
    for (const Ints& shape : shapes) node.add(floats(shape, place));
    return node;
  };
}

inline void replace(Node& node, size_t index, const Ints& shape) { node.inputs[index] = floats(shape, Place::kEnd); }

}  // namespace speccompile
