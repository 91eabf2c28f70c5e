#include "bench_runs.h"

#include <algorithm>
#include <utility>

#include "../errors.h"
#include "../progress.h"
#include "../runtime/session.h"
#include "bench_sources.h"

namespace spc::cli {
namespace {

// Return a conversation in lines: a turn, its answer, .., the last turn.
std::string in_lines(const Question& question, const std::vector<std::string>& answers) {
  std::string text;
  for (size_t turn = 0; turn < answers.size(); ++turn)
    text += std::get<std::string>(question.turns[turn]) + "\n" + answers[turn] + "\n";
  return text + std::get<std::string>(question.turns[answers.size()]);
}

// The same as messages of a chat template.
Json::List in_messages(const Question& question, const std::vector<std::string>& answers) {
  Json::List messages;
  const auto add = [&](const char* role, const std::string& text) { messages.push_back(Json::Object{{"role", role}, {"content", text}}); };
  for (size_t turn = 0; turn < answers.size(); ++turn) {
    add("user", std::get<std::string>(question.turns[turn]));
    add("assistant", answers[turn]);
  }
  add("user", std::get<std::string>(question.turns[answers.size()]));
  return messages;
}

class Runs {
 public:
  Runs(const std::shared_ptr<const Bundle>& bundle, const Request& options, int64_t longest)
      : bundle_(bundle), session_(bundle), sources_(bundle, session_), options_(options), longest_(longest) {}

  // Throws Error(kPrompt) where a turn leaves no room for its answer, or may not: answers count as long as can be.
  void check(const Question& question) {
    if (sources_.takes(question)) return sources_.check(question);
    const int64_t most = bundle_->manifest().max_length;
    for (size_t turn = 0; turn < question.turns.size(); ++turn) {
      const auto asked = static_cast<int64_t>(token_ids(question, std::vector<std::string>(turn)).size());
      const int64_t needed = asked + static_cast<int64_t>(turn) * longest_;
      const std::string before = turn ? " and the answers before turn " + std::to_string(turn + 1) + " may have" : " has";
      if (needed >= most)
        throw Error(Kind::kPrompt,
                    "the prompt" + before + " " + std::to_string(needed) +
                        " tokens, which leaves no room in this bundle's capacity of " + std::to_string(most),
                    "shorten it, ask for fewer new tokens, or build the bundle with a larger cache.max_length");
    }
  }

  Answers answers(const Question& question, int64_t number, bool is_autoregressive) {
    session_.forget_sources();
    session_.kept().reset();  // a drafter that learns would have seen this very answer in the repeat before
    Answers found;
    std::vector<std::string> said;
    for (size_t turn = 0; turn < question.turns.size(); ++turn) {
      Request request = options_;
      request.set(Request::kAll, "autoregressive", Value::of(uint64_t{is_autoregressive}));
      try {
        if (sources_.takes(question))
          sources_.give(question, request);
        else
          request.prompts = {token_ids(question, said)};
      } catch (const Error& error) {  // tokens of an answer, read as text, may be more
        if (error.kind != Kind::kPrompt) throw;
        throw Error(error.kind,
                    "prompt " + std::to_string(number) + ", turn " + std::to_string(turn + 1) + ": " + error.message,
                    error.hint);
      }
      session_.start(request);
      while (session_.step()) continue;
      found.emplace_back(session_.result(0));
      said.push_back(found.back().text);
    }
    return found;
  }

 private:
  // The prompt of the turn that follows these answers.
  TokenIds token_ids(const Question& question, const std::vector<std::string>& answers) const {
    if (!question.category) return bundle_->token_ids(question.turns[0], false);
    if (!bundle_->chat().has_templates()) return bundle_->token_ids(in_lines(question, answers), false);
    return bundle_->token_ids(bundle_->chat_tokens(in_messages(question, answers)), false);
  }

  const std::shared_ptr<const Bundle> bundle_;
  Session session_;
  QuestionSources sources_;
  const Request options_;
  const int64_t longest_;
};

// Throws for the first question that is refused, and tells of the others.
void check_all(Runs& runs, const std::vector<Question>& questions) {
  std::optional<Error> first;
  std::string others;
  for (size_t i = 0; i < questions.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    try {
      runs.check(questions[i]);
    } catch (const Error& error) {
      if (error.kind != Kind::kPrompt) throw;
      if (first)
        others += (others.empty() ? "; also refused: " : ", ") + number;
      else
        first.emplace(error.kind, "prompt " + number + ": " + error.message, error.hint);
    }
  }
  if (first) throw Error(first->kind, first->message + others, first->hint);
}

std::optional<int64_t> at(const TokenIds& tokens, size_t index) {
  return index < tokens.size() ? std::optional<int64_t>(tokens[index]) : std::nullopt;
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Generation::Generation(const Json& result)
    : result(result),
      text(result["text"].text()),
      prompt_tokens(result["prompt_tokens"].integer()),
      rounds(result["rounds"].integer()),
      seconds(result["seconds"].number()),
      prefill(result["prefill_seconds"].number()),
      first_token(seconds) {
  for (const Json& id : result["token_ids"].list()) token_ids.push_back(id.integer());
  for (const Json& gap : result["round_seconds"].list()) first_token -= gap.number();
}

std::optional<double> Generation::decode_rate() const {
  return rounds ? std::optional<double>(static_cast<double>(count() - 1) / (seconds - prefill)) : std::nullopt;
}

std::optional<Divergence> PromptRuns::difference() const {
  for (size_t repeat = 0; repeat < speculative.size(); ++repeat) {
    for (size_t turn = 0; turn < speculative[repeat].size(); ++turn) {
      const TokenIds &one = speculative[repeat][turn].token_ids, &other = autoregressive[repeat][turn].token_ids;
      if (one == other) continue;
      const size_t shorter = std::min(one.size(), other.size());
      const auto parted =
          std::mismatch(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(shorter), other.begin()).first;
      const auto index = static_cast<size_t>(parted - one.begin());
      return Divergence{number, static_cast<int64_t>(turn) + 1, static_cast<int64_t>(index), at(one, index),
                        at(other, index)};
    }
  }
  return std::nullopt;
}

std::vector<PromptRuns> measure(const std::shared_ptr<const Bundle>& bundle, const std::vector<Question>& questions,
                          const Request& options, int64_t max_new_tokens, int64_t repeats) {
  Runs runs(bundle, options, max_new_tokens);
  check_all(runs, questions);
  std::vector<bool> ways = {true};  // whether autoregressive
  if (bundle->speculative()) ways = {false, true};
  {
    const Step step("warm-up");
    for (const bool way : ways) runs.answers(questions[0], 1, way);
  }
  std::vector<PromptRuns> cases;
  for (size_t i = 0; i < questions.size(); ++i) {
    const auto number = static_cast<int64_t>(i) + 1;
    const Step step("prompt " + std::to_string(number) + " of " + std::to_string(questions.size()));
    PromptRuns& each = cases.emplace_back(PromptRuns{number, {}, {}, questions[i].group()});
    for (int64_t repeat = 0; repeat < repeats; ++repeat) {
      std::vector<bool> order = ways;
      if ((number + repeat) % 2) std::reverse(order.begin(), order.end());
      for (const bool way : order)
        (way ? each.autoregressive : each.speculative).push_back(runs.answers(questions[i], number, way));
    }
  }
  return cases;
}

void add_generations(const Repeats& repeats, size_t most, Generations& to) {
  for (size_t i = 0; i < std::min(most, repeats.size()); ++i)
    for (const Generation& each : repeats[i]) to.push_back(&each);
}

}  // namespace spc::cli
