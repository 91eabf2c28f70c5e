// The opaque handles of the C ABI, and the passing of errors through it.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "../errors.h"
#include "../include/speccompile.h"
#include "../runtime/bundle.h"
#include "../runtime/options.h"
#include "../runtime/session.h"

struct spc_error {
  int kind, exit_code;
  std::string message, hint;
};

struct spc_bundle {
  std::shared_ptr<const spc::Bundle> bundle;
  std::string manifest, description;
};

struct spc_request {
  spc::Request request;
  std::optional<std::pair<std::string, spc::Json>> constraint;  // kind and text, for `Compiler::compile`
};

struct spc_session {
  spc::Session session;
};

struct spc_result {
  std::string json;
  spc::TokenIds tokens;
};

namespace spc {

// The exception that is being handled, as an error of the caller's.
spc_error* current_error() noexcept;

// Runs `work`; whatever it throws becomes an error of the caller's. Nothing else leaves the library: a std::function would
// already need memory before it is called.
template <class Work>
spc_error* call_guarded(const Work& work) noexcept {
  try {
    work();
    return nullptr;
  } catch (...) {
    return current_error();
  }
}

// Throws Error(kUsage) where a caller gave no pointer.
void require_pointer(const void* pointer, const char* name);

// A pointer of a caller's, by the name of its parameter.
struct Given {
  const void* pointer;
  const char* name;
};

// Require pointers of a caller's, and run `work` as `call_guarded` does.
template <class Work>
spc_error* call_with(std::initializer_list<Given> given, const Work& work) noexcept {
  return call_guarded([&] {
    for (const Given& each : given) require_pointer(each.pointer, each.name);
    work();
  });
}

// Compile the constraint of a request that has one. Throws Error(kUsage) where the bundle does not take it.
std::shared_ptr<const constraints::Constraint> compiled_constraint(const spc_request& request, const Bundle& bundle);

// Call `take` with what a caller asks for; a constraint is compiled for the bundle.
template <class Take>
auto with_request(const spc_request& asked, const Bundle& bundle, const Take& take) {
  if (!asked.constraint) return take(asked.request);
  Request own = asked.request;
  own.constraint = compiled_constraint(asked, bundle);
  return take(own);
}

// Throws Error(kUsage) for a size that no caller's memory has, as that of a count below zero: nothing wraps.
void require_size(size_t count, const char* name);

}  // namespace spc
