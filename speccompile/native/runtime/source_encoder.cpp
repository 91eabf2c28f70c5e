#include "source_encoder.h"

#include <algorithm>
#include <utility>

#include "random.h"

namespace spc {
namespace {

constexpr int64_t kExample = 8;  // tokens of an example source
constexpr float kQuiet = -1.0f, kLoud = 1.5f;  // limits of noise: most features lie there

SourcePtr some_text(const Manifest& manifest) {
  TokenIds tokens;
  for (int64_t place = 0; place < std::min(kExample, manifest.source->max_length); ++place) tokens.push_back((7 * place + 3) % manifest.vocabulary_size);
  return source_of(std::move(tokens));
}

SourcePtr noise(const Manifest& manifest) {
  const AudioSection& audio = *manifest.source->audio;
  audio::Features features{audio.mels, audio.frames, std::vector<float>(static_cast<size_t>(audio.mels * audio.frames))};
  Uniforms random(0, 0, Purpose::kNewToken);
  for (float& value : features.values) value = kQuiet + (kLoud - kQuiet) * static_cast<float>(random.raw() >> 40) / static_cast<float>(1 << 24);
  return source_of(std::move(features));
}

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
  const Widths widths = write(slot, source);
  for (const std::string& name : names_) engine_.bind(name, widths, false, Span{slot, slot + 1})();
  held = source.key;
}

// Write what the encoders read, and how many of their rows count: of a sound all. Return the widths of their runs.
Widths SourceEncoder::write(int64_t slot, const Source& source) {
  if (source.is_sound()) {
    const audio::Features& heard = source.features;
    length_[slot] = heard.frames / kFramesPerRow;
    float* const features = engine_.host_view(names::kAudio, {batch_, heard.mels, heard.frames}).floats();
    std::copy(heard.values.begin(), heard.values.end(), features + slot * heard.mels * heard.frames);
    return {};
  }
  const auto size = static_cast<int64_t>(source.tokens.size());
  length_[slot] = size;
  write_tokens(slot, source.tokens);
  std::copy_n(source.tokens.begin(), size, engine_.host_view(names::kSource, {batch_, size}).ints() + slot * size);
  return {{names::kSource, size}};
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

SourcePtr example_source(const Manifest& manifest) { return manifest.source->audio ? noise(manifest) : some_text(manifest); }

void encode_example(Engine& engine, const Manifest& manifest) {
  const std::unique_ptr<SourceEncoder> encoder = SourceEncoder::of(engine, manifest);
  if (!encoder) return;
  const SourcePtr example = example_source(manifest);
  for (int64_t slot = 0; slot < manifest.batch_size; ++slot) encoder->encode(slot, *example);
}

}  // namespace spc
