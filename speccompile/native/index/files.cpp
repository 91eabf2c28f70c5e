#include "files.h"

#include <filesystem>
#include <limits>
#include <system_error>

#include "../bundle/hashes.h"
#include "../errors.h"
#include "../files.h"

namespace fs = std::filesystem;

namespace spc {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Kind::kBundle, message, "build it again with `speccompile index`");
}

[[noreturn]] void refuse_header(const std::string& path, const std::string& problem) {
  refuse(path + ": received no header of an index: " + problem);
}

const Json& need(const Json& data, const char* name, const std::string& path) {
  const Json* const found = data.find(name);
  if (!found) refuse_header(path, python_repr(name));
  return *found;
}

std::vector<int64_t> chunks_of(const Json& header, const std::string& path) {
  std::vector<int64_t> chunks;
  for (const Json& count : need(header, "chunks", path).list()) {
    if (!count.is_integer() || count.integer() < 1 || count.integer() > std::numeric_limits<int32_t>::max())
      refuse_header(path, "a chunk of " + count.repr() + " tokens");
    chunks.push_back(count.integer());
  }
  if (chunks.empty()) refuse_header(path, "chunks are " + header["chunks"].repr());
  return chunks;
}

void check_file(const std::string& path, int64_t expected) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) refuse(path + ": the file is missing; " + kIndexHeader + " lists it");
  const auto size = static_cast<int64_t>(fs::file_size(path, error));
  if (size != expected)
    refuse(path + ": has " + std::to_string(size) + " bytes, expected " + std::to_string(expected) + ": it was truncated");
}

}  // namespace

std::string tokens_file(size_t chunk) { return std::to_string(chunk) + "." + kIndexTokens; }
std::string suffixes_file(size_t chunk) { return std::to_string(chunk) + "." + kIndexSuffixes; }

std::vector<int64_t> read_index_chunks(const std::string& folder) {
  const std::string path = join_path(folder, kIndexHeader);
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    throw Error(Kind::kBundle, folder + ": expected an index: no " + kIndexHeader + " lies in it",
                "give the folder that `speccompile index` wrote");
  const Json header = read_json(path);
  const Json& format = need(header, "format", path);
  if (format != Json(kIndexFormat))
    refuse(path + ": received format " + format.repr() + ", this speccompile reads " + std::to_string(kIndexFormat));
  std::vector<int64_t> chunks = chunks_of(header, path);
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk)
    for (const std::string& file : {tokens_file(chunk), suffixes_file(chunk)})
      check_file(join_path(folder, file), kTokenBytes * chunks[chunk]);
  return chunks;
}

}  // namespace spc
