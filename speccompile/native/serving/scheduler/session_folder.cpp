#include "session_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "../../bundle/blake3.h"
#include "../../errors.h"
#include "../../files.h"
#include "../../progress.h"
#include "../../words.h"

namespace spc {
namespace {

namespace fs = std::filesystem;

constexpr size_t kShortest = 16;  // tokens of a text that is kept: fewer are read sooner than a file
constexpr double kNew = 0.1;      // least share of a text that is in no file
constexpr size_t kNameLength = 32, kPending = 4;
constexpr double kAbandonedSeconds = 3600;  // age of an unfinished file whose process has ended
constexpr const char* kSalt = "salt";

std::string salt_hash(const std::string& salt) { return hex(blake3(salt)); }

bool is_session(const std::string& name) { return ends_with(name, kPrefixSuffix) && name[0] != '.'; }

// Return whether a service has named the file. Other files are used, and never removed.
bool is_ours(const std::string& name) {
  return is_session(name) && name.size() == kNameLength + std::string(kPrefixSuffix).size() &&
         name.find_first_not_of("0123456789abcdef") == kNameLength;
}

// Return whether a service is writing the file, or was when its process ended: .NAME.*
bool is_unfinished(const std::string& name) {
  const size_t dot = name.rfind('.');
  return name[0] == '.' && dot > 1 && is_ours(name.substr(1, dot - 1));
}

struct File {
  std::string name;
  uint64_t inode;
  int64_t size, nanoseconds;  // of its last use
};

// The files of a folder, links followed. Throws std::filesystem::filesystem_error.
std::vector<File> files_of(const std::string& folder) {
  std::vector<File> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    struct stat status;
    if (stat(entry.path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;  // removed meanwhile
    found.push_back({entry.path().filename().string(), status.st_ino, status.st_size, status.st_mtim.tv_sec * int64_t{1000000000} + status.st_mtim.tv_nsec});
  }
  return found;
}

}  // namespace

KeptSessions::KeptSessions(const std::string& folder, double limit_gb, SavedSessions& sessions, const DecodeLoop& loop)
    : folder_(folder), limit_(static_cast<size_t>(limit_gb * 1e9)), sessions_(sessions), loop_(loop) {
  const std::string named = "sessions " + folder + ": ";
  if (loop.has_sources())
    throw Error(Kind::kUsage, named + "received a bundle with an encoder, expected one without: the caches of a text depend on its source", "leave the folder out");
  std::error_code error;
  if (mkdir(folder.c_str(), 0700) != 0 && !fs::is_directory(folder, error))
    throw Error(Kind::kUsage, named + "the folder cannot be made: " + std::generic_category().message(errno), "give a folder");
  if (access(folder.c_str(), R_OK | W_OK | X_OK) != 0)
    throw Error(Kind::kUsage, named + "the folder cannot be written to", "give another folder");
  writer_ = std::thread([this] { write_all(); });
}

KeptSessions::~KeptSessions() {
  {
    const std::lock_guard<std::mutex> held(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  writer_.join();
}

std::optional<SlotContent> KeptSessions::restore(const TokenIds& prompt, const Sharing& sharing, int64_t slot, int64_t held) {
  const std::string salted = salt_hash(sharing.salt);
  auto ahead = std::exchange(ahead_, std::nullopt);
  look();
  while (const Key* const best = longest(prompt, salted, sharing.adapter, held)) {
    const std::string path = path_of(*best);
    try {
      const bool is_ahead = ahead && ahead->second.valid() && ahead->first == *best;
      SlotContent content = sessions_.restore(path, is_ahead ? ahead->second.get() : sessions_.read(path), slot, sharing.adapter);
      utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // it may be removed meanwhile, or not ours
      return content;
    } catch (const Error& error) {
      if (error.kind != Kind::kUsage) throw;
      pass_over(Key(*best), error.message);
    }
  }
  return std::nullopt;
}

void KeptSessions::read_ahead(const TokenIds& prompt, const Sharing& sharing, int64_t held) {
  look();
  const Key* const best = longest(prompt, salt_hash(sharing.salt), sharing.adapter, held);
  if (!best) return;
  const std::string path = path_of(*best);
  ahead_.emplace(*best, std::async(std::launch::async, [this, path] { return sessions_.read(path); }));
}

bool KeptSessions::has_read(bool waits) const {
  if (!ahead_) return true;
  if (waits) ahead_->second.wait();
  return ahead_->second.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// The file with the longest prefix of a prompt, null if no file is worth restoring. The last token of a prompt is always read.
const KeptSessions::Key* KeptSessions::longest(const TokenIds& prompt, const std::string& salted, const std::string& adapter, int64_t held) const {
  const TokenIds wanted(prompt.begin(), prompt.end() - 1);
  const Key* best = nullptr;
  int64_t most = 0;
  for (const auto& [key, known] : known_) {
    if (!known || known->adapter != adapter || (known->salt && *known->salt != salted)) continue;
    const int64_t length = common_prefix_length(known->tokens, wanted), size = static_cast<int64_t>(known->tokens.size());
    const bool pays = static_cast<double>(length - held) >= std::max(1.0, kWorth * static_cast<double>(size));
    if (!pays || length <= most || !loop_.serves(size, known->written, length)) continue;
    best = &key, most = length;
  }
  return best;
}

void KeptSessions::keep(const Sharing& sharing, const std::optional<SlotContent>& left) {
  if (!left || left->tokens.size() < kShortest || !sessions_.is_at_end(*left)) return;
  if (*std::min_element(left->tokens.begin(), left->tokens.end()) < 0) return;  // negative: of pictures
  const std::string salted = salt_hash(sharing.salt);
  look();
  std::map<std::string, const Known*> files;
  for (const auto& [key, known] : known_)
    if (known) files[std::get<0>(key)] = &*known;
  std::unique_lock<std::mutex> held(mutex_);
  for (const auto& [name, known] : pending_) files[name] = &known;
  std::vector<std::string> inside;
  int64_t longest = 0;
  for (const auto& [name, known] : files) {
    if (!known->own || known->salt != salted || known->adapter != sharing.adapter) continue;
    const int64_t common = common_prefix_length(known->tokens, left->tokens);
    const bool is_inside = common == static_cast<int64_t>(known->tokens.size());
    if (is_inside || !sessions_.serves_whole()) longest = std::max(longest, common);
    if (is_inside && !sessions_.serves_whole() && is_ours(name)) inside.push_back(name);  // a longer whole text serves no shorter one
  }
  const auto size = static_cast<double>(left->tokens.size());
  if (size - static_cast<double>(longest) < kNew * size) return;
  if (queue_.size() >= kPending) {
    warn("note: " + folder_ + ": texts end faster than they can be written: one was not kept");
    return;
  }
  held.unlock();
  Waiting waiting{name_of_text(left->tokens, salted, sharing.adapter), sessions_.content(folder_, *left, {{kSalt, salted}}), inside, 0};
  for (const SessionFile::Tensor& tensor : waiting.file.tensors) waiting.bytes += tensor.values.size();
  held.lock();
  pending_[waiting.name] = {left->tokens, salted, true, sharing.adapter, left->written};
  queue_.push_back(std::move(waiting));
  changed_.notify_all();
}

std::string KeptSessions::path_of(const Key& key) const { return folder_ + "/" + std::get<0>(key); }

// Read the beginnings of files that are new, and forget those that have gone.
void KeptSessions::look() {
  std::vector<File> found;
  try {
    found = files_of(folder_);
  } catch (const fs::filesystem_error& error) {
    warn("note: " + folder_ + ": the folder of sessions cannot be read: " + error.code().message());
  }
  std::map<Key, std::optional<Known>> known;
  std::vector<Key> fresh;
  for (const File& file : found) {
    if (!is_session(file.name)) continue;
    const Key key(file.name, file.inode, file.size);
    const auto before = known_.find(key);
    if (before == known_.end())
      fresh.push_back(key);
    else
      known.emplace(key, std::move(before->second));
  }
  known_ = std::move(known);
  for (const Key& key : fresh) {
    try {
      SavedSessions::Start start = sessions_.start(path_of(key));
      const auto salt = start.notes.find(kSalt);
      known_[key] = Known{std::move(start.tokens), salt == start.notes.end() ? std::nullopt : std::optional<std::string>(salt->second),
                          start.same_drafter, start.adapter, start.written};
    } catch (const Error& error) {
      if (error.kind != Kind::kUsage) throw;
      pass_over(key, error.message);
    }
  }
}

void KeptSessions::pass_over(const Key& key, const std::string& message) {
  warn("note: passed over " + first_line(message));
  known_[key] = std::nullopt;
}

std::string KeptSessions::name_of_text(const TokenIds& tokens, const std::string& salted, const std::string& adapter) const {
  std::string hashed = sessions_.identity(adapter) + "\n" + salted + "\n";
  hashed.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int64_t));
  return hex(blake3(hashed)).substr(0, kNameLength) + kPrefixSuffix;
}

// Write the texts that wait, until the end.
void KeptSessions::write_all() {
  std::unique_lock<std::mutex> held(mutex_);
  for (;;) {
    changed_.wait(held, [this] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Waiting waiting = std::move(queue_.front());
    held.unlock();
    try {
      write(waiting);
    } catch (const Error& error) {
      warn("note: a session was not kept: " + first_line(error.message));
    } catch (const fs::filesystem_error& error) {
      warn("note: a session was not kept: " + error.code().message());
    }
    held.lock();
    queue_.pop_front();
    pending_.erase(waiting.name);
  }
}

void KeptSessions::write(const Waiting& waiting) {
  if (waiting.bytes > limit_) {
    warn("note: a session was not kept: " + std::to_string(waiting.bytes) + " bytes exceed the limit");
    return;
  }
  write_session(folder_ + "/" + waiting.name, waiting.file);
  for (const std::string& each : waiting.replaced)
    if (each != waiting.name) unlink((folder_ + "/" + each).c_str());
  trim();
}

// Remove the files that were used least recently, until the rest fits, and what killed processes have left.
void KeptSessions::trim() const {
  std::vector<File> files = files_of(folder_);
  std::sort(files.begin(), files.end(), [](const File& one, const File& other) { return one.nanoseconds > other.nanoseconds; });
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  size_t total = 0;
  for (const File& file : files) {
    const bool unfinished = is_unfinished(file.name);
    if (!unfinished && !is_ours(file.name)) continue;
    const bool abandoned = unfinished && static_cast<double>(now - file.nanoseconds) > kAbandonedSeconds * 1e9;
    total += static_cast<size_t>(file.size);
    if (!abandoned && (unfinished || total <= limit_)) continue;
    unlink((folder_ + "/" + file.name).c_str());
    total -= static_cast<size_t>(file.size);
  }
}

}  // namespace spc
