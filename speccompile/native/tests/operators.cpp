// The operators, run as ONNX Runtime runs them: the same bits with one thread and with several, and errors where what is
// given does not fit, not reads behind its end.
#include "operator_nodes.h"

namespace {

using namespace speccompile;

// Codes of whole blocks, their scales, and an offset for each of them or a single zero.
void add_codes(Node& node, int64_t depth, int64_t columns, int64_t bits, int64_t block, bool has_offsets, Place place) {
  const Ints by_block = {tiles(columns), depth / block, kTile};
  node.info.integers["block_size"] = block;
  node.info.integers["zero_point"] = bits == 8 ? 128 : 7;
  node.add(bytes({tiles(columns), depth * bits / 32, kTile, 4}, place), true);
  node.add(floats(by_block, place), true);
  node.add(has_offsets ? floats(by_block, place) : tensor<float>({1, 1, 1}, place, [] { return 0.0f; }), true);
}

Make linear_of_codes(int64_t rows, int64_t depth, int64_t columns, int64_t bits, int64_t block, bool has_offsets) {
  return [=](Place place) {
    Node node{"LinearBlocks" + std::to_string(bits), {{{"columns", columns}, {"depth", depth}}, {}, {}}, {}, {}};
    node.add(floats({2, rows, depth}, place));
    add_codes(node, depth, columns, bits, block, has_offsets, place);
    node.add(floats({columns}, place));
    return node;
  };
}

Make embedding_of_codes(int64_t depth, int64_t tokens, int64_t bits, int64_t block, bool has_offsets) {
  return [=](Place place) {
    Node node{"EmbedBlocks" + std::to_string(bits), {{{"columns", tokens}, {"depth", depth}}, {}, {}}, {}, {}};
    node.add(integers({3, tokens / 3}, place, tokens - 1, -1));
    add_codes(node, depth, tokens, bits, block, has_offsets, place);
    return node;
  };
}

Make embedding(const char* name, int64_t depth, int64_t tokens) {
  return [=](Place place) {
    const std::string word = name;
    Node node{word, {{{"columns", tokens}, {"depth", depth}}, {}, {}}, {}, {}};
    node.add(integers({3, tokens / 3}, place, tokens - 1, -1));
    if (word == "EmbedFloat32") node.add(floats({tiles(tokens), depth, kTile}, place), true);
    if (word == "EmbedBFloat16") node.add(words({tiles(tokens), depth, kTile}, place, 0x3f00), true);
    if (word == "EmbedInt8") node.add(bytes({tiles(tokens), (depth + 63) / 64 * 16, kTile, 4}, place), true);
    if (word == "EmbedInt8") node.add(floats({tiles(tokens) * kTile}, place), true);
    return node;
  };
}

Make attend(const char* name) {
  return [=](Place place) {
    const std::string word = name;
    const bool is_latent = word.find("Latent") != std::string::npos;
    Node node{word, {{{"window", 9}}, {{"scale", 0.3f}, {"softcap", 0.0f}}, {}}, {}, {}};
    for (const Ints& shape : {Ints{2, 11, is_latent ? 102 : 60}, Ints{2, 2, 11, 10}, Ints{2, 2, 11, 7}, Ints{2, 2, 30, 10}, Ints{2, 2, 30, 7}})
      node.add(floats(shape, place));
    node.add(integers({2}, place, 30, -13));
    node.add(integers({2, 11}, place, 17, 1));
    node.add(floats({2, 1, 11, 11}, place));
    if (word.find("Sinks") != std::string::npos) node.add(floats({6}, place));
    return node;
  };
}

Make attend_codes(const char* name) {
  return [=](Place place) {
    const std::string word = name;
    Node node{word, {{{"window", 9}}, {{"scale", 0.3f}, {"softcap", 0.0f}}, {}}, {}, {}};
    node.add(floats({2, 11, 60}, place));
    for (const Ints& shape : {Ints{2, 2, 11, 10}, Ints{2, 2, 11, 7}, Ints{2, 2, 30, 10}, Ints{2, 2, 30, 7}}) {
      node.add(bytes(shape, place));
      node.add(floats({shape[0], shape[1], shape[2], 1}, place));
    }
    node.add(integers({2}, place, 30, -13));
    node.add(integers({2, 11}, place, 17, 1));
    node.add(floats({2, 1, 11, 11}, place));
    if (word.find("Sinks") != std::string::npos) node.add(floats({6}, place));
    return node;
  };
}

Node tables(Place place) {
  Node node{"RotaryTables", {{}, {{"scale", 2.0f}}, {}}, {}, {}};
  node.add(integers({2, 9}, place, 0, 100));
  node.add(floats({5}, place));
  return node;
}

// A recurrence of two rows of the batch, four heads over two groups, five tokens: inputs in the order of the operator.
Make states(const char* name) {
  return [=](Place place) {
    const std::string word = name;
    const bool reads = word.rfind("Recur", 0) == 0, has_beta = word.find("Delta") != std::string::npos;
    Node node{word, {{}, {}, {}}, {}, {}};
    if (reads) node.add(floats({2, 2, 5, 10}, place));
    for (const Ints& shape : {Ints{2, 2, 5, 10}, Ints{2, 4, 5, 33}, Ints{2, 4, 5, 1}}) node.add(floats(shape, place));
    if (has_beta) node.add(floats({2, 4, 5, 1}, place));
    node.add(floats({2, 4, 10, 33}, place));
    node.add(integers({2}, place, 0, 3));
    if (!reads) node.add(integers({2}, place, 4, -3));
    return node;
  };
}

Node convolve(Place place) {
  Node node{"Convolve", {{{"silu", 1}}, {}, {}}, {}, {}};
  for (const Ints& shape : {Ints{2, 1, 9, 2000}, Ints{2, 1, 3, 2000}, Ints{4, 2000}, Ints{2000}}) node.add(floats(shape, place));
  return node;
}

Node shift(Place place) {
  Node node{"Shift", {{}, {}, {}}, {}, {}};
  for (const Ints& shape : {Ints{2, 1, 5, 7}, Ints{2, 1, 3, 7}}) node.add(floats(shape, place));
  node.add(integers({2}, place, 0, 3));
  node.add(integers({2}, place, 2, -2));
  return node;
}

void check_linear_and_embedding_refusals() {
  const Make int8 = linear("LinearInt8", 3, 70, 20), int4 = linear("LinearInt4", 3, 70, 20, 32);
  const Make embed = embedding("EmbedInt8", 12, 30);
  check_refused(int8, [](Node& node) { replace(node, 0, {3, 71}); }, "received x [3, 71], expected rows of 70");
  check_refused(int8, [](Node& node) { replace(node, 3, {19}); }, "received a bias [19], expected 20 numbers, or a single zero");
  check_refused(int8, [](Node& node) { replace(node, 2, {20}); }, "the scales: received the shape [20], expected 32 numbers");
  check_refused(int8, [](Node& node) { node.is_constant[1] = false; }, "the weight is computed, expected a constant");
  check_refused(int8, [](Node& node) { node.info.integers["columns"] = 40; }, "the weight: received the shape [2, 32, 16, 4]");
  check_refused(int8, [](Node& node) { node.info.integers.erase("depth"); }, "the attribute depth is missing");
  check_refused(linear("LinearInt8", 1, 131073, 1), [](Node&) {}, "received columns of 131136 numbers, expected at most 131072");
  check_refused(int4, [](Node& node) { node.info.integers["block_size"] = 16; }, "received blocks of 16");
  check_refused(int4, [](Node& node) { replace(node, 4, {20}); }, "the factors: received the shape [20], expected 32 numbers");
  const Make codes = linear_of_codes(3, 96, 20, 4, 32, true), bytes = embedding_of_codes(32, 30, 8, 16, false);
  check_refused(codes, [](Node& node) { node.info.integers["block_size"] = 64; }, "received blocks of 64 codes, expected 16 or 32");
  check_refused(codes, [](Node& node) { node.info.integers["depth"] = 90; }, "expected 16 or 32, and columns of whole ones");
  check_refused(codes, [](Node& node) { node.info.integers["zero_point"] = 16; }, "received the zero point 16, expected 0 to 15");
  check_refused(codes, [](Node& node) { replace(node, 3, {1}); }, "the offsets: received the shape [1], expected 96 numbers");
  check_refused(bytes, [](Node& node) { node.info.integers["zero_point"] = 8; }, "received the zero point 8, expected 128");
  check_refused(bytes, [](Node& node) { replace(node, 2, {31}); }, "the scales: received the shape [31], expected 64 numbers");
  check_refused(embed, [](Node& node) { node.inputs[0].data<int64_t>()[2] = 30; }, "received the token id 30, expected 0 to 29");
  check_refused(embed, [](Node& node) { node.inputs[0].data<int64_t>()[2] = -1; }, "received the token id -1");
}

void check_attention_refusals() {
  check_refused(attend("Attend"), [](Node& node) { node.inputs[5].data<int64_t>()[1] = 31; }, "received the length 31, expected 0 to 30");
  check_refused(attend("Attend"), [](Node& node) { replace(node, 7, {2, 1, 11, 10}); }, "the bias: received the shape [2, 1, 11, 10]");
  check_refused(attend("Attend"), [](Node& node) { replace(node, 4, {2, 2, 29, 7}); }, "the cache of values: received the shape [2, 2, 29, 7]");
  check_refused(attend("AttendSinks"), [](Node& node) { replace(node, 8, {5}); }, "the sinks: received the shape [5]");
  check_refused(attend_codes("AttendInt8"), [](Node& node) { replace(node, 8, {2, 2, 29, 1}); }, "the scales of the cache of values: received the shape [2, 2, 29, 1]");
  check_refused(attend_codes("AttendInt8"), [](Node& node) { replace(node, 2, {2, 2, 11, 2}); }, "the scales of the rows of keys: received the shape [2, 2, 11, 2]");
  check_refused(attend("AttendLatent"), [](Node& node) { replace(node, 0, {2, 11, 100}); }, "the query: received the shape [2, 11, 100]");
  check_refused(heads("RotaryHeads", 8), [](Node& node) { replace(node, 3, {2, 9, 3}); }, "a table of angles: received the shape [2, 9, 3]");
  check_refused(heads("RotaryHeads", 12), [](Node&) {}, "expected an even number of turned columns of a key");
  check_refused(heads("SplitHeads", 0), [](Node& node) { replace(node, 2, {2, 9, 93}); }, "the value: received the shape [2, 9, 93]");
  check_refused(heads("SplitHeads", 0), [](Node& node) { node.info.integers["key_offset"] = -1; }, "heads: expected where");
  check_refused(heads("SplitHeads", 0), [](Node& node) { node.info.integers["groups"] = 0; }, "heads: expected at least one");
  check_refused(attend("Attend"), [](Node& node) { replace(node, 1, {2, 0, 11, 10}); }, "the rows of keys: received the shape [2, 0, 11, 10]");
}

void check_rows_refusals() {
  check_refused(rows("JoinRows", {{2, 3, 5, 7}, {2, 3, 2, 7}}), [](Node& node) { replace(node, 1, {2, 3, 2, 6}); },
                "the other rows: received the shape [2, 3, 2, 6]");
  check_refused(rows("RmsNorm", {{5, 20}, {20}}), [](Node& node) { replace(node, 1, {19}); }, "received a weight [19], expected 20 numbers");
  check_refused(rows("RmsNorm", {{5, 20}, {20}}), [](Node& node) { replace(node, 0, {}); }, "received x [], expected rows of numbers");
  check_refused(rows("LayerNorm", {{5, 20}, {20}, {20}}), [](Node& node) { replace(node, 0, {5, 0}); }, "received x [5, 0]");
  check_refused(rows("GatedGelu", {{5, 803}, {5, 801}}), [](Node& node) { node.info.integers["width"] = 0; }, "a gate: expected columns");
  check_refused(rows("GatedSilu", {{5, 803}, {5, 801}}), [](Node& node) { replace(node, 0, {5, 802}); }, "received a gate [5, 802]");
}

void check_state_refusals() {
  check_refused(states("Recur"), [](Node& node) { replace(node, 0, {2, 3, 5, 10}); }, "the query: received the shape [2, 3, 5, 10]");
  check_refused(states("RecurDelta"), [](Node& node) { replace(node, 4, {2, 4, 4, 1}); }, "the beta: received the shape [2, 4, 4, 1]");
  check_refused(states("Recur"), [](Node& node) { replace(node, 3, {2, 4, 5, 2}); }, "the decay: received the shape [2, 4, 5, 2]");
  check_refused(states("Advance"), [](Node& node) { replace(node, 3, {2, 4, 9, 33}); }, "the state: received the shape [2, 4, 9, 33]");
  check_refused(states("Advance"), [](Node& node) { node.inputs[5].data<int64_t>()[1] = 6; }, "received the count 6, expected 0 to 5");
  check_refused(shift, [](Node& node) { node.inputs[3].data<int64_t>()[1] = -1; }, "received the count -1, expected 0 to 5");
  check_refused(shift, [](Node& node) { replace(node, 1, {2, 1, 3, 6}); }, "the state: received the shape [2, 1, 3, 6]");
  check_refused(convolve, [](Node& node) { replace(node, 3, {1}); }, "the bias: received the shape [1]");
  check_refused(convolve, [](Node& node) { replace(node, 1, {2, 1, 2, 2000}); }, "the state: received the shape [2, 1, 2, 2000]");
}

}  // namespace

