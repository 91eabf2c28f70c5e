#include "source_encoder.h"

#include <algorithm>

namespace spc {
namespace {

constexpr int64_t kExample = 8;  // tokens of a source that nobody gave

}  // namespace

std::unique_ptr<SourceEncoder> SourceEncoder::of(Engine& engine, const Manifest& manifest) {
  return manifest.source ? std::make_unique<SourceEncoder>(engine, manifest) : nullptr;
}

SourceEncoder::SourceEncoder(Engine& engine, const Manifest& manifest)
    : engine_(engine),
      batch_(manifest.batch_size),
      length_(engine.host_view(names::kSourceLength, {manifest.batch_size}).ints()),
      held_(static_cast<size_t>(manifest.batch_size)) {
  for (const char* const name : {graph::kEncodeSource, graph::kEncodeDraftSource})
    if (engine.has(name)) names_.emplace_back(name);
  std::fill_n(length_, batch_, 1);  // in a slot without a sequence as well: nothing attends to nothing
  for (const Graph& graph : manifest.graphs)
    if (const Tensor* const tokens = graph.input(names::kSourceTokens)) rows_ = tokens->shape.back().size;
  if (rows_) tokens_ = engine.host_view(names::kSourceTokens, {batch_, rows_}).ints();
}

void SourceEncoder::encode(int64_t slot, const Source& source) {
  std::string& held = held_[static_cast<size_t>(slot)];
  if (held == source.key) return;
  held.clear();  // should the engine fail
  const auto size = static_cast<int64_t>(source.tokens.size());
  length_[slot] = size;
  write_tokens(slot, source.tokens);
  std::copy_n(source.tokens.begin(), size, engine_.host_view(names::kSource, {batch_, size}).ints() + slot * size);
  for (const std::string& name : names_) engine_.bind(name, {{names::kSource, size}}, false, Span{slot, slot + 1})();
  held = source.key;
}

void SourceEncoder::copy(int64_t source, int64_t slot) {
  length_[slot] = length_[source];
  held_[static_cast<size_t>(slot)] = held(source);
  if (tokens_) std::copy_n(tokens_ + source * rows_, rows_, tokens_ + slot * rows_);
}

void SourceEncoder::write_tokens(int64_t slot, const TokenIds& tokens) {
  if (!tokens_) return;
  int64_t* const line = tokens_ + slot * rows_;
  std::fill_n(line, rows_, 0);
  std::copy_n(tokens.begin(), std::min<size_t>(tokens.size(), static_cast<size_t>(rows_)), line);
}

void encode_example(Engine& engine, const Manifest& manifest) {
  const std::unique_ptr<SourceEncoder> encoder = SourceEncoder::of(engine, manifest);
  if (!encoder) return;
  TokenIds tokens;
  for (int64_t place = 0; place < std::min(kExample, manifest.source->max_length); ++place) tokens.push_back((7 * place + 3) % manifest.vocabulary_size);
  for (int64_t slot = 0; slot < manifest.batch_size; ++slot) encoder->encode(slot, *source_of(tokens));
}

}  // namespace spc
