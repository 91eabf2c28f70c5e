#include "shipped_prefixes.h"

#include <algorithm>

#include "../errors.h"
#include "../progress.h"

namespace spc {
namespace {

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::vector<std::string> files_of(const Bundle& bundle) {
  const std::string folder = std::string(kPrefixes) + "/" + bundle.entry().name + "/";
  std::vector<std::string> found;
  for (const auto& each : bundle.opened().hashes.files)
    if (each.first.rfind(folder, 0) == 0 && each.first.find('/', folder.size()) == std::string::npos && ends_with(each.first, kPrefixSuffix))
      found.push_back(each.first);
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

ShippedPrefixes::ShippedPrefixes(const Bundle& bundle, SavedSessions& sessions, bool cuts) : sessions_(sessions), cuts_(cuts) {
  for (const std::string& file : files_of(bundle)) {
    const std::string path = bundle.opened().path(file);
    try {
      texts_.emplace_back(path, sessions.start(path));
    } catch (const Error& error) {
      warn("note: this prefix of the bundle is not used here: " + error.message.substr(0, error.message.find('\n')));
    }
  }
}

std::optional<SlotContent> ShippedPrefixes::resume(const TokenIds& prompt, std::optional<SlotContent> resume) const {
  const TokenIds wanted(prompt.begin(), prompt.end() - 1);  // the last token is always read
  int64_t held = resume ? common_prefix_length(resume->tokens, prompt) : 0, longest = 0;
  if (resume && !cuts_ && held < static_cast<int64_t>(resume->tokens.size())) held = 0;
  const std::string* best = nullptr;
  for (const auto& [path, text] : texts_) {
    const int64_t length = common_prefix_length(text, wanted), size = static_cast<int64_t>(text.size());
    if (!cuts_ && length < size) continue;
    const double gained = static_cast<double>(length - held);
    if (gained < std::max(1.0, kWorth * static_cast<double>(size)) || length <= longest) continue;
    longest = length;
    best = &path;
  }
  return best ? sessions_.restore(*best, "", true) : std::move(resume);
}

}  // namespace spc
