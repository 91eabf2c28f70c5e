#include <algorithm>

#include "../words.h"
#include "inspect.h"
#include "text_table.h"

namespace spc::cli {
namespace {

// Return whether a value takes one cell: no object, and no list with objects.
bool is_leaf(const Json& value) {
  const Json::List& list = value.list();
  return value.object().empty() && std::none_of(list.begin(), list.end(), [](const Json& each) { return each.is_object(); });
}

std::string cell(const Json& value) {
  if (value.is_text()) return value.text();
  if (!value.is_list()) return value.dump();
  std::vector<std::string> parts;
  for (const Json& each : value.list()) parts.push_back(cell(each));
  return "[" + joined(parts) + "]";
}

// Return the values of an object without its name, on one line; "" if one of them needs rows of its own.
std::string on_one_line(const Json& data) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : data.object()) {
    if (!is_leaf(value)) return "";
    if (key != "name") parts.push_back(key + " " + cell(value));
  }
  return joined(parts);
}

// Add a row of dotted key and value for each value, those of one cell first. Objects of a list are told apart by name or number.
void add_rows(const Json& data, const std::string& path, std::vector<Cells>& rows) {
  const auto below = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  if (is_leaf(data)) rows.push_back({path, cell(data)});
  for (const bool is_first : {true, false})
    for (const auto& [key, value] : data.object())
      if (is_leaf(value) == is_first) add_rows(value, below(key), rows);
  if (is_leaf(data)) return;
  for (size_t i = 0; i < data.list().size(); ++i) {
    const Json& each = data.list()[i];
    const std::string key = below(each["name"].is_text() ? each["name"].text() : std::to_string(i));
    if (const std::string line = on_one_line(each); !line.empty()) rows.push_back({key, line});
    else add_rows(each, key, rows);
  }
}

}  // namespace

std::string describe(const Json& object) {
  std::vector<Cells> facts;
  std::string sections;
  for (const auto& [key, value] : object.object()) {
    if (is_leaf(value)) {
      facts.push_back({key, cell(value)});
      continue;
    }
    std::vector<Cells> rows;
    add_rows(value, "", rows);
    sections += "\n" + key + "\n";
    for (const std::string& line : columns(rows)) sections += "  " + line + "\n";
  }
  return joined(columns(facts), "\n") + "\n" + sections;
}

}  // namespace spc::cli
