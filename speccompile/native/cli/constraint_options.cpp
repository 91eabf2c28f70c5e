#include "constraint_options.h"

#include "../errors.h"
#include "../files.h"
#include "common.h"

namespace spc::cli {
namespace {

struct Asking {
  const char *option, *kind;
  bool is_file;
};

constexpr Asking kOptions[] = {{"--json-schema", constraint_kind::kJsonSchema, true},
                               {"--regex", constraint_kind::kRegex, false},
                               {"--grammar", constraint_kind::kGrammar, true},
                               {"--choice", constraint_kind::kChoice, false}};

std::string content_of(const Asking& asking, const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Kind::kUsage, std::string(asking.option) + " " + name + ": " + why, "give a file that can be read, or - for stdin");
  };
  std::string text;
  try {
    text = name == "-" ? read_stdin() : read_file(name);
  } catch (const FileError& error) {
    refuse(error.reason);
  }
  if (!is_utf8(text)) refuse("it is not UTF-8 text");
  for (size_t at = 0; (at = text.find("\r\n", at)) != std::string::npos;) text.erase(at, 1);
  return text;
}

}  // namespace

std::optional<std::pair<std::string, Json>> asked_constraint(const Arguments& given) {
  const Asking* asked = nullptr;
  std::string received;
  for (const Asking& each : kOptions) {
    if (!given.has(each.option)) continue;
    received += (asked ? " and " : "") + std::string(each.option);
    asked = asked && received != each.option ? asked : &each;
  }
  if (!asked) return std::nullopt;
  if (received != asked->option)
    throw Error(Kind::kUsage, "received " + received + ", expected one of them", "write one constraint that says it all");
  Json text;
  if (asked->kind == std::string(constraint_kind::kChoice))
    text = list_of(given.all(asked->option));
  else
    text = asked->is_file ? content_of(*asked, given.text(asked->option)) : given.text(asked->option);
  return std::pair(std::string(asked->kind), text);
}

}  // namespace spc::cli
