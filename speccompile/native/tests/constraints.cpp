// Follows constraints, for tests/native/test_native_constraints.py to compare with llguidance. Reads one JSON object a line:
// {"tokenizer": path, "vocabulary_size": V, "ends": [id, ..]} opens a tokenizer; {"kind": kind, "text": text, "tokens": [id, ..]}
// reads tokens, and is answered {"steps": [{"end": finish reason, "allowed": [id, ..]}, ..]}, one step before each token and one
// behind the last; a step behind the end has none allowed. {"error": message} answers a constraint that is refused.
#include <iostream>
#include <memory>
#include <string>

#include "../constraints/constraint.h"
#include "../errors.h"
#include "../json.h"

namespace spc {
namespace {

using constraints::Matcher;

struct Opened {
  Manifest manifest;
  std::unique_ptr<constraints::Compiler> compiler;
};

void open(const Json& asked, Opened& opened) {
  opened.manifest.vocabulary_size = asked["vocabulary_size"].integer();
  opened.manifest.eos_token_ids.clear();
  for (const Json& each : asked["ends"].list()) opened.manifest.eos_token_ids.push_back(each.integer());
  Graph graph;
  graph.inputs.emplace_back();
  graph.inputs.back().name = names::kAllowed;
  opened.manifest.graphs = {graph};
  opened.compiler = std::make_unique<constraints::Compiler>(opened.manifest, asked["tokenizer"].text());
}

Json step(Matcher& matcher, int64_t size) {
  const std::string end = matcher.end();
  Json::List allowed;
  if (end.empty()) {
    std::vector<uint8_t> mask(static_cast<size_t>(size));
    matcher.write(mask.data(), 1, nullptr, 0, {-1});
    for (int64_t token = 0; token < size; ++token)
      if (mask[static_cast<size_t>(token)]) allowed.emplace_back(token);
  }
  return Json::Object{{"end", end}, {"allowed", allowed}};
}

Json answer(const Json& asked, Opened& opened) {
  if (asked.find("tokenizer")) {
    open(asked, opened);
    return Json::Object{};
  }
  try {
    Matcher matcher = opened.compiler->compile(asked["kind"].text(), asked["text"])->matcher(opened.manifest.eos_token_ids);
    Json::List steps = {step(matcher, opened.manifest.vocabulary_size)};
    for (const Json& each : asked["tokens"].list()) {
      const int64_t token = each.integer();
      matcher.accept_tokens(&token, 1);
      steps.push_back(step(matcher, opened.manifest.vocabulary_size));
    }
    return Json::Object{{"steps", steps}};
  } catch (const Error& error) {
    return Json::Object{{"error", error.message}};
  }
}

}  // namespace
}  // namespace spc

int main() {
  spc::Opened opened;
  for (std::string line; std::getline(std::cin, line);) std::cout << spc::answer(spc::Json::parse(line), opened).dump() << std::endl;
  return 0;
}
