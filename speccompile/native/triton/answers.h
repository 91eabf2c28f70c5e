// Answers requests of Triton round by round, up to the bundle's batch size side by side, as speccompile/serving/triton/serving.py does.
#pragma once

#include <memory>

#include "asked.h"

namespace triton {

using Bundle = std::unique_ptr<spc_bundle, speccompile::Freed<&spc_bundle_free>>;
using Session = std::unique_ptr<spc_session, speccompile::Freed<&spc_session_free>>;

// A bundle, which its instances share.
struct Model {
  Bundle bundle;
  size_t batch_size;
  bool has_text;
};

// Runner of one generation, or one batch, at a time.
struct Instance {
  TRITONBACKEND_ModelInstance* handle;
  const Model& model;
  Session session;
};

// Sends every request its answer or an error, and releases it.
void answer(Instance& instance, TRITONBACKEND_Request** requests, size_t count);

}  // namespace triton
