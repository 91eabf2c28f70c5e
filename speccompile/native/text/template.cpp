#include "template.h"

#include "reading.h"

namespace spc {
namespace {

// ["<s>", 1]
int64_t read_pair(const Json& part, const char* name) {
  const Json::List& pair = read_list(part, name);
  if (pair.size() != 2 || !pair[0].is_text()) throw InvalidTokenizer{std::string("expected a token and its id for ") + name};
  return read_number(pair[1], name);
}

}  // namespace

Template::Template(const Json& part) {
  if (!part.is_null()) read(part);
}

void Template::read(const Json& part) {
  const std::string& type = read_text(part, "type");
  if (type == "Sequence") {
    for (const Json& each : read_list(part, "processors")) read(each);
  } else if (type == "TemplateProcessing") {
    read_single(part);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    steps_.push_back({{false, {read_pair(part, "cls")}}, {true, {}}, {false, {read_pair(part, "sep")}}});
  } else if (type != "ByteLevel") {  // which changes no ids
    throw UnsupportedComponent{"post-processor " + python_repr(type)};
  }
  if (steps_.size() > 1) throw UnsupportedComponent{"sequence of post-processors that add tokens"};
}

void Template::read_single(const Json& part) {
  std::vector<Part> parts;
  for (const Json& each : read_list(part, "single")) {
    if (const Json* sequence = each.find("Sequence")) {
      if (read_text(*sequence, "id") != "A") throw InvalidTokenizer{"a template for one text that has two"};
      parts.push_back({true, {}});
      continue;
    }
    const std::string& name = read_text(each["SpecialToken"], "id");
    TokenIds ids;
    for (const Json& id : read_list(part["special_tokens"][name], "ids")) ids.push_back(read_number(id, "ids"));
    parts.push_back({false, std::move(ids)});
  }
  steps_.push_back(std::move(parts));
}

TokenIds Template::apply(const TokenIds& ids, bool special_tokens) const {
  TokenIds made = ids;
  for (const std::vector<Part>& parts : steps_) {
    made.clear();
    for (const auto& [text, around] : parts) {
      if (text) made.insert(made.end(), ids.begin(), ids.end());
      if (special_tokens) made.insert(made.end(), around.begin(), around.end());
    }
  }
  return made;
}

}  // namespace spc
