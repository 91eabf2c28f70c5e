// Parsed requests, as options of a generation, in the same way as speccompile/serving/triton/requests.py.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "request.h"
#include "speccompile.hpp"

namespace triton {

// Requests that agree in these may run side by side.
struct Shared {
  int64_t max_new_tokens = 128;
  bool chat = false, logprobs = false, autoregressive = false;
  std::vector<std::string> stop;

  bool operator==(const Shared& other) const {
    return max_new_tokens == other.max_new_tokens && chat == other.chat && logprobs == other.logprobs &&
           autoregressive == other.autoregressive && stop == other.stop;
  }
};

// An option of sampling, for one prompt: whole numbers and others are told apart.
struct Option {
  const char* name;
  std::variant<double, int64_t, uint64_t> value;
};

struct Asked {
  std::unique_ptr<Request> request;
  std::variant<std::string, std::vector<int64_t>> prompt;
  bool stream = false;
  Shared shared;
  std::vector<Option> sampling;
};

// Throws Refused for what no bundle can do.
void read(Asked& asked);
// One generation for requests that agree in what is shared.
speccompile::Request generation(const std::vector<Asked*>& group);

}  // namespace triton
