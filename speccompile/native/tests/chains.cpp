// Chains of operators: the bits of their steps as nodes, with one thread and with several, and errors where steps do not fit.
#include "operator_nodes.h"

namespace {

using namespace speccompile;

constexpr const char* kSteps = "SkipRmsNorm 0 1 2\nLinearInt8 10 3 4 5\nRotaryHeads 12 12 12 6 7\nLinearFloat32 13 8 9\nGatedSilu 16 16";

// The steps above as nodes. What they read of each other stands for itself.
std::vector<Node> one_by_one(Place place) {
  return {rows("SkipRmsNorm", {{2, 9, 70}, {2, 9, 70}, {70}})(place), linear("LinearInt8", 9, 70, 94)(place), heads("RotaryHeads", 8)(place),
          linear("LinearFloat32", 9, 60, 1603)(place), rows("GatedSilu", {{2, 9, 1603}, {2, 9, 1603}})(place)};
}

Node chain(Place place) {
  Node whole{"Chain", {{{"inputs", 10}}, {}, {}, {{"steps", kSteps}, {"results", "11 14 17"}}}, {}, {}};
  const std::vector<Node> nodes = one_by_one(place);
  for (const auto& [number, first] : {std::pair<size_t, size_t>{0, 0}, {1, 1}, {2, 3}, {3, 1}})
    for (size_t i = first; i < nodes[number].inputs.size(); ++i) whole.add(nodes[number].inputs[i], nodes[number].is_constant[i]);
  for (size_t number = 0; number < nodes.size(); ++number) {
    for (const auto& [name, value] : nodes[number].info.integers) whole.info.integers[name + "_" + std::to_string(number)] = value;
    for (const auto& [name, value] : nodes[number].info.floats) whole.info.floats[name + "_" + std::to_string(number)] = value;
  }
  return whole;
}

// A chain gives the bits that its steps give as nodes.
void check_chain() {
  std::vector<Node> nodes = one_by_one(Place::kEnd);
  std::vector<std::vector<OrtValue>> given;
  std::string message;
  for (size_t number = 0; number < nodes.size(); ++number) {
    for (size_t i = 0; number && i < (number == 2 ? 3 : number == 4 ? 2 : 1); ++i) nodes[number].inputs[i] = given.back()[0];
    given.push_back(run(nodes[number], Place::kEnd, 1, 0, &message));
    CHECK(message.empty(), "%s: %s", nodes[number].name.c_str(), message.c_str());
  }
  Node whole = chain(Place::kEnd);
  const std::vector<OrtValue> found = run(whole, Place::kEnd, 1, 0, &message);
  CHECK(message.empty() && found.size() == 3, "%s", message.c_str());
  const OrtValue* const expected[] = {&given[0][1], &given[2][1], &given[4][0]};
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].shape == expected[i]->shape, "output %zu", i);
    for (int64_t k = 0; k < found[i].count(); ++k) CHECK(same(found[i].data<float>()[k], expected[i]->data<float>()[k]), "output %zu", i);
  }
}

void check_refusals() {
  const auto with = [](const char* name, const char* text) { return [=](Node& node) { node.info.texts[name] = text; }; };
  check_refused(chain, with("steps", "RmsNorm 0"), "Chain: RmsNorm: received 1 inputs, expected 2");
  check_refused(chain, with("steps", "RmsNorm 0 10"), "Chain: RmsNorm: received the number 10, expected less than 10");
  check_refused(chain, with("steps", "RmsNorm 0 -1"), "Chain: RmsNorm: ");
  check_refused(chain, with("steps", "RmsNorm 0 two"), "Chain: RmsNorm: expected numbers");
  check_refused(chain, with("steps", "Chain 0 1"), "received the step \"Chain\", expected an operator of this library");
  check_refused(chain, with("steps", "RotaryTables 0 1\nRmsNorm 0 2"), "the attribute scale_0 is missing");
  const auto logarithm = [&](Node& node) { with("steps", "SkipRmsNorm 0 1 2\nLog 3")(node), with("results", "12")(node); };
  check_refused(chain, logarithm, "Log: received the type 2 as input 0, expected 1");
  check_refused(chain, with("steps", "Softplus 0\nEmbedFloat32 10 8"), "input 0 is of another type");
  check_refused(chain, with("steps", "Softplus 0\nLinearFloat32 0 10 9"), "the weight is computed, expected a constant");
  check_refused(chain, with("steps", "Softplus 0\nLinearFloat32 0 3 9"), "LinearFloat32: received the type 2 as input 1, expected 1");
  check_refused(chain, with("results", "11 11"), "Chain: results: received the number 11, expected floats that a step gives, each once");
  check_refused(chain, with("results", "9"), "Chain: results: received the number 9, expected floats");
  check_refused(chain, [](Node& node) { node.info.texts.erase("steps"); }, "the attribute steps is missing");
  check_refused(chain, [](Node& node) { node.info.integers["inputs"] = 0; }, "received 0 inputs");
  check_refused(chain, [](Node& node) { node.info.integers.erase("columns_1"); }, "the attribute columns_1 is missing");
  check_refused(chain, [](Node& node) { replace(node, 6, {2, 9, 3}); }, "a table of angles: received the shape [2, 9, 3]");
}

}  // namespace

int main() {
  check_threads(chain);
  check_chain();
  check_refusals();
  return 0;
}
