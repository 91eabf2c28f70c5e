#include "retrieval.h"

#include <algorithm>

#include "../bundle/hashes.h"
#include "../errors.h"
#include "../files.h"

namespace spc {
namespace {

RetrievalPolicy read_policy(const std::string& path) {
  const Json data = read_json(path);
  const auto count = [&](const char* name, int64_t least) {
    const Json& value = data[name];
    if (!value.is_integer() || value.integer() < least)
      throw Error(Kind::kBundle, path + ": received no policy of an index: " + python_repr(name) + " is " + value.repr(),
                  "build the bundle again");
    return static_cast<size_t>(value.integer());
  };
  return {count("fewest", 1), count("most", 1), count("occurrences", 1), count("branching", 0)};
}

}  // namespace

RetrievalProposer::RetrievalProposer(const std::string& folder, size_t drafts, size_t depth)
    : index_(folder), policy_(read_policy(join_path(folder, kRetrievalPolicy))), drafts_(drafts), depth_(depth) {}

Drafts RetrievalProposer::propose(const std::vector<int64_t>& tokens) const {
  size_t most = policy_.most;
  while (const std::optional<Match> match = index_.longest(tokens, policy_.fewest, most)) {
    const std::vector<TokenRow> rows = index_.continuations(*match, policy_.occurrences, depth_);
    const auto goes_on = [](const TokenRow& row) { return !row.empty(); };
    if (std::any_of(rows.begin(), rows.end(), goes_on)) return vote(rows, drafts_, policy_.branching);
    most = match->length - 1;
  }
  return {};
}

}  // namespace spc
