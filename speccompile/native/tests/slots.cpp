// Runs operations on batch slots, for tests/native/slot_operations.py to compare with Python's. Reads one JSON object a line:
//
//   {"open": folder, "onnxruntime": library, "widths": [5, 1, ..]}   windows of adaptive rounds, in turn
//   {"admit": slot, "prompt": [token, ..], "new_tokens": 20, "speculative": true, "adaptive": false, "reuse": 0, "sampling": {..}}
//   {"prefill": slot, "most": tokens or null}    {"decode": null}    {"copy": [source, slot]}    {"release": slot}
//
// and answers each operation with what it returned, the slots, digests of the buffers and what the policy was told; or with
// {"refused": message}.
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../bundle/blake3.h"
#include "../errors.h"
#include "../operators/float_mode.h"
#include "../runtime/bundle.h"
#include "../runtime/decode_loop.h"
#include "recorded_policy.h"

namespace spc {
namespace {

class Slots {
 public:
  explicit Slots(const Json& asked)
      : bundle_(asked["open"].text(), options(asked)),
        engine_(bundle_.program().open()),
        loop_(*engine_, bundle_.manifest(), bundle_.entry().graphs, false) {
    auto policy = std::make_unique<RecordedPolicy>(asked["widths"]);
    policy_ = policy.get();
    loop_.drafting().policy = std::move(policy);
    loop_.drafting().set_proposer(bundle_.proposer());
    loop_.start();
  }

  Json run(const Json& asked) {
    Json returned;
    try {
      returned = operate(asked);
    } catch (const Error& error) {
      return Json::Object{{"refused", error.message}};
    }
    Json::List slots;
    for (int64_t slot = 0; slot < bundle_.manifest().batch_size; ++slot) slots.push_back(state(slot));
    const Json found = Json::Object{{"returned", returned}, {"slots", slots}, {"buffers", digests()}, {"policy", policy_->calls}};
    policy_->calls.clear();
    return found;
  }

 private:
  static OpenOptions options(const Json& asked) {
    OpenOptions found;
    found.onnxruntime = asked["onnxruntime"].text();
    found.threads = 1;
    return found;
  }

  Json operate(const Json& asked) {
    const auto& [name, value] = asked.object().front();
    if (name == "admit") return admit(value.integer(), asked);
    if (name == "prefill")
      return loop_.prefill(value.integer(), asked["most"].is_null() ? std::nullopt : std::optional<int64_t>(asked["most"].integer()));
    if (name == "release") {
      const Committed left = loop_.release(value.integer());
      return list({list_of(left.tokens), left.drafter_length});
    }
    if (name == "copy")
      loop_.copy(value.list().at(0).integer(), value.list().at(1).integer());
    else
      loop_.decode();
    return {};
  }

  Json admit(int64_t slot, const Json& asked) {
    const Manifest& manifest = bundle_.manifest();
    TokenIds prompt;
    for (const Json& token : asked["prompt"].list()) prompt.push_back(token.integer());
    Options options;
    options.max_new_tokens = asked["new_tokens"].integer();
    auto row = std::make_unique<SequenceState>(prompt, options, sampling(asked["sampling"]), manifest.max_length, manifest.eos_token_ids,
                                               nullptr, std::vector<std::string>());
    const int64_t read = loop_.admit(slot, *row, asked["speculative"].boolean(), asked["adaptive"].boolean(), asked["reuse"].integer());
    rows_[slot] = std::move(row);  // the slot keeps the one that it has where this one is refused
    return read;
  }

  static SamplingParams sampling(const Json& asked) {
    SamplingParams found;
    for (const SamplingOption& option : kSamplingOptions) {
      const Json& value = asked[option.name];
      if (value.is_null()) continue;
      if (option.number) found.*option.number = value.number();
      if (option.count) found.*option.count = value.integer();
      if (option.kind == SamplingKind::kSeed) found.seed = static_cast<uint64_t>(value.integer());
    }
    for (const auto& [token, bias] : asked[kLogitBias].object()) found.logit_bias.emplace_back(std::stoll(token), bias.number());
    return found;
  }

  Json state(int64_t index) const {
    const Slot& slot = loop_.slot(index);
    return Json::Object{{"committed", slot.committed_length},
                        {"drafter", slot.drafter_length},
                        {"is_prefilled", loop_.is_prefilled(index)},
                        {"has_drafts", slot.has_drafts},
                        {"tokens", slot.sequence ? list_of(slot.sequence->token_ids) : Json()},
                        {"finish_reason", slot.sequence ? Json(slot.sequence->finish_reason) : Json()}};
  }

  // Return the digests of every buffer of one shape: of each slot's line, or of the whole if all slots share it.
  Json digests() {
    std::map<std::string, Json> found;
    for (const Graph& graph : bundle_.entry().graphs)
      for (const std::vector<Tensor>* const tensors : {&graph.inputs, &graph.outputs})
        for (const Tensor& tensor : *tensors)
          if (has_one_shape(tensor)) found[tensor.buffer] = digest(tensor);
    return Json::Object(found.begin(), found.end());
  }

  static bool has_one_shape(const Tensor& tensor) {
    const auto varies = [](const Dimension& each) { return !each.width.empty(); };
    return !is_scratch(tensor) && std::none_of(tensor.shape.begin(), tensor.shape.end(), varies);
  }

  Json digest(const Tensor& tensor) {
    const Array values = engine_->host_view(tensor.buffer, tensor.concrete_shape({}));
    const bool is_shared = tensor.buffer.rfind(kPersistentPrefix, 0) == 0;
    const size_t lines = is_shared ? 1 : static_cast<size_t>(values.shape.front()), size = values.bytes() / lines;
    Json::List digests;
    for (size_t line = 0; line < lines; ++line)
      digests.push_back(hex(blake3(std::string_view(static_cast<const char*>(values.data) + line * size, size))));
    return digests;
  }

  const Bundle bundle_;
  const std::unique_ptr<Engine> engine_;
  DecodeLoop loop_;
  RecordedPolicy* policy_;
  std::map<int64_t, std::unique_ptr<SequenceState>> rows_;
};

}  // namespace
}  // namespace spc

int main() {
  const speccompile::FloatMode mode;
  std::string line;
  std::getline(std::cin, line);
  spc::Slots slots(spc::Json::parse(line));
  while (std::getline(std::cin, line)) std::cout << slots.run(spc::Json::parse(line)).dump() << std::endl;
  return 0;
}
