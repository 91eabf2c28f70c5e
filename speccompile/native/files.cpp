#include "files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <new>
#include <system_error>
#include <utility>

namespace spc {
namespace {

// Bytes that one call reads or writes at most: no system takes more than 2 GB.
constexpr size_t kAtOnce = size_t{1} << 30;

size_t size_of(const FileDescriptor& file) {
  struct stat found {};
  if (fstat(file.number(), &found) != 0) throw FileError(errno);
  return found.st_size > 0 ? static_cast<size_t>(found.st_size) : 0;
}

void check_regular(const FileDescriptor& file) {
  struct stat found {};
  if (fstat(file.number(), &found) != 0) throw FileError(errno);
  if (S_ISDIR(found.st_mode)) throw FileError(EISDIR);
  if (!S_ISREG(found.st_mode)) throw FileError(EINVAL, "received a pipe, device or socket, expected a regular file");
}

int64_t nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

[[noreturn]] void refuse_size(size_t most) {
  throw FileError(EFBIG, "received more than " + std::to_string(most) + " bytes, which no such file has");
}

// Make a file under a hidden name that no other has, and return its path. Process ids are no such names: threads share one, and
// so do containers. make: returns false, with errno, if it cannot be made.
std::string in_free_name(const std::string& path, const std::function<bool(const char*)>& make) {
  const std::string begin = join_path(parent_path(path), "." + name_of(path) + ".");
  for (auto number = static_cast<uint64_t>(getpid());; ++number) {
    const std::string part = begin + std::to_string(number);
    if (make(part.c_str())) return part;
    if (errno != EEXIST) throw FileError(errno);
  }
}

// Write a file without a name, of which a process that is killed meanwhile leaves nothing, then give it one. Return its path, ""
// where there are no such files.
std::string written_unnamed([[maybe_unused]] const std::string& path, [[maybe_unused]] const std::vector<std::string_view>& parts, [[maybe_unused]] unsigned mode) {
#ifdef O_TMPFILE
  FileDescriptor file;
  try {
    file = FileDescriptor(parent_path(path), O_WRONLY | O_TMPFILE, mode);
  } catch (const FileError&) {
    return "";
  }
  for (const std::string_view bytes : parts) write_all(file.number(), bytes);
  const std::string own = "/proc/self/fd/" + std::to_string(file.number());
  try {
    return in_free_name(path, [&](const char* part) { return linkat(AT_FDCWD, own.c_str(), AT_FDCWD, part, AT_SYMLINK_FOLLOW) == 0; });
  } catch (const FileError& error) {
    if (error.number != ENOENT) throw;  // ENOENT: /proc is not mounted
  }
#endif
  return "";
}

std::string written_named(const std::string& path, const std::vector<std::string_view>& parts, unsigned mode) {
  int made = -1;
  const std::string part = in_free_name(path, [&](const char* name) {
    do made = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    while (made < 0 && errno == EINTR);
    return made >= 0;
  });
  close(made);
  try {
    write_file(part, parts);
  } catch (const FileError&) {
    unlink(part.c_str());
    throw;
  }
  return part;
}

}  // namespace

FileError::FileError(int number) : number(number), reason(std::generic_category().message(number)) {
  if (number == ENOMEM) throw std::bad_alloc();  // nothing is wrong with the file
}

int64_t modified_nanoseconds(const struct stat& file) {
#if defined(__APPLE__)
  return nanoseconds(file.st_mtimespec);
#else
  return nanoseconds(file.st_mtim);
#endif
}

int64_t changed_nanoseconds(const struct stat& file) {
#if defined(__APPLE__)
  return nanoseconds(file.st_ctimespec);
#else
  return nanoseconds(file.st_ctim);
#endif
}

FileDescriptor::FileDescriptor(const std::string& path, int flags, unsigned mode) {
  do number_ = open(path.c_str(), flags | O_CLOEXEC, mode);
  while (number_ < 0 && errno == EINTR);
  if (number_ < 0) throw FileError(errno);
}

FileDescriptor::~FileDescriptor() {
  if (number_ >= 0) close(number_);
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

std::string read_file(const std::string& path, size_t most) {
  const FileDescriptor file(path, O_RDONLY | O_NONBLOCK);  // a pipe that nobody writes to would not even open
  check_regular(file);
  if (size_of(file) > most) refuse_size(most);
  // One more than its size, so that the first read is followed by the end; those of /proc have no size and grow from here.
  std::string bytes(size_of(file) + 1, '\0');
  size_t end = 0;
  for (;;) {
    if (end == bytes.size()) bytes.resize(2 * bytes.size() + 4096);
    const size_t room = bytes.size() - end;
    const ssize_t got = read(file.number(), &bytes[end], std::min(room, kAtOnce));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw FileError(errno);
    if (got == 0) break;
    end += static_cast<size_t>(got);
    if (end > most) refuse_size(most);
  }
  bytes.resize(end);
  return bytes;
}

void write_file(const std::string& path, std::string_view bytes) { write_file(path, std::vector<std::string_view>{bytes}); }

void write_file(const std::string& path, const std::vector<std::string_view>& parts) {
  const FileDescriptor file(path, O_WRONLY | O_CREAT | O_TRUNC);
  for (const std::string_view bytes : parts) write_all(file.number(), bytes);
}

void write_atomically(const std::string& path, const std::vector<std::string_view>& parts, unsigned mode) {
  std::string part = written_unnamed(path, parts, mode);
  if (part.empty()) part = written_named(path, parts, mode);
  if (std::rename(part.c_str(), path.c_str()) == 0) return;
  const FileError error(errno);
  unlink(part.c_str());
  throw error;
}

void write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = write(file, bytes.data(), std::min(bytes.size(), kAtOnce));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw FileError(errno);
    bytes.remove_prefix(static_cast<size_t>(put));
  }
}

std::string plain_path(std::string_view path) {
  const size_t slashes = path.find_first_not_of('/') == std::string_view::npos ? path.size() : path.find_first_not_of('/');
  // two slashes at the start may mean something else than one, says POSIX; three do not
  std::string found(slashes == 2 ? 2 : slashes ? 1 : 0, '/');
  const size_t root = found.size();
  for (size_t at = slashes; at < path.size();) {
    const size_t slash = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, slash - at);
    at = slash + 1;
    if (part.empty() || part == ".") continue;
    if (found.size() > root) found += '/';
    found += part;
  }
  return found.empty() ? "." : found;
}

std::string join_path(std::string_view folder, std::string_view name) {
  if (!name.empty() && name[0] == '/') return plain_path(name);
  return plain_path(std::string(folder.empty() ? "." : folder) + "/" + std::string(name));
}

std::string parent_path(std::string_view path) {
  const std::string plain = plain_path(path);
  const size_t slash = plain.rfind('/');
  return slash == std::string::npos ? "." : plain_path(plain.substr(0, slash + 1));
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

MappedFile::MappedFile(const std::string& path) {
  const FileDescriptor file(path, O_RDONLY);
  size_ = size_of(file);
  if (!size_) return;  // which no system maps
  void* data = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (data == MAP_FAILED) throw FileError(errno);
  data_ = data;
}

MappedFile::~MappedFile() {
  if (size_) munmap(const_cast<void*>(data_), size_);
}

void MappedFile::read_ahead(size_t start, size_t size) const {
  if (start >= size_) return;
  // Only advice: where the system refuses it, pages are read on first use.
  madvise(static_cast<char*>(const_cast<void*>(data_)) + start, std::min(size, size_ - start), MADV_WILLNEED);
}

}  // namespace spc
