// Upper, lower and title case as Python's str has them. Tokenizers have a lower case of their own (forms.h).
#pragma once

#include <string>

namespace spc::unicode {

std::string uppercase(const std::string& text);
// A capital sigma at the end of a word becomes another small one than elsewhere.
std::string lowercase(const std::string& text);
// The first letter of each word in title case, the others in lower case. A word is a row of characters with a case.
std::string titlecase(const std::string& text);
// The first character in title case, the others in lower case.
std::string capitalized(const std::string& text);
// Return whether a text has characters with a case, and all of them are of this one.
bool is_lowercase(const std::string& text);
bool is_uppercase(const std::string& text);

}  // namespace spc::unicode
