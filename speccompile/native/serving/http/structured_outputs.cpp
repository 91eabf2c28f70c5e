#include "structured_outputs.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "../../errors.h"
#include "../../words.h"
#include "errors.h"
#include "schema.h"
#include "tables.h"

namespace spc::http {
namespace {

struct Asked {
  std::string field, kind;
  Json text;
};

void read_format(const Json& fields, std::vector<Asked>& found) {
  const Json* const format = fields.find("response_format");
  if (!format || (*format)["type"].text() == "text") return;
  const std::string name = "response_format";
  if ((*format)["type"].text() == constraint_kind::kJsonObject) return found.push_back({name, constraint_kind::kJsonObject, ""});
  const Json* const schema = (*format)["json_schema"].find("schema");
  if ((*format)["type"].text() != constraint_kind::kJsonSchema || !schema)
    throw RequestError(400, name + ": received " + shown(*format) + ", expected a schema at json_schema.schema", name + ".json_schema");
  found.push_back({name, constraint_kind::kJsonSchema, *schema});
}

void read_structured(const Json& fields, std::vector<Asked>& found) {
  const std::string known = comma_separated(kStructured, [](const auto& each) { return each.first; });
  for (const auto& [key, value] : fields["structured_outputs"].object()) {
    if (value.is_null() || value == Json(false)) continue;
    const auto kind = std::find_if(std::begin(kStructured), std::end(kStructured), [&, &own = key](const auto& each) { return own == each.first; });
    const std::string field = "structured_outputs." + key;
    if (kind == std::end(kStructured))
      throw RequestError(400, field + ": received " + shown(value) + ", which is not supported", field, "unsupported_parameter", "give one of " + known);
    found.push_back({field, kind->second, value});
  }
}

}  // namespace

SharedConstraint constraint_of(const Json& fields, const Bundle& bundle, int64_t most) {
  std::vector<Asked> asked;
  read_format(fields, asked);
  read_structured(fields, asked);
  for (const auto& [name, kind] : kGuided)
    if (const Json* const value = fields.find(name)) asked.push_back({name, kind, *value});
  if (asked.empty()) return nullptr;
  if (asked.size() > 1)
    throw RequestError(400, asked[1].field + ": received it beside " + asked[0].field + ", expected one of them", asked[1].field);
  return compile_constraint(bundle, asked[0].field, asked[0].kind, asked[0].text, most);
}

SharedConstraint compile_constraint(const Bundle& bundle, const std::string& field, const std::string& kind, const Json& text, int64_t most) {
  check_constraints(bundle, field);
  try {
    return bundle.grammars().compile(kind, text, {most, "ask for a simpler form, or serve with a larger --grammar-bytes"});
  } catch (const Error& error) {
    if (error.kind != Kind::kUsage) throw;
    throw RequestError(400, field + ": " + error.message, field, "", error.hint);
  }
}

void check_constraints(const Bundle& bundle, const std::string& field) {
  if (!bundle.grammars().is_supported())
    throw RequestError(400, field + ": this model was compiled without constraints", field, "unsupported_parameter",
                       "leave it out; a bundle with constraints: true takes it");
}

}  // namespace spc::http
