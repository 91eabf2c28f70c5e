// Files: read whole, mapped, or written; and paths as Python's pathlib writes them.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spc {

// A file could not be read or written; `number` is its errno.
struct FileError {
  explicit FileError(int number);
  FileError(int number, std::string reason) : number(number), reason(std::move(reason)) {}

  int number;
  std::string reason;  // strerror, or what is wrong with it
};

// The bytes of a regular file. Throws FileError, also for a folder, pipe, device or socket, which may have no end or never
// answer, and for more than `most` bytes.
std::string read_file(const std::string& path, size_t most = size_t{1} << 30);
// A new file of these bytes, or of these parts in their order. Throws FileError.
void write_file(const std::string& path, std::string_view bytes);
void write_file(const std::string& path, const std::vector<std::string_view>& parts);
// Replace a file: readers find the old one or the new one, complete. mode: permissions of the new one. Throws FileError, with the
// old file unchanged and none beside it.
void write_atomically(const std::string& path, const std::vector<std::string_view>& parts, unsigned mode = 0666);
// All bytes to an open file. Throws FileError.
void write_all(int file, std::string_view bytes);

// A path as pathlib writes it: "a//b/./" is "a/b", "" is ".".
std::string plain_path(std::string_view path);
// Join a folder and a name; return the parent folder of a path; return the last component of a path.
std::string join_path(std::string_view folder, std::string_view name);
std::string parent_path(std::string_view path);
std::string name_of(const std::string& path);

// Return when the content of a file was last changed, in nanoseconds since 1970.
int64_t modified_nanoseconds(const struct stat& file);
// Return when its content or anything else of it, such as its name, was last changed.
int64_t changed_nanoseconds(const struct stat& file);

// An open file or folder, closed at the end.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  // Open a file, see open(2). mode: permissions of a new one. Throws FileError.
  FileDescriptor(const std::string& path, int flags, unsigned mode = 0666);
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;

  explicit operator bool() const { return number_ >= 0; }
  int number() const { return number_; }

 private:
  int number_ = -1;
};

// A file in memory, as the page cache holds it. Throws FileError.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }
  // Ask the system to read `size` bytes from `start`, a multiple of the page size, in the background; no-op past the end.
  void read_ahead(size_t start, size_t size) const;

 private:
  const void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace spc
