#include "acceptance.h"

#include <algorithm>

#include "../contract_table.h"
#include "../errors.h"

namespace spc {
namespace {

std::vector<int64_t> integers(const Json& data) {
  std::vector<int64_t> found;
  for (const Json& each : data.list()) found.push_back(each.integer());
  return found;
}

}  // namespace

MeasuredAcceptance MeasuredAcceptance::from_json(const Json& data) {
  return {data["rounds"].integer(), data["drafted"].integer(), integers(data["tried"]), integers(data["accepted"])};
}

std::optional<MeasuredAcceptance> measured(const Json& proof, const std::string& engine, int64_t depth) {
  const auto stands_for = [&](const Json& row) {
    const Json::List& names = row["engines"].list();
    return std::any_of(names.begin(), names.end(), [&](const Json& name) { return name.text() == engine; });
  };
  const Json::List& rows = proof["engines"].list();
  const auto row = std::find_if(rows.begin(), rows.end(), stands_for);
  if (row == rows.end() || (*row)[kAcceptance]["rounds"].integer() <= 0) return std::nullopt;
  const MeasuredAcceptance found = MeasuredAcceptance::from_json((*row)[kAcceptance]);
  const auto expected = static_cast<size_t>(depth);
  if (found.tried.size() != expected || found.accepted.size() != expected)
    throw Error(Kind::kBundle,
                std::string(kProof) + ": " + kAcceptance + " of the engine '" + engine + "' has counts of " + std::to_string(found.tried.size()) +
                    " and " + std::to_string(found.accepted.size()) + " depths, expected " + std::to_string(depth),
                "build the bundle again with this speccompile");
  return found;
}

}  // namespace spc
