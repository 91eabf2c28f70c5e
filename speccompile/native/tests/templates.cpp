// Renders chat templates, for tests/native/test_native_templates.py to compare with jinja2. Reads one JSON object a line,
// {"template": text, "variables": {name: value}}, and answers {"text": text}, or {"error": message, "line": number}.
#include <iostream>
#include <string>

#include "../json.h"
#include "../text/jinja/render.h"

namespace spc {
namespace {

Json answer(const Json& asked) {
  try {
    jinja::Dict variables;
    for (const auto& [name, value] : asked["variables"].object()) variables.set(name, jinja::Value::of(value));
    return Json::Object{{"text", jinja::render(asked["template"].text(), variables)}};
  } catch (const jinja::TemplateError& error) {
    return Json::Object{{"error", error.message}, {"line", error.line}};
  }
}

}  // namespace
}  // namespace spc

int main() {
  for (std::string line; std::getline(std::cin, line);) std::cout << spc::answer(spc::Json::parse(line)).dump() << std::endl;
  return 0;
}
