#include "cache.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <vector>

#include "../entropy.h"
#include "../errors.h"
#include "../progress.h"
#include "../system.h"
#include "../words.h"
#include "blake3.h"
#include "hashes.h"
#include "manifest.h"

namespace fs = std::filesystem;

namespace spc {
namespace {

constexpr std::string_view kHexadecimal = "0123456789abcdef", kDecimal = "0123456789";
constexpr size_t kDigestDigits = 64, kRandomDigits = 8;

// Remove `count` characters of a set from the front of a text, or all that stand there for 0. Return whether there are so many,
// and at least one.
bool take(std::string_view& text, std::string_view characters, size_t count) {
  const size_t found = std::min(text.find_first_not_of(characters), text.size());
  if (!found || found < count) return false;
  text.remove_prefix(count ? count : found);
  return true;
}

bool take(std::string_view& text, std::string_view word) {
  if (!starts_with(text, word)) return false;
  text.remove_prefix(word.size());
  return true;
}

// Return whether a name is <digest>.
bool is_entry(std::string_view name) { return take(name, kHexadecimal, kDigestDigits) && name.empty(); }

// Return whether a name is .<digest>.<process>-<random>.part.
bool is_part(std::string_view name) {
  return take(name, ".") && take(name, kHexadecimal, kDigestDigits) && take(name, ".") && take(name, kDecimal, 0) &&
         take(name, "-") && take(name, kHexadecimal, kRandomDigits) && name == kCachePart;
}

// Return the folders that have names of ours. Others are left alone: the user chooses the place of the cache.
std::vector<std::string> folders(const std::string& cache, bool (*is_ours)(std::string_view name)) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator each(cache, error), end; !error && each != end; each.increment(error)) {
    std::error_code ignored;
    if (is_ours(each->path().filename().native()) && each->is_directory(ignored)) found.push_back(each->path().native());
  }
  return found;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator each(folder, error), end; !error && each != end; each.increment(error))
    found.push_back(each->path().filename().native());
  return found;
}

enum class LockMode { kShared, kExclusive, kExclusiveWait };

// Lock a folder until the descriptor closes, at the latest when this process ends. Return none when another process holds the
// lock, when another one has just removed the folder, and on filesystems without locks. Throws FileError when the folder cannot be
// opened. kExclusiveWait: wait for the other process.
FileDescriptor lock_folder(const std::string& folder, LockMode mode) {
  FileDescriptor handle;
  try {
    handle = FileDescriptor(folder, O_RDONLY);
  } catch (const FileError& error) {
    if (error.number == ENOENT) return {};
    throw;
  }
  const int operation = (mode == LockMode::kShared ? LOCK_SH : LOCK_EX) | (mode == LockMode::kExclusiveWait ? 0 : LOCK_NB);
  int result = 0;
  do result = flock(handle.number(), operation);
  while (result != 0 && errno == EINTR);
  return result == 0 ? std::move(handle) : FileDescriptor();
}

// Return whether an entry's path still leads to the locked folder: another process may have removed it between opening and locking.
bool is_current(const std::string& entry, const FileDescriptor& lock) {
  struct stat path {}, opened {};
  return lock && stat(entry.c_str(), &path) == 0 && fstat(lock.number(), &opened) == 0 && path.st_ino == opened.st_ino;
}

void sync(const std::string& path) {
  const FileDescriptor file(path, O_RDONLY);
  if (fsync(file.number()) != 0) throw FileError(errno);
}

void rename_to(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw FileError(errno);
}

// Write hashes.json of a folder of files.
void write_hashes(const std::string& folder) {
  Json files{Json::Object{}};
  for (const std::string& name : files_in(folder)) {
    const std::string path = join_path(folder, name);
    const std::string digest = hash_file(path);
    std::error_code error;
    files.set(name, Json::Object{{"blake3", digest}, {"bytes", static_cast<int64_t>(fs::file_size(path, error))}});
    if (error) throw FileError(error.value());
  }
  const Json hashes{Json::Object{{"digest", hex(blake3(files.canonical()))}, {"files", files}}};
  write_file(join_path(folder, kHashes), hashes.canonical());
}

// Use of an entry. last_use: in nanoseconds since 1970.
struct EntryUse {
  std::string entry;
  int64_t last_use = 0, size = 0;
};

EntryUse use_of(const std::string& entry) {
  EntryUse found{entry, 0, 0};
  struct stat stats {};
  for (const std::string& name : files_in(entry))  // a file that several entries share counts in each for its part
    if (stat(join_path(entry, name).c_str(), &stats) == 0) found.size += stats.st_size / static_cast<int64_t>(stats.st_nlink);
  if (stat(entry.c_str(), &stats) != 0) return found;
  found.last_use = modified_nanoseconds(stats);
  return found;
}

// Locked folder for a new entry. It is removed at the end unless it was renamed.
class Part {
 public:
  explicit Part(std::string path) : path(std::move(path)) {
    if (mkdir(this->path.c_str(), 0777) != 0) throw FileError(errno);
    lock_ = lock_folder(this->path, LockMode::kExclusive);
  }
  ~Part() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  const std::string path;

