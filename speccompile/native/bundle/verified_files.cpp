#include "verified_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "../contract_table.h"
#include "../errors.h"
#include "../files.h"
#include "result_cache.h"

namespace fs = std::filesystem;

namespace spc {
namespace {

constexpr size_t kTimes = 3;  // the state's times begin here

// Device, inode, size in bytes, and nanoseconds since 1970 of the last change of the content and of anything.
Json state(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) throw Error(Kind::kBundle, path + ": cannot be read: " + FileError(errno).reason);
  return Json(Json::List{static_cast<int64_t>(found.st_dev), static_cast<int64_t>(found.st_ino), int64_t{found.st_size},
                          modified_nanoseconds(found), changed_nanoseconds(found)});
}

Json key_of(const std::string& folder, const Hashes& hashes) {
  std::error_code error;
  const std::string resolved = fs::weakly_canonical(folder, error).string();
  return Json(Json::Object{{"folder", resolved}, {"digest", hashes.digest}});
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

VerifiedFiles::VerifiedFiles(const std::string& folder, const Hashes& hashes)
    : folder_(folder), key_(key_of(folder, hashes)), hashes_(hashes), begun_(seconds_since_1970()), states_(states()) {
  const std::optional<Json> found = ResultCache(kVerifiedFolder).read(key_);
  if (!found || !(*found)["files"].is_object()) return;
  for (const auto& [name, before] : states_)
    if ((*found)["files"][name].canonical() == before.canonical()) unchanged_.insert(name);
}

Json::Object VerifiedFiles::states() const {
  Json::Object found;
  for (const auto& [name, record] : hashes_.files) found.emplace_back(name, state(join_path(folder_, name)));
  return found;
}

void VerifiedFiles::store() const {
  if (unchanged_.size() == states_.size()) return;
  // Within one step of the filesystem's clock a file can change again unseen.
  const double oldest = (begun_ - kMinStampAge) * 1e9;
  const Json::Object now = states();
  Json::Object files;
  for (size_t file = 0; file < states_.size(); ++file) {
    const Json& before = states_[file].second;
    const bool is_old = static_cast<double>(std::max(before.list()[kTimes].integer(), before.list()[kTimes + 1].integer())) < oldest;
    if (is_old && now[file].second.canonical() == before.canonical()) files.push_back(states_[file]);
  }
  if (files.size() > unchanged_.size()) ResultCache(kVerifiedFolder).store(key_, Json(Json::Object{{"files", files}}));
}

}  // namespace spc
