#include "answers.h"

#include <chrono>

#include "../json.h"
#include "../runtime/documented.h"

namespace triton {

namespace {

uint64_t now() {
  const auto passed = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count());
}

// One row of a generation: what it has that its client was not sent.
struct Row {
  Asked* asked;
  std::string text;
  std::vector<int64_t> ids;
  size_t tokens = 0;

  // Returns whether the round added tokens.
  bool take(spc_session* session, size_t row) {
    const int64_t* added = nullptr;
    const char* piece = nullptr;
    size_t count = 0, size = 0;
    speccompile::check(spc_session_new_tokens(session, row, &added, &count));
    speccompile::check(spc_session_new_text(session, row, &piece, &size));
    ids.insert(ids.end(), added, added + count);
    text.append(piece, size);
    tokens += count;
    return count;
  }
  std::vector<Output> outputs() {
    std::vector<Output> made{Output::text("text_output", text), Output::ids("output_ids", ids)};
    text.clear();
    ids.clear();
    return made;
  }
};

// Sends a row its last response, if it has ended.
bool finish(Row& row, spc_session* session, size_t number) {
  spc_result* made = nullptr;
  speccompile::check(spc_session_result(session, number, &made));
  const speccompile::Result result(made);
  const spc::Json generation = spc::Json::parse(result.json());
  const std::string& reason = generation["finish_reason"].text();
  if (reason.empty()) return false;
  std::vector<Output> outputs = row.outputs();
  outputs.push_back(Output::text("finish_reason", reason));
  outputs.push_back(Output::count_of("num_input_tokens", static_cast<size_t>(generation["prompt_tokens"].integer())));
  outputs.push_back(Output::count_of("num_output_tokens", generation["token_ids"].list().size()));
  outputs.push_back(Output::text("generation", spc::documented_fields(generation).dump()));
  row.asked->request->send(outputs, true);
  return true;
}

// Send what a round has added to a row.
void advance(Row& row, Instance& instance, size_t number, bool going) {
  Request& request = *row.asked->request;
  const bool added = row.take(instance.session.get(), number);
  if ((!going || !added) && finish(row, instance.session.get(), number)) return;
  if (request.cancelled()) {
    log(TRITONSERVER_LOG_INFO, "a request was cancelled after " + std::to_string(row.tokens) + " tokens");
    const Refused error(TRITONSERVER_ERROR_CANCELLED, "the request was cancelled", "");
    request.fail(std::make_exception_ptr(error));
  } else if (row.asked->stream && (!row.text.empty() || (!instance.model.has_text && added))) {
    request.send(row.outputs(), false);
  }
}

// A generation ends with its last row, or when all its requests are cancelled.
void run(Instance& instance, const std::vector<Asked*>& group) {
  std::vector<Row> rows;
  for (Asked* asked : group) rows.push_back({asked, "", {}});
  speccompile::check(spc_session_start(instance.session.get(), generation(group).get()));
  for (int done = 0; !done;) {
    speccompile::check(spc_session_step(instance.session.get(), &done));
    bool waiting = false;
    for (size_t number = 0; number < rows.size(); ++number) {
      Request& request = *rows[number].asked->request;
      if (request.answered()) continue;
      try {
        advance(rows[number], instance, number, !done);
      } catch (...) {  // of this client alone
        request.fail(std::current_exception());
      }
      waiting = waiting || !request.answered();
    }
    if (!waiting) return;
  }
}

void run_and_report(Instance& instance, const std::vector<Asked*>& group, uint64_t start) {
  const uint64_t computing = now();
  try {
    run(instance, group);
  } catch (...) {
    for (Asked* asked : group) asked->request->fail(std::current_exception());
  }
  const uint64_t end = now();
  for (Asked* asked : group)
    ignore(TRITONBACKEND_ModelInstanceReportStatistics(instance.handle, asked->request->get(), asked->request->succeeded(), start,
                                                       computing, end, end));
  ignore(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance.handle, group.size(), start, computing, end, end));
}

// Remove the request at the front of `waiting`, and those that can run in its batch.
std::vector<Asked*> take_group(std::vector<Asked*>& waiting, size_t most) {
  std::vector<Asked*> group, left;
  for (Asked* asked : waiting) {
    const bool beside = group.size() < most && (group.empty() || asked->shared == group.front()->shared);
    (beside ? group : left).push_back(asked);
  }
  waiting = std::move(left);
  return group;
}

}  // namespace

void answer(Instance& instance, TRITONBACKEND_Request** requests, size_t count) {
  const uint64_t start = now();
  std::vector<Asked> all(count);
  for (size_t index = 0; index < count; ++index) all[index].request = std::make_unique<Request>(requests[index]);
  std::vector<Asked*> waiting;
  for (Asked& asked : all) {
    try {
      read(asked);
      // This runs nothing: what it refuses, it refuses alone.
      speccompile::check(spc_session_start(instance.session.get(), generation({&asked}).get()));
      waiting.push_back(&asked);
    } catch (...) {
      asked.request->fail(std::current_exception());
      ignore(TRITONBACKEND_ModelInstanceReportStatistics(instance.handle, asked.request->get(), false, start, start, now(), now()));
    }
  }
  while (!waiting.empty()) run_and_report(instance, take_group(waiting, instance.model.batch_size), start);
}

}  // namespace triton