 private:
  FileDescriptor lock_;
};

// Path of no folder: a file, so that nothing can be made in it.
constexpr const char* kNowhere = "/dev/null";

// Warn once that a user without a home folder, such as in a container, has no cache.
std::string note_without_home() {
  static std::once_flag once;
  std::call_once(once, [] {
    warn(std::string("note: this user has no home folder: nothing is cached\nhint: set ") + kCacheFolder + " to a folder");
  });
  return kNowhere;
}

std::string user_folder() {
  const std::string caches = environment("XDG_CACHE_HOME");
  if (!caches.empty() && caches[0] == '/') return join_path(caches, "speccompile");  // a relative one must be ignored
  std::string home = environment("HOME");
  if (home.empty()) {
    const struct passwd* user = getpwuid(getuid());
    if (!user) return note_without_home();
    home = user->pw_dir;
  }
  return join_path(home, ".cache/speccompile");
}

}  // namespace

std::string cache_folder(const std::string& name) {
  const std::string own = environment(kCacheFolder);
  return join_path(own.empty() ? user_folder() : own, name);
}

double default_limit() {
  const double limit = read_number(kCacheLimit, kDefaultCacheLimit, true) * 1e9;
  return environment(kCacheFolder).empty() && user_folder() == kNowhere ? 0 : limit;
}

void mark_used(const std::string& path) { utimensat(AT_FDCWD, path.c_str(), nullptr, 0); }

void make_folders(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw FileError(error.value());
}

FolderCache::FolderCache(std::string folder, double limit) : folder_(std::move(folder)), limit_(limit) {}

std::optional<CacheEntry> FolderCache::read(const std::string& digest, const std::string& kind, bool verify) const {
  if (limit_ == 0) return {};
  CacheEntry entry{join_path(folder_, digest), {}, {}};
  entry.lock = lock_folder(entry.folder, LockMode::kShared);
  if (!is_current(entry.folder, entry.lock)) return {};
  try {
    check_files(entry.folder, read_hashes(entry.folder, verify), verify);
    entry.content = read_json(join_path(entry.folder, kCacheEntry));
    mark_used(entry.folder);
    return entry;
  } catch (const Error& damage) {
    if (damage.kind != Kind::kBundle) throw;
    warn("note: a damaged " + kind + " is thrown out of the cache: " + damage.message);
  }
  entry.lock = FileDescriptor();
  const FileDescriptor changing = lock_changes();
  remove(entry.folder);
  return {};
}

void FolderCache::add(const std::string& digest, const std::function<Json(const std::string& part)>& fill) const {
  make_folders(folder_);
  std::optional<Part> part;
  {
    const FileDescriptor changing = lock_changes();
    remove_parts();
    part.emplace(new_part(digest));
  }
  const Json content = fill(part->path);
  write_file(join_path(part->path, kCacheEntry), content.canonical());
  write_hashes(part->path);
  for (const std::string& name : files_in(part->path)) sync(join_path(part->path, name));
  sync(part->path);
  const FileDescriptor changing = lock_changes();
  const std::string entry = join_path(folder_, digest);
  std::error_code ignored;
  if (!fs::exists(entry, ignored)) {
    rename_to(part->path, entry);
    sync(folder_);
  }
  evict();
}

// Lock the cache against processes that add or remove entries, until the descriptor closes.
FileDescriptor FolderCache::lock_changes() const {
  FileDescriptor lock = lock_folder(folder_, LockMode::kExclusiveWait);
  if (!lock) throw FileError(ENOLCK);
  return lock;
}

std::string FolderCache::new_part(const std::string& digest) const {
  std::string digits;
  for (size_t i = 0; i < kRandomDigits; ++i) digits += kHexadecimal[random_bits() % 16];
  return join_path(folder_, "." + digest + "." + std::to_string(getpid()) + "-" + digits + kCachePart);
}

// Remove an entry unless a process uses it. Rename it first: a killed process then leaves no incomplete entry.
bool FolderCache::remove(const std::string& entry) const {
  const FileDescriptor lock = lock_folder(entry, LockMode::kExclusive);
  if (!lock) return false;
  const std::string aside = new_part(name_of(entry));
  rename_to(entry, aside);
  std::error_code error;
  fs::remove_all(aside, error);
  if (error) throw FileError(error.value());
  return true;
}

// Remove unfinished entries of processes that were killed.
void FolderCache::remove_parts() const {
  for (const std::string& part : folders(folder_, is_part)) {
    const FileDescriptor unused = lock_folder(part, LockMode::kExclusive);
    std::error_code ignored;
    if (unused) fs::remove_all(part, ignored);
  }
}

void FolderCache::evict() const {
  std::vector<EntryUse> entries;
  int64_t size = 0;
  for (const std::string& entry : folders(folder_, is_entry)) {
    entries.push_back(use_of(entry));
    size += entries.back().size;
  }
  std::sort(entries.begin(), entries.end(), [](const EntryUse& one, const EntryUse& other) { return one.last_use < other.last_use; });
  for (const EntryUse& each : entries)
    if (static_cast<double>(size) > limit_ && remove(each.entry)) size -= each.size;
}

}  // namespace spc
