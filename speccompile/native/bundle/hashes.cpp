#include "hashes.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "../errors.h"
#include "../files.h"
#include "../progress.h"
#include "../system.h"
#include "blake3.h"
#include "manifest.h"

namespace fs = std::filesystem;

namespace spc {
namespace {

// Bytes of a file that the system reads while as many before them are hashed; several pieces.
constexpr size_t kWindow = size_t{8} << 20;
static_assert(kWindow % kPiece == 0, "a window begins where a piece does");

constexpr const char* kCopyAgain = "copy the bundle again from where it was built, or build it again";

[[noreturn]] void refuse(const std::string& message) { throw Error(Kind::kBundle, message, kCopyAgain); }

std::string read_text(const std::string& path) {
  try {
    return read_file(path);
  } catch (const FileError& error) {
    if (error.number == ENOENT) refuse(path + ": the file is missing");
    refuse(path + ": cannot be read: " + error.reason);
  }
}

Json parse_json(const std::string& text, const std::string& path) {
  try {
    Json value = Json::parse(text);
    if (value.is_object() && text.find("\\u") != std::string::npos && !is_utf8(value.dump()))
      throw JsonError("received a text with half a surrogate pair, which is no Unicode text");
    return value;
  } catch (const JsonError& error) {
    refuse(path + ": expected JSON: " + error.what());
  }
}

bool climbs(std::string_view path) {
  for (size_t at = 0; at <= path.size();) {
    const size_t slash = std::min(path.find('/', at), path.size());
    if (path.substr(at, slash - at) == "..") return true;
    at = slash + 1;
  }
  return false;
}

// Return whether Windows takes it for a path on a drive: its second character is a colon.
bool has_drive(std::string_view path) {
  size_t second = std::min<size_t>(1, path.size());
  while (second < path.size() && (static_cast<unsigned char>(path[second]) & 0xC0) == 0x80) ++second;
  return path.substr(second, 1) == ":";
}

void check_relative(const std::string& name, const std::string& path) {
  const bool is_odd = name.find('\\') != std::string::npos || name.find('\0') != std::string::npos || plain_path(name) != name;
  if (name[0] == '/' || has_drive(name) || climbs(name) || is_odd || name == "." || name == kHashes)
    refuse(path + ": the path " + python_repr(name) + " leads out of the bundle or is not plain, unlike 'graphs/verify.onnx'");
}

FileRecord record(const std::string& name, const Json& row, const std::string& path) {
  check_relative(name, path);
  const Json &digest = row["blake3"], &size = row["bytes"];
  if (row.object().size() != 2 || !digest.is_text() || !size.is_integer())
    refuse(path + ": " + name + ": expected {\"blake3\": text, \"bytes\": number}, got " + row.repr());
  return {digest.text(), size.integer()};
}

Hashes parse(const Json& data, const std::string& path) {
  const Json &digest = data["digest"], &files = data["files"];
  if (data.object().size() != 2 || !digest.is_text() || !files.is_object())
    refuse(path + ": expected {\"digest\": text, \"files\": object} and nothing else");
  Hashes hashes{digest.text(), {}, {}};
  for (const auto& [name, row] : files.object()) hashes.files.emplace_back(name, record(name, row, path));
  return hashes;
}

// Return whether a resolved path lies in a resolved folder.
bool lies_in(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

fs::path resolved_folder(const std::string& folder) {
  std::error_code error;
  return fs::weakly_canonical(plain_path(folder), error);
}

void check_inside(const std::string& path, const fs::path& folder) {
  std::error_code error;
  const fs::path resolved = fs::weakly_canonical(path, error);
  if (!lies_in(resolved, folder)) refuse(path + ": leads out of the bundle, to " + resolved.string());
}

void check_file(const std::string& path, const FileRecord& record, const fs::path& folder) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) refuse(path + ": the file is missing; " + kHashes + " lists it");
  check_inside(path, folder);
  const auto size = static_cast<int64_t>(fs::file_size(path, error));
  if (size != record.size) refuse(path + ": has " + std::to_string(size) + " bytes, expected " + std::to_string(record.size));
}

}  // namespace

const FileRecord* Hashes::find(std::string_view path) const {
  for (const auto& [name, record] : files)
    if (name == path) return &record;
  return nullptr;
}

Json read_json(const std::string& path) { return parse_json(read_text(path), path); }

Hashes read_hashes(const std::string& folder, bool verify) {
  const std::string path = join_path(folder, kHashes);
  check_inside(path, resolved_folder(folder));
  std::string text = read_text(path);
  const Json data = parse_json(text, path);
  Hashes hashes = parse(data, path);
  // Canonical JSON has one form: no byte of it can change unseen.
  if (text != data.canonical()) refuse(path + ": the file was edited: it is not canonical JSON");
  hashes.content = std::move(text);
  if (!verify) return hashes;
  const std::string digest = hex(blake3(data["files"].canonical()));
  if (digest != hashes.digest) refuse(path + ": the file was edited: digest " + hashes.digest + ", its files give " + digest);
  return hashes;
}

void check_files(const std::string& folder, const Hashes& hashes, bool verify) {
  const fs::path resolved = resolved_folder(folder);
  for (const auto& [relative, record] : hashes.files) check_file(join_path(folder, relative), record, resolved);
  if (verify) check_content(folder, hashes);
}

void check_content(const std::string& folder, const Hashes& hashes, const std::set<std::string>& skipped) {
  const double start = wall_seconds();
  double total = 0;
  for (const auto& [relative, record] : hashes.files) {
    if (skipped.count(relative)) continue;
    const std::string path = join_path(folder, relative), found = hash_file(path);
    if (found != record.blake3) refuse(path + ": the file was edited: BLAKE3 " + found + ", expected " + record.blake3);
    total += static_cast<double>(record.size);
  }
  const double seconds = wall_seconds() - start;
  if (seconds <= 1) return;
  char line[64];
  std::snprintf(line, sizeof line, "verified %.1f GB in %.1f s", total / 1e9, seconds);
  log(Level::kInfo, line);
}

std::string hash_file(const std::string& path) {
  try {
    static const int cores = available_cores();
    const MappedFile file(path);
    return hex(blake3(file.bytes(), cores, [&file](size_t start) {
      if (start % kWindow == 0) file.read_ahead(start + kWindow, kWindow);
    }));
  } catch (const FileError& error) {
    refuse(path + ": cannot be read: " + error.reason);
  }
}

}  // namespace spc
