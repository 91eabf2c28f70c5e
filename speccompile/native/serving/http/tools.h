// Tool calls: the functions of a request, the call format of a model, and the calls in an answer (serving/http/tools.py).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "structured_outputs.h"
#include "tables.h"

namespace spc::http {

// Tools of a request. functions: those that may be called; declared: all of them, for the template. is_forced: whether a call is
// required; is_parallel: whether several calls are allowed.
struct Tools {
  // arguments: as JSON.
  struct Call {
    std::string name, arguments;
    Json to_json() const;
  };

  // Return the tools of a request's checked fields, or none if none may be called. Throws RequestError for invalid ones.
  static std::optional<Tools> of(const Json& fields, const Bundle& bundle);
  // Return the constraint that forces a tool call, of at most `most` bytes, or null when the model may choose. Throws RequestError if the bundle takes no
  // constraints.
  SharedConstraint constraint(const Bundle& bundle, int64_t most) const;
  // Return the text of an answer and its calls. If a call has another format or an unknown function, return all as text.
  std::pair<std::string, std::vector<Call>> read(const std::string& text) const;

  const ToolCallFormat* format;
  Json::List functions, declared;
  bool is_forced, is_parallel;

 private:
  std::string grammar(const Bundle& bundle) const;
  std::optional<Call> call_of(const Json& value) const;
};

}  // namespace spc::http
