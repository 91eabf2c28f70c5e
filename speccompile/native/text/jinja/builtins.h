// Built-ins of templates: operators, attributes, methods, filters, tests and functions.
#pragma once

#include <string>

#include "budget.h"
#include "tree.h"

namespace spc::jinja {

// Compute a binary operator. Throws TemplateError, in Python's words, for values that it does not take.
Value binary(const std::string& name, const Value& left, const Value& right, Budget& budget);
// Compute a comparison, "==" to "not in".
bool compare(const std::string& name, const Value& left, const Value& right);
// Return whether one value comes before another. Throws TemplateError for values without an order.
bool is_less(const Value& left, const Value& right, const char* sign = "<");

// Return value.name and value[index], an undefined value where there is none.
Value attribute(const Value& value, const std::string& name, Budget& budget);
Value item(const Value& value, const Value& index, Budget& budget);
// Return a part of a list or text. Bounds are none where they were left out.
Value slice(const Value& value, const Value& first, const Value& last, const Value& step, Budget& budget);
// Return a method of a text or mapping, or an undefined value.
Value method(const Value& value, const std::string& name, Budget& budget);

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments, Budget& budget);
bool apply_test(const std::string& name, const Value& value, const Arguments& arguments);
// Return a function that every template has, or an undefined value.
Value global(const std::string& name, Budget& budget);

// A text without blanks, or some characters, at its ends.
std::string stripped(const std::string& text, const Value* characters, bool left, bool right);
std::string lower(const std::string& text);
std::string upper(const std::string& text);
std::string replaced(const std::string& text, const std::string& from, const std::string& to, int64_t count, Budget& budget);
bool is_blank(std::string_view character);
// A text that is safe where another one is.
Value like(const Value& value, std::string text);
// A text for HTML; one that is safe stays as it is.
std::string escaped(const Value& value);
// Lines as Python's splitlines.
Values lines_of(const std::string& text, bool keeps_ends);
// format % values, as Python writes it.
Value formatted(const Value& format, const Value& values, Budget& budget);

// Throw TemplateError, in Python's words, for arguments that a function does not have. parameters: names with commas between them;
// "*": any. One with ! behind it must be given; one with / before it has no name for callers.
void check_arguments(const std::string& function, const Arguments& arguments, std::string_view parameters);
// Arguments by place or name, of a type. Throw TemplateError for another one.
const std::string& text_argument(const Arguments& arguments, size_t place, const char* name);
int64_t integer_argument(const Arguments& arguments, size_t place, const char* name, int64_t otherwise);
bool flag_argument(const Arguments& arguments, size_t place, const char* name, bool otherwise);

}  // namespace spc::jinja
