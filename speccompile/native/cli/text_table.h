// Text in columns.
#pragma once

#include <string>
#include <vector>

namespace spc::cli {

using Cells = std::vector<std::string>;

// Filled up with blanks, behind or before.
std::string left(const std::string& text, size_t width);
std::string right(const std::string& text, size_t width);
// A line for each row, every column as wide as its widest cell.
std::vector<std::string> columns(const std::vector<Cells>& rows);
// Return a number as printf writes it: "%.2f".
std::string number(const char* form, double value);

}  // namespace spc::cli
