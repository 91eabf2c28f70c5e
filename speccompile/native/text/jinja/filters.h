// Tables of filters by the type of their value, for apply_filter (filters.cpp).
#pragma once

#include <map>
#include <string>

#include "builtins.h"

namespace spc::jinja {

// parameters: names with commas between them, in their order; kAny: the filter looks at them itself.
struct KnownFilter {
  static constexpr const char* kAny = "*";

  Value (*run)(const Value& value, const Arguments& given, Budget& budget);
  const char* parameters = "";
};
using Filters = std::map<std::string, KnownFilter>;

// Filters with files of their own.
Value pretty_printed(const Value& value, const Arguments& given, Budget& budget);
Value without_tags(const Value& value, const Arguments& given, Budget& budget);
Value word_wrapped(const Value& value, const Arguments& given, Budget& budget);

const Filters& text_filters();
const Filters& number_filters();

}  // namespace spc::jinja
