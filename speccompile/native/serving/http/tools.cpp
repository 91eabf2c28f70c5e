#include "tools.h"

#include <algorithm>
#include <cstdio>

#include "../../entropy.h"
#include "../../errors.h"
#include "../../words.h"
#include "errors.h"
#include "schema.h"

namespace spc::http {
namespace {

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// Return the format of the template that conversations with tools get; null where it takes none, or has an unknown format.
const ToolCallFormat* format_of(const Bundle& bundle) {
  if (!bundle.chat().has_templates()) return nullptr;
  std::string text;
  try {
    text = bundle.chat().chosen(Json::Object{{"tools", Json::List()}});
  } catch (const Error& error) {
    if (error.kind != Kind::kPrompt) throw;
    return nullptr;
  }
  const auto is_other = [&](const char* mark) { return has(text, mark); };
  if (!has(text, "tools") || std::any_of(std::begin(kOtherMarks), std::end(kOtherMarks), is_other)) return nullptr;
  const auto found = std::find_if(std::begin(kToolCallFormats), std::end(kToolCallFormats), [&](const ToolCallFormat& each) { return has(text, each.mark); });
  return found == std::end(kToolCallFormats) ? nullptr : found;
}

// Return a text in Lark's form. A special token, which no text can spell, is written by its number.
std::string literal(const std::string& text, const Bundle& bundle) {
  const std::string mark = trimmed(text);
  const auto quoted = [](const std::string& part) { return part.empty() ? "" : Json(part).dump() + " "; };
  const int64_t number = mark.empty() ? -1 : bundle.grammars().special(mark);
  if (number < 0) return quoted(text);
  const size_t at = text.find(mark);
  return quoted(text.substr(0, at)) + "<[" + std::to_string(number) + "]> " + quoted(text.substr(at + mark.size()));
}

// Return where a list or object of JSON that begins at `at` ends.
size_t end_of(const std::string& text, size_t at) {
  int depth = 0;
  for (bool is_text = false; at < text.size(); ++at) {
    const char c = text[at];
    if (is_text && c == '\\')
      ++at;
    else if (c == '"')
      is_text = !is_text;
    else if (!is_text && (c == '{' || c == '['))
      ++depth;
    else if (!is_text && (c == '}' || c == ']') && --depth == 0)
      return at + 1;
  }
  return std::string::npos;
}

// Add consecutive values of JSON, lists by their parts; null for the first that is no list or object, which no call is.
void add_values(const std::string& part, Json::List& found) {
  for (std::string text = trimmed(part); !text.empty();) {
    const size_t end = text[0] == '{' || text[0] == '[' ? end_of(text, 0) : std::string::npos;
    if (end == std::string::npos) return found.emplace_back(), void();
    try {
      const Json value = Json::parse(text.substr(0, end));
      if (value.is_list())
        found.insert(found.end(), value.list().begin(), value.list().end());
      else
        found.push_back(value);
    } catch (const JsonError&) {
      return found.emplace_back(), void();
    }
    text = trimmed(text.substr(end));
  }
}

}  // namespace

std::optional<Tools> Tools::of(const Json& fields, const Bundle& bundle) {
  const Json::List& given = fields["tools"].list();
  const Json choice = fields.find("tool_choice") ? fields["tool_choice"] : Json("auto");
  const bool is_none = choice == Json("none"), is_free = choice == Json("auto");
  if (given.empty()) {
    if (!is_none && !is_free)
      throw RequestError(400, "tool_choice: received " + shown(choice) + " without tools, expected none or auto", "tool_choice", "", "give tools");
    return std::nullopt;
  }
  if (is_none) return std::nullopt;
  Tools found{format_of(bundle), {}, given, !is_free, !choice.is_object()};
  if (!found.format)
    throw RequestError(400, "tools: this model's chat template takes none, or has calls in a form that is not known here", "tools", "unsupported_parameter",
                       "known are the forms of " + comma_separated(kToolCallFormats, [](const ToolCallFormat& each) { return each.name; }));
  const std::string& wanted = choice["function"]["name"].text();
  for (const Json& each : given)
    if (!choice.is_object() || each["function"]["name"].text() == wanted) found.functions.push_back(each["function"]);
  if (found.functions.empty())
    throw RequestError(400, "tool_choice: received " + python_repr(wanted) + ", expected one of the tools", "tool_choice", "", "name a function of tools");
  if (const Json* const parallel = fields.find("parallel_tool_calls")) found.is_parallel = found.is_parallel && parallel->boolean();
  return found;
}

SharedConstraint Tools::constraint(const Bundle& bundle, int64_t most) const {
  if (!is_forced) return nullptr;
  check_constraints(bundle, "tool_choice");
  return compile_constraint(bundle, "tool_choice", constraint_kind::kGrammar, grammar(bundle), most);
}

// Return the grammar of calls in Lark's form: each function with its own schema, which is the root of its references.
std::string Tools::grammar(const Bundle& bundle) const {
  std::string bodies, rules;
  for (size_t index = 0; index < functions.size(); ++index) {
    const std::string number = std::to_string(index);
    bodies += (index ? " | body_" : "body_") + number;
    const Json& given = functions[index]["parameters"];
    Json schema = given.is_object() && !given.object().empty()
                      ? given
                      : Json(Json::Object{{"type", "object"}, {"properties", Json(Json::Object{})}, {"additionalProperties", false}});
    schema.set("x-guidance", Json::Object{{"whitespace_pattern", " ?"}, {"lenient", false}});
    const std::string head = "{\"name\": " + functions[index]["name"].dump() + ", \"" + format->arguments + "\": ";
    rules += "\nbody_" + number + ": " + Json(head).dump() + " args_" + number + " \"}\"\nargs_" + number + ": %json " + schema.dump();
  }
  const std::string begin = literal(format->begin, bundle), end = literal(format->end, bundle), body = "(" + bodies + ")";
  if (format->is_list) return "start: " + begin + "\"[\" " + body + (is_parallel ? " (\", \" " + body + ")*" : "") + " \"]\"" + rules;
  const std::string call = begin + body + " " + end;
  return "start: " + call + (is_parallel && *format->begin ? " (\"\\n\" " + call + ")*" : "") + rules;
}

std::pair<std::string, std::vector<Tools::Call>> Tools::read(const std::string& text) const {
  // special tokens may be missing from the text
  const std::string begin = trimmed(format->begin), end = trimmed(format->end);
  const size_t first = begin.empty() ? std::string::npos : text.find(begin);
  const std::string said = first == std::string::npos ? "" : trimmed(text.substr(0, first));
  Json::List values;
  if (first == std::string::npos || end.empty()) {
    add_values(first == std::string::npos ? text : text.substr(first + begin.size()), values);
  } else {
    for (size_t at = first; at != std::string::npos;) {
      const size_t inner = at + begin.size(), stop = text.find(end, inner);
      if (stop == std::string::npos) break;
      add_values(text.substr(inner, stop - inner), values);
      at = text.find(begin, stop + end.size());
    }
  }
  std::vector<Call> calls;
  for (const Json& value : values) {
    std::optional<Call> call = call_of(value);
    if (!call) return {text, {}};
    calls.push_back(std::move(*call));
  }
  if (calls.empty()) return {text, {}};
  if (!is_parallel) calls.resize(1);
  return {said, calls};
}

std::optional<Tools::Call> Tools::call_of(const Json& value) const {
  const Json &name = value["name"], &arguments = value[format->arguments];
  const auto is_it = [&](const Json& function) { return function["name"] == name; };
  if (!name.is_text() || !arguments.is_object() || std::none_of(functions.begin(), functions.end(), is_it)) return std::nullopt;
  return Call{name.text(), arguments.dump()};
}

Json Tools::Call::to_json() const {
  char digits[25];
  for (int part = 0; part < 3; ++part) std::snprintf(digits + 8 * part, 9, "%08x", random_bits());
  return Json::Object{{"id", "call_" + std::string(digits)}, {"type", "function"}, {"function", Json::Object{{"name", name}, {"arguments", arguments}}}};
}

}  // namespace spc::http
