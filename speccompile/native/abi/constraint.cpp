// Constraints of a request: kept as words until a session or a scheduler takes it, since only a bundle's tokens can compile them.
#include <algorithm>
#include <iterator>

#include "../constraints/constraint.h"
#include "handles.h"

namespace spc {
namespace {

constexpr char kList[] = "give a JSON list, as in [\"yes\", \"no\"]";

// The texts of a choice, from a JSON list.
Json choices_of(const std::string& text) {
  Json found;
  try {
    found = Json::parse(text);
  } catch (const JsonError& error) {
    throw Error(Kind::kUsage, std::string("constraint choice: the texts are no JSON: ") + error.what(), kList);
  }
  const bool is_list = found.is_list() && std::all_of(found.list().begin(), found.list().end(), [](const Json& each) { return each.is_text(); });
  if (!is_list) throw Error(Kind::kUsage, "constraint choice: received " + first_characters(found.dump(), 100) + ", expected a list of texts", kList);
  return found;
}

}  // namespace

void set_constraint(spc_request& request, const std::string& kind, const std::string& text) {
  constraints::check_kind(kind);
  if (!is_utf8(text)) throw Error(Kind::kUsage, "constraint " + kind + ": received a text that is no UTF-8", "encode it as UTF-8");
  if (kind == constraint_kind::kJsonObject && !text.empty())
    throw Error(Kind::kUsage, "constraint json_object: received a text of " + std::to_string(text.size()) + " bytes, expected none", "use json_schema for a schema");
  request.constraint = {kind, kind == constraint_kind::kChoice ? choices_of(text) : Json(text)};
}

std::shared_ptr<const constraints::Constraint> compiled_constraint(const spc_request& request, const Bundle& bundle) {
  return bundle.grammars().compile(request.constraint->first, request.constraint->second);
}

}  // namespace spc

extern "C" {

spc_error* spc_request_set_constraint(spc_request* request, const char* kind, const char* text, size_t size) {
  return spc::call_with({{request, "request"}}, [&] {
    spc::require_size(size, "size");
    if (size) spc::require_pointer(text, "text");
    if (!kind) return request->constraint.reset();
    spc::set_constraint(*request, kind, size ? std::string(text, size) : std::string());
  });
}

}  // extern "C"
