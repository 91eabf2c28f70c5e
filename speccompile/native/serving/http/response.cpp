#include "response.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <tuple>

#include "../../entropy.h"
#include "errors.h"

namespace spc::http {
namespace {

constexpr double kLeastLogprob = -9999.0;  // OpenAI's value for minus infinity, which JSON cannot express

std::string fresh_id(const char* kind) {
  char digits[33];
  for (int part = 0; part < 4; ++part) std::snprintf(digits + 8 * part, 9, "%08x", random_bits());
  return std::string(kind) + "-" + digits;
}

// Return the finish reason in OpenAI's words, which have none for a full context.
std::string reason_of(const FinishedSequence& sequence) {
  return sequence.finish_reason == finish::kCapacity ? finish::kLength : sequence.finish_reason;
}

void check_finished(const FinishedSequence& sequence) {
  if (sequence.finish_reason == finish::kCancelled || sequence.finish_reason == finish::kTimeout)
    throw cancelled_error(sequence.finish_reason, sequence.token_ids.size());
}

// Return a message whose tool calls have the numbers that a stream's have.
Json with_numbered_calls(Json::Object message) {
  Json found(std::move(message));
  const Json* const calls = found.find("tool_calls");
  if (!calls) return found;
  Json::List numbered;
  for (const Json& call : calls->list()) {
    Json each = Json::Object{{"index", static_cast<int64_t>(numbered.size())}};
    for (const auto& [name, value] : call.object()) each.set(name, value);
    numbered.push_back(each);
  }
  found.set("tool_calls", numbered);
  return found;
}

}  // namespace

ResponseBuilder::ResponseBuilder(const ParsedRequest& asked, const std::string& model, const Manifest& manifest, const TokenTexts& texts)
    : asked_(asked),
      texts_(texts),
      drafts_(manifest.tokens),
      created_(static_cast<int64_t>(std::time(nullptr))),
      model_(model),
      id_(fresh_id(asked.is_chat ? "chatcmpl" : "cmpl")) {
  for (const TokenIds& prompt : asked.prompts) prompt_tokens_ += static_cast<int64_t>(prompt.size());
  for (size_t index = 0; asked.drafts && index < asked.choices(); ++index) spans_.emplace_back(texts.tokenizer(), asked.prompt_of(index));
  if (!asked.logprobs || asked.is_chat) return;
  for (size_t index = 0; index < asked.choices(); ++index) offsets_.emplace_back(texts, asked.prompt_of(index), characters(asked.echo_of(index)));
}

Json ResponseBuilder::full(const Finished& sequences) {
  for (const auto& each : sequences) check_finished(*each);
  Json::List choices;
  for (size_t index = 0; index < sequences.size(); ++index) choices.push_back(choice(index, *sequences[index]));
  Json found = head(asked_.is_chat ? "chat.completion" : "text_completion");
  found.set("choices", choices);
  add_ending(found, sequences);
  if (asked_.token_ids) found.set("prompt_token_ids", list_of(asked_.prompts[0]));
  return found;
}

std::vector<Json> ResponseBuilder::first_chunks() {
  std::vector<Json> found;
  for (size_t index = 0; index < asked_.choices(); ++index) {
    if (asked_.is_chat)
      found.push_back(chunk(index, {{"delta", Json::Object{{"role", "assistant"}, {"content", ""}}}}));
    else if (!asked_.echo.empty())
      found.push_back(chunk(index, {{"text", asked_.echo_of(index)}}));
  }
  if (asked_.token_ids && !found.empty()) found[0].set("prompt_token_ids", list_of(asked_.prompts[0]));
  return found;
}

std::vector<Json> ResponseBuilder::chunks(size_t choice, const OutputDelta& delta) {
  new_tokens_ += static_cast<int64_t>(delta.token_ids.size());
  std::vector<Json> found;
  const bool says_tokens = asked_.logprobs || asked_.token_ids || asked_.drafts;  // also for sequences without text yet
  if (!delta.text.empty() || (!delta.token_ids.empty() && says_tokens)) found.push_back(delta_chunk(choice, delta));
  if (!delta.finished) return found;
  check_finished(*delta.finished);
  auto [content, reason] = message(*delta.finished);
  if (asked_.tools) found.push_back(chunk(choice, {{"delta", with_numbered_calls(std::move(content))}}));
  found.push_back(chunk(choice, {asked_.is_chat ? Json::Member("delta", Json::Object{}) : Json::Member("text", ""), {"finish_reason", reason}}));
  return found;
}

std::vector<Json> ResponseBuilder::last_chunks(const Finished& sequences) {
  if (!asked_.usage) return {};
  Json found = head(chunk_object());
  found.set("choices", Json::List());
  add_ending(found, sequences);
  return {found};
}

Json ResponseBuilder::head(const char* object) const {
  return Json::Object{{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
}

Json ResponseBuilder::chunk(size_t choice, Json::Object parts) const {
  Json made = Json::Object{{"index", static_cast<int64_t>(choice)}, {"logprobs", Json()}, {"finish_reason", Json()}};
  for (auto& [name, value] : parts) made.set(name, std::move(value));
  Json found = head(chunk_object());
  found.set("choices", Json::List{made});
  if (asked_.usage) found.set("usage", asked_.continuous_usage ? usage(prompt_tokens_, new_tokens_) : Json());
  return found;
}

Json ResponseBuilder::delta_chunk(size_t choice, const OutputDelta& delta) {
  const std::string shown = asked_.tools ? "" : delta.text;  // the text may become a tool call, which is known only at its end
  Json::Object parts;
  parts.push_back(asked_.is_chat ? Json::Member("delta", Json::Object{{"content", shown}}) : Json::Member("text", shown));
  parts.emplace_back("logprobs", logprobs(choice, delta.token_ids, delta.logprobs, delta.top_logprobs, delta.finished.get()));
  if (asked_.token_ids) parts.emplace_back("token_ids", list_of(delta.token_ids));
  if (asked_.drafts) parts.emplace_back("drafts", spans_[choice].read(delta, shown));
  return chunk(choice, std::move(parts));
}

Json ResponseBuilder::choice(size_t index, const FinishedSequence& sequence) {
  auto [content, reason] = message(sequence);
  Json found = Json::Object{{"index", static_cast<int64_t>(index)}, {"finish_reason", reason}};
  found.set("logprobs", logprobs(index, sequence.token_ids, sequence.logprobs, sequence.top_logprobs, &sequence));
  if (asked_.token_ids) found.set("token_ids", list_of(sequence.token_ids));
  if (!asked_.is_chat) {
    found.set("text", asked_.echo_of(index) + sequence.text);
    return found;
  }
  Json reply = Json::Object{{"role", "assistant"}, {"refusal", Json()}};
  for (auto& [name, value] : content) reply.set(name, std::move(value));
  found.set("message", std::move(reply));
  return found;
}

std::pair<Json::Object, std::string> ResponseBuilder::message(const FinishedSequence& sequence) const {
  std::vector<Tools::Call> calls;
  std::string text = sequence.text;  // before the calls
  if (asked_.tools) std::tie(text, calls) = asked_.tools->read(sequence.text);
  if (calls.empty()) return {{{"content", sequence.text}}, reason_of(sequence)};
  Json::List written;
  for (const Tools::Call& call : calls) written.push_back(call.to_json());
  return {{{"content", text.empty() ? Json() : Json(text)}, {"tool_calls", written}}, "tool_calls"};
}

// The usage and, for a single sequence, its metrics.
void ResponseBuilder::add_ending(Json& to, const Finished& sequences) const {
  to.set("usage", final_usage(sequences, asked_.sequences));
  if (sequences.size() == 1) to.set("metrics", metrics(*sequences[0], drafts_));
}

Json ResponseBuilder::logprobs(size_t choice, const TokenIds& tokens, const std::vector<double>& logprobs, const std::vector<BestTokens>& best,
                               const FinishedSequence* finished) {
  if (!asked_.logprobs) return {};
  if (asked_.is_chat) {
    Json::List content;
    for (size_t place = 0; place < tokens.size(); ++place) {
      Json::List tops;
      if (place < best.size())
        for (const auto& [token, logprob] : best[place]) tops.push_back(entry(token, logprob));
      content.push_back(entry(tokens[place], logprobs[place]));
      content.back().set("top_logprobs", tops);
    }
    return Json::Object{{"content", content}, {"refusal", Json()}};
  }
  Json found = columns(tokens, logprobs, best);
  std::optional<int64_t> most;
  if (finished) most = characters(asked_.echo_of(choice)) + characters(finished->text);
  found.set("text_offset", list_of(offsets_[choice].take(tokens, most)));
  return found;
}

Json ResponseBuilder::entry(int64_t token, double logprob) const {
  const TokenText& written = texts_.of(token);
  return Json::Object{{"token", written.text}, {"logprob", std::max(logprob, kLeastLogprob)}, {"bytes", written.bytes ? list_of(*written.bytes) : Json()}};
}

// The log-probabilities in the form of /v1/completions, without the offsets.
Json ResponseBuilder::columns(const TokenIds& tokens, const std::vector<double>& logprobs, const std::vector<BestTokens>& best) const {
  Json::List texts, values, tops;
  for (size_t place = 0; place < tokens.size(); ++place) {
    texts.emplace_back(texts_.of(tokens[place]).text);
    values.emplace_back(std::max(logprobs[place], kLeastLogprob));
    Json top{Json::Object{}};
    if (place < best.size())
      for (const auto& [token, logprob] : best[place]) top.set(texts_.of(token).text, std::max(logprob, kLeastLogprob));
    tops.push_back(std::move(top));
  }
  return Json::Object{{"tokens", texts}, {"token_logprobs", values}, {"top_logprobs", *asked_.logprobs ? Json(tops) : Json()}};
}

}  // namespace spc::http
