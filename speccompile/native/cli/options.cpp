#include "options.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "../errors.h"
#include "../json.h"
#include "../words.h"

namespace spc::cli {
namespace {

const Option* named(const Command& command, std::string_view name) {
  if (name == kHelp.name) return &kHelp;
  const Option* found = std::find_if(command.begin(), command.end(), [&](const Option& each) {
    return name == each.name || (*each.alias && name == each.alias);
  });
  return found == command.end() ? nullptr : found;
}

std::string see(const std::string& path) { return "see " + path + " --help"; }

[[noreturn]] void refuse(const Command& command, const std::string& message) {
  throw Error(Kind::kUsage, message, see(path_of(command)));
}

[[noreturn]] void refuse_unknown(const Command& command, const std::string& name) {
  std::vector<std::string> known = {kHelp.name};
  for (const Option& each : command) known.push_back(each.name);
  const std::string meant = elsewhere(kOptionsElsewhere, name);
  const bool is_known = std::find(known.begin(), known.end(), meant) != known.end();
  const std::string nearest = is_known ? meant : starts_with(name, "--") ? close_match(name, known) : "";
  throw Error(Kind::kUsage, "No such option " + python_repr(name) + ".",
              nearest.empty() ? see(path_of(command)) : "did you mean " + nearest + "?");
}

[[noreturn]] void refuse_use(const Command& command, const std::string& name, const char* reason) {
  refuse(command, "Option " + python_repr(name) + " " + reason);
}

// Return the problem of a word that is none of `words`, which have bars between them; "" for none.
std::string unlike_choices(const std::string& text, const std::string& words) {
  const std::vector<std::string> choices = split(words, '|');
  if (std::find(choices.begin(), choices.end(), text) != choices.end()) return "";
  return python_repr(text) + (choices.size() == 1 ? " is not " : " is not one of ") +
         comma_separated(choices, [](const std::string& each) { return python_repr(each); }) + ".";
}

std::string unreadable(const std::string& path) {
  const bool is_unreadable = access(path.c_str(), F_OK) == 0 && access(path.c_str(), R_OK) != 0;
  return is_unreadable ? "Path " + python_repr(path) + " is not readable." : "";
}

// Return the problem of a number, "" if it is in the option's range. shown: as Python writes it.
std::string out_of_range(const Option& option, double value, const std::string& shown) {
  const bool is_within = option.is_open ? value > option.least : value >= option.least;
  if (!*option.range || (is_within && value <= option.most)) return "";
  return shown + " is not in the range " + option.range + ".";
}

// Return why a value cannot be, "" where it can.
std::string wrong(const Option& option, const std::string& text) {
  switch (option.takes) {
    case Takes::kFlag:
    case Takes::kText: return "";
    case Takes::kChoice: return unlike_choices(text, std::string(option.metavar + 1, std::strlen(option.metavar) - 2));
    case Takes::kPath: return unreadable(text);
    case Takes::kNumber: {
      const std::optional<double> value = read_real(text);
      return value ? out_of_range(option, *value, python_repr(*value)) : python_repr(text) + " is not a valid float.";
    }
    case Takes::kWhole: {
      const std::optional<Value> value = read_whole(text);
      return value ? out_of_range(option, value->number, plain_whole(text)) : python_repr(text) + " is not a valid integer.";
    }
  }
  return "";
}

}  // namespace

std::string path_of(const Command& command) {
  return command.name ? std::string(kProgramName) + " " + command.name : kProgramName;
}

Arguments Arguments::read(const Command& command, std::vector<std::string> words) {
  Arguments found;
  std::reverse(words.begin(), words.end());  // the next one is the last
  while (!words.empty()) {
    const std::string word = std::move(words.back());
    words.pop_back();
    if (word == "--") break;
    if (word.size() > 1 && word[0] == '-') {
      std::string typed;
      if (const Option* option = found.take(command, word, words, typed); option && option->takes != Takes::kFlag) {
        if (words.empty()) refuse_use(command, typed, "requires an argument.");
        found.given_.emplace_back(option, std::move(words.back()));
        words.pop_back();
      }
      continue;
    }
    found.rest.push_back(word);
    if (!command.name) break;
  }
  found.rest.insert(found.rest.end(), words.rbegin(), words.rend());
  return found;
}

// Takes a flag; of an option with a value returns which it is, and leaves the value that was attached in `left`.
// typed: how it was spelled.
const Option* Arguments::take(const Command& command, const std::string& word, std::vector<std::string>& left, std::string& typed) {
  const size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const Option* option = named(command, name);
  if (!option) {
    if (starts_with(word, "--")) refuse_unknown(command, name);
    return take_letters(command, word, left, typed);
  }
  typed = name;
  if (option->takes == Takes::kFlag) {
    if (equals != std::string::npos) refuse_use(command, name, "does not take a value.");
    given_.emplace_back(option, "");
  } else if (equals != std::string::npos) {
    left.push_back(word.substr(equals + 1));
  }
  return option;
}

// The same of short forms, of which flags may stand together: -q, -n 5, -n5.
const Option* Arguments::take_letters(const Command& command, const std::string& word, std::vector<std::string>& left, std::string& typed) {
  for (size_t i = 1; i < word.size(); ++i) {
    const char letter = word[i];
    const Option* const found =
        std::find_if(command.begin(), command.end(), [&](const Option& each) { return each.letter == letter; });
    if (found == command.end() && letter != kHelp.letter) refuse_unknown(command, std::string("-") + letter);
    const Option* const option = found == command.end() ? &kHelp : found;
    typed = std::string("-") + letter;
    if (option->takes == Takes::kFlag) {
      given_.emplace_back(option, "");
      continue;
    }
    if (i + 1 < word.size()) left.push_back(word.substr(i + 1));
    return option;
  }
  return nullptr;
}

std::string Arguments::wanted() const {
  for (const Given& each : given_) {
    const std::string name = each.first->name;
    if (name == "--help" || name == "--version") return name;
  }
  return "";
}

void Arguments::check(const Command& command) const {
  for (const Given& each : given_) {
    const std::string reason = wrong(*each.first, text(each.first->name));
    if (!reason.empty()) refuse(command, "Invalid value for " + python_repr(each.first->name) + ": " + reason);
  }
  for (size_t i = 0; i < command.argument_count; ++i) {
    const std::string name = command.arguments[i];
    if (i == rest.size()) refuse(command, "Missing argument '" + name + "'.");
    if (const std::string reason = unreadable(rest[i]); !reason.empty())
      refuse(command, "Invalid value for '" + name + "': " + reason);
  }
  for (const Option& each : command)
    if (each.is_required && !has(each.name)) refuse(command, "Missing option " + python_repr(each.name) + ".");
  const std::vector<std::string> extra(rest.begin() + static_cast<std::ptrdiff_t>(command.argument_count), rest.end());
  if (extra.empty()) return;
  throw Error(Kind::kUsage, std::string("Got unexpected extra argument") + (extra.size() > 1 ? "s (" : " (") + joined(extra, " ") + ")",
              named(command, "--prompt") ? "give a prompt with --prompt" : see(path_of(command)));
}

const Arguments::Given* Arguments::last(std::string_view name) const {
  const auto found =
      std::find_if(given_.rbegin(), given_.rend(), [&](const Given& each) { return name == each.first->name; });
  return found == given_.rend() ? nullptr : &*found;
}

std::vector<std::string> Arguments::all(std::string_view name) const {
  std::vector<std::string> found;
  for (const Given& each : given_)
    if (name == each.first->name) found.push_back(each.second);
  return found;
}

std::optional<Value> Arguments::number(std::string_view name) const {
  const Given* given = last(name);
  if (!given) return std::nullopt;
  return given->first->takes == Takes::kWhole ? read_whole(given->second) : Value::of(*read_real(given->second));
}

int64_t Arguments::count(std::string_view name, int64_t otherwise) const {
  const std::optional<Value> value = number(name);
  if (!value) return otherwise;
  constexpr uint64_t kMost = uint64_t{1} << 53;  // larger than any use, and sums of it do not overflow
  return static_cast<int64_t>(value->is_whole ? std::min(value->whole, kMost) : kMost);
}

}  // namespace spc::cli