int main() {
  // For each format: columns enough that threads share them, with few rows, many, and none.
  for (const int64_t count : {0, 1, 4, 10}) {
    check_threads(linear("LinearFloat32", count, 70, 530));
    check_threads(linear("LinearBFloat16", count, 70, 1030));
    check_threads(linear("LinearInt8", count, 70, 1090));
    for (const int64_t block : {32, 64, 128}) check_threads(linear("LinearInt4", count, 300, 1030, block));
  }
  for (const int64_t bits : {4, 8}) {
    for (const bool has_offsets : {false, true}) {
      for (const int64_t count : {0, 1, 4, 10}) check_threads(linear_of_codes(count, 96, 1030, bits, 32, has_offsets));
      check_threads(linear_of_codes(3, 48, 1030, bits, 16, has_offsets));
      check_threads(embedding_of_codes(48, 45, bits, 16, has_offsets));
    }
  }
  for (const char* name : {"EmbedFloat32", "EmbedBFloat16", "EmbedInt8"}) check_threads(embedding(name, 21, 45));
  for (const char* name : {"Attend", "AttendSinks", "AttendLatent", "AttendLatentSinks"}) check_threads(attend(name));
  for (const char* name : {"AttendInt8", "AttendInt8Sinks"}) check_threads(attend_codes(name));
  check_threads(heads("SplitHeads", 0));
  check_threads(heads("RotaryHeads", 8));
  check_threads(heads("NormRotaryHeads", 10));
  check_threads(tables);
  check_threads(rows("JoinRows", {{2, 3, 5, 7}, {2, 3, 2, 7}}));
  check_threads(rows("RmsNorm", {{3, 20, 800}, {800}}));
  check_threads(rows("SkipRmsNorm", {{3, 20, 800}, {3, 20, 800}, {800}}));
  check_threads(rows("LayerNorm", {{3, 20, 800}, {800}, {800}}));
  check_threads(rows("GatedSilu", {{3, 20, 803}, {3, 20, 801}}));
  check_threads(rows("GatedGelu", {{3, 20, 803}, {3, 20, 801}}));
  check_threads(rows("Softplus", {{3, 20, 801}}));
  check_threads(rows("Log", {{3, 20, 8}}));
  for (const char* name : {"Recur", "RecurDelta", "Advance", "AdvanceDelta"}) check_threads(states(name));
  check_threads(convolve);
  check_threads(shift);
  check_linear_and_embedding_refusals();
  check_attention_refusals();
  check_rows_refusals();
  check_state_refusals();
  return 0;
}
