#include "decoder.h"

#include <algorithm>
#include <utility>

#include "../audio/rules.h"
#include "../constraints/constraint.h"
#include "../errors.h"
#include "../progress.h"
#include "first_times.h"

namespace spc {

namespace {

// Drop the first tokens of a prompt that has more than `most`. Return how many; warn where there are any.
int64_t truncate_left(TokenIds& ids, int64_t most) {
  const auto size = static_cast<int64_t>(ids.size()), count = std::max<int64_t>(0, size - most);
  if (!count) return 0;
  warn("note: the first " + std::to_string(count) + " of " + std::to_string(size) + " prompt tokens are dropped, so that the new ones fit");
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

}  // namespace

Decoder::Decoder(std::shared_ptr<const Bundle> opened)
    : bundle(std::move(opened)),
      engine(bundle->program().open()),
      kept(*engine, bundle->manifest(), bundle->entry(), bundle->tokenizer_hash()),
      adapters(*engine, bundle->entry().graphs),
      loop(*engine, bundle->manifest(), bundle->entry().graphs, bundle->entry().provider != provider::kCpu),
      saved(loop, bundle->manifest(), SessionKey::of(*bundle)),
      prefixes(*bundle, saved, loop),
      times(bundle->times_key()) {
  if (const auto known = measured(bundle->opened().proof, bundle->entry().name, bundle->manifest().depth)) loop.drafting().policy->expect(*known);
  if (bundle->speculative() && !bundle->times_key().is_null()) {
    prepare_rounds(loop, times);
    kept.reset();
  }
  if (needs_proposer(bundle->manifest()) || !gate_config(bundle->manifest()).is_null()) set_proposer({});
}

void Decoder::set_proposer(Proposer proposer) {
  const Manifest& manifest = bundle->manifest();
  if (!needs_proposer(manifest) && gate_config(manifest).is_null()) {
    const Json& kind = manifest.json["plan"]["drafter"]["kind"];
    throw Error(Kind::kUsage,
                "proposer: received one for a bundle of drafter.kind " + (kind.is_text() ? kind.text() : "none") +
                    ", expected none: its graphs draft themselves",
                "build the recipe with drafter.kind or drafter.gate.kind retrieval, or leave the proposer out");
  }
  if (!proposer) proposer = bundle->proposer();
  has_proposer = static_cast<bool>(proposer);
  loop.drafting().set_proposer(std::move(proposer));
}

std::pair<Options, Rows> Decoder::make_sequences(const Request& request, bool side_by_side) const {
  SourcedPrompts sourced = resolve_sources(request, *bundle);
  Request begun = request;
  begun.prompts = std::move(sourced.prompts);
  Options options = check_options(begun, bundle->manifest(), side_by_side);
  Rows rows = sequences_of(begun, sourced.sources, options);
  return {std::move(options), std::move(rows)};
}

Rows Decoder::sequences_of(const Request& request, const std::vector<SourcePtr>& sources, const Options& options) const {
  if (!request.stop.empty()) bundle->require_tokenizer("this bundle has no tokenizer, so no text to stop at", "leave out --stop (stop=..)");
  if (!request.adapters.empty() && request.adapters.rbegin()->first >= request.prompts.size())
    throw Error(Kind::kUsage, "adapter: received one for prompt " + std::to_string(request.adapters.rbegin()->first + 1) + " of " + std::to_string(request.prompts.size()),
                "the first prompt is 0; SPC_ALL is all");
  if (!request.images.empty() && request.images.rbegin()->first >= request.prompts.size())
    throw Error(Kind::kUsage, "images: received a picture for prompt " + std::to_string(request.images.rbegin()->first + 1) + " of " + std::to_string(request.prompts.size()),
                "the first prompt is 0");
  if (options.truncate && !request.images.empty())
    throw Error(Kind::kUsage, "truncate: received 'left' for a prompt with pictures, expected none: no part of one can be dropped",
                "leave truncate out, and shorten the prompt");
  const bool hears = bundle->manifest().source && bundle->manifest().source->audio;
  const std::shared_ptr<const audio::TokenRules> rules = hears && !request.rules ? audio::TokenRules::of(bundle->manifest()) : nullptr;
  if (request.constraint && hears)
    throw Error(Kind::kUsage, "constraint: this bundle's target hears, and has rules of its own", "leave constraint out");
  Rows rows;
  for (size_t number = 0; number < request.prompts.size(); ++number) {
    const auto given = request.images.find(number);
    const bool shows = given != request.images.end();
    images::SeenPrompt seen = bundle->seen(request.prompts[number], shows ? given->second : std::vector<images::GivenPicture>{}, options.chat,
                                           options.truncate ? nullptr : shows ? kShorten : kTruncate);
    TokenIds& ids = seen.ids;
    const int64_t room = bundle->manifest().max_length - std::min(options.max_new_tokens, bundle->manifest().max_length);
    const int64_t dropped = options.truncate ? truncate_left(ids, std::max<int64_t>(1, room)) : 0;
    const auto own = request.adapters.find(number);
    const std::string& adapter = own == request.adapters.end() ? request.adapter : own->second;
    const Adapters::Loaded loaded = adapter.empty() ? Adapters::Loaded{0, ""} : adapters.find(adapter);
    for (int64_t i = 0; i < options.sequences; ++i) {
      rows.emplace_back(ids, options, options.samplings[rows.size()], bundle->manifest().max_length, options.ends, bundle->text(), request.stop);
      if (request.constraint) rows.back().matcher = std::make_shared<constraints::Matcher>(request.constraint->matcher(options.ends));
      if (hears) rows.back().rules = request.rules ? request.rules : std::make_shared<audio::RuleMatcher>(rules);
      rows.back().media = seen.media;
      rows.back().truncated_tokens = dropped;
      if (!sources.empty()) rows.back().source = sources[number];
      rows.back().adapter = loaded.slot;
      rows.back().adapter_key = loaded.key;
    }
  }
  return rows;
}

}  // namespace spc
