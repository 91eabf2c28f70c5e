#include "text_table.h"

#include <algorithm>
#include <cstdio>

#include "../words.h"

namespace spc::cli {

std::string left(const std::string& text, size_t width) {
  const size_t length = character_count(text);
  return length < width ? text + std::string(width - length, ' ') : text;
}

std::string right(const std::string& text, size_t width) {
  const size_t length = character_count(text);
  return length < width ? std::string(width - length, ' ') + text : text;
}

std::vector<std::string> columns(const std::vector<Cells>& rows) {
  std::vector<size_t> widths;
  for (const Cells& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], character_count(row[i]));
  }
  std::vector<std::string> lines;
  for (const Cells& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += (i ? "  " : "") + left(row[i], widths[i]);
    line.erase(line.find_last_not_of(" \t\n\r\v\f") + 1);
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string number(const char* form, double value) {
  const int size = std::snprintf(nullptr, 0, form, value);
  std::string text(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(text.data(), text.size(), form, value);
  text.pop_back();
  return text;
}

}  // namespace spc::cli
