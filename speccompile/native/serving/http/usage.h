// The objects `usage` and `metrics` of responses (serving/http/usage.py).
#pragma once

#include <memory>
#include <vector>

#include "../scheduler/request.h"

namespace spc::http {

using Finished = std::vector<std::shared_ptr<const FinishedSequence>>;

// Return the usage while an answer comes.
Json usage(int64_t prompt_tokens, int64_t new_tokens);
// Return the usage of all choices of a request, those of the first prompt first. Predictions in it are draft tokens, accepted and
// rejected.
Json final_usage(const Finished& sequences, int64_t each);
// Return the metrics of one sequence under vLLM's names; times in milliseconds. drafts: maximum in a round.
Json metrics(const FinishedSequence& sequence, int64_t drafts);

}  // namespace spc::http
