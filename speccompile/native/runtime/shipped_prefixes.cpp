#include "shipped_prefixes.h"

#include <algorithm>
#include <cstring>

#include "../errors.h"
#include "../files.h"
#include "../progress.h"
#include "../words.h"

namespace spc {

std::map<std::string, std::vector<std::string>> prefix_names(const Hashes& hashes) {
  std::map<std::string, std::vector<std::string>> found;
  for (const auto& each : hashes.files) {
    const std::string &file = each.first, folder = parent_path(file), name = name_of(file);
    if (parent_path(folder) != kPrefixes || !ends_with(name, kPrefixSuffix)) continue;
    found[name_of(folder)].push_back(name.substr(0, name.size() - std::strlen(kPrefixSuffix)));
  }
  for (auto& each : found) std::sort(each.second.begin(), each.second.end());
  return found;
}

ShippedPrefixes::ShippedPrefixes(const Bundle& bundle, SavedSessions& sessions, const DecodeLoop& loop) : sessions_(sessions), loop_(loop) {
  const std::string& engine = bundle.entry().name;
  const std::vector<std::string> names = prefix_names(bundle.opened().hashes)[engine];
  for (const std::string& name : names) {
    const std::string path = bundle.opened().path(std::string(kPrefixes) + "/" + engine + "/" + name + kPrefixSuffix);
    try {
      starts_.emplace_back(path, sessions.start(path));
    } catch (const Error& error) {
      warn("note: this prefix of the bundle is not used here: " + error.message.substr(0, error.message.find('\n')));
    }
  }
}

std::optional<SlotContent> ShippedPrefixes::restore(const TokenIds& prompt, int64_t slot, int64_t held) const {
  const TokenIds wanted(prompt.begin(), prompt.end() - 1);  // the last token is always read
  int64_t longest = 0;
  const std::string* best = nullptr;
  for (const auto& [path, start] : starts_) {
    const int64_t length = common_prefix_length(start.tokens, wanted), size = static_cast<int64_t>(start.tokens.size());
    if (!loop_.serves(size, start.written, length)) continue;
    const double gained = static_cast<double>(length - held);
    if (gained < std::max(1.0, kWorth * static_cast<double>(size)) || length <= longest) continue;
    longest = length;
    best = &path;
  }
  if (!best) return std::nullopt;
  return sessions_.restore(*best, sessions_.read(*best, true), slot, "");
}

std::optional<SlotContent> ShippedPrefixes::resume(const TokenIds& prompt, std::optional<SlotContent> resume) const {
  int64_t held = resume ? common_prefix_length(resume->tokens, prompt) : 0;
  if (resume && !loop_.serves(static_cast<int64_t>(resume->tokens.size()), resume->written, held)) held = 0;
  std::optional<SlotContent> found = restore(prompt, 0, held);
  return found ? std::move(found) : std::move(resume);
}

}  // namespace spc
