// Reading the parts of a tokenizer.json. Text::open turns exceptions of these functions into an Error with the path.
#pragma once

#include <string>

#include "../json.h"
#include "pattern.h"

namespace spc {

// The file is no tokenizer.
struct InvalidTokenizer {
  std::string why;
};

// A tokenizer with a part that this runtime lacks.
struct UnsupportedComponent {
  std::string what;
};

// Throw NoTokenizer where the name is missing or holds something else.
const std::string& read_text(const Json& owner, const char* name);
bool read_flag(const Json& owner, const char* name);
bool read_flag(const Json& owner, const char* name, bool otherwise);  // null as well
uint32_t read_number(const Json& value, const char* name);
uint32_t read_character(const Json& owner, const char* name);
const Json::List& read_list(const Json& owner, const char* name);

// Return the pattern of the entry "pattern": {"String": ..} or {"Regex": ..}.
Pattern read_pattern(const Json& owner);
// Throws NoPart for what the engine lacks.
Pattern read_regex(const std::string& source);

}  // namespace spc
