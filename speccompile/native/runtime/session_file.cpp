#include "session_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <utility>

#include "../bundle/blake3.h"
#include "../errors.h"
#include "../files.h"
#include "../json.h"
#include "tensor_header.h"

namespace spc {
namespace {

constexpr size_t kShown = 80;  // characters of an invalid entry, in messages

constexpr const char* kAnother = "remove the file, or give another one: the text is read again, and a new file written";

[[noreturn]] void refuse(const std::string& message) { throw Error(Kind::kUsage, message, kAnother); }

const Dtype* dtype_of_safetensors(const std::string& name) {
  const auto found = std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const Dtype& each) { return name == each.safetensors; });
  return found == std::end(kDtypes) ? nullptr : found;
}

// The length and the header of a file, without or with its hash.
std::string spelled(const std::map<std::string, std::string>& metadata, const Json& entries, const std::string& hash) {
  Json texts{Json::Object{}};
  for (const auto& [name, text] : metadata) texts.set(name, text);
  if (!hash.empty()) texts.set(kSessionHash, hash);
  Json header{Json::Object{{kDrafterStateMetadata, std::move(texts)}}};
  for (const auto& [name, entry] : entries.object()) header.object().emplace_back(name, entry);
  std::string text = header.dump();
  return hash.empty() ? text : with_length(std::move(text));
}

// The length and the header of a file with the hash in it. data: all numbers.
std::string header_of(const std::map<std::string, std::string>& metadata, const Json& entries, std::string_view data) {
  std::string hashed = spelled(metadata, entries, "");
  hashed += data;
  return spelled(metadata, entries, hex(blake3(hashed)));
}

// An entry of a header, and where its numbers end; none for sizes beyond any file.
std::optional<std::pair<Json, int64_t>> entry_of(const std::string& dtype, const Shape& shape, int64_t start) {
  int64_t end = static_cast<int64_t>(dtype_of_safetensors(dtype)->bytes);
  for (const int64_t size : shape)
    if (__builtin_mul_overflow(end, size, &end)) return std::nullopt;
  if (__builtin_add_overflow(end, start, &end)) return std::nullopt;
  return std::pair(Json(Json::Object{{"dtype", dtype}, {"shape", list_of(shape)}, {"data_offsets", Json::List{start, end}}}), end);
}

// Return the problem of a header's entries before `size` bytes of numbers, "" for none. The tensors are then in `file`.
std::string layout_problem(const Json& entries, std::string_view data, SessionFile& file) {
  int64_t start = 0;
  for (const Json::Member& entry : entries.object()) {
    const std::string& name = entry.first;
    const Json& row = entry.second;  // C++17 has no lambda that captures parts of a pair, as `is_whole` does
    const std::string shown = python_repr(first_characters(name, kShown));
    const Json &dtype = row["dtype"], &sizes = row["shape"];
    if (!dtype.is_text() || !dtype_of_safetensors(dtype.text()) || !sizes.is_list()) return shown + " has no dtype or shape";
    const auto is_size = [](const Json& each) { return each.type() == Json::Type::kInteger && each.integer() >= 0 && each.integer() < kLargestDimension; };
    if (!std::all_of(sizes.list().begin(), sizes.list().end(), is_size) || sizes.list().size() > entries.object().size() + 8)
      return shown + " has an impossible shape";
    Shape shape;
    for (const Json& size : sizes.list()) shape.push_back(size.integer());
    const auto expected = entry_of(dtype.text(), shape, start);
    const auto is_whole = [&] {
      const Json::Object& ours = expected->first.object();
      return row.object().size() == ours.size() && std::all_of(ours.begin(), ours.end(), [&](const Json::Member& each) { return row[each.first] == each.second; });
    };
    if (!expected || !is_whole()) return shown + " is not where its shape says";
    const auto begin = static_cast<size_t>(start), end = static_cast<size_t>(expected->second);
    file.tensors.push_back({name, dtype.text(), shape, end <= data.size() ? data.substr(begin, end - begin) : std::string_view()});
    start = expected->second;
  }
  if (start == static_cast<int64_t>(data.size())) return "";
  return "received " + std::to_string(data.size()) + " bytes of numbers, expected " + std::to_string(start);
}

// Remove the metadata from a header and return it. Throws Error(kUsage) if it is not a session's, or of another version.
std::map<std::string, std::string> take_metadata(Json& header, const std::string& path) {
  const Json texts = header[kDrafterStateMetadata];
  Json::Object& members = header.object();
  members.erase(std::remove_if(members.begin(), members.end(), [](const Json::Member& each) { return each.first == kDrafterStateMetadata; }), members.end());
  const auto is_text = [](const Json::Member& each) { return each.second.is_text(); };
  if (!texts.is_object() || !std::all_of(texts.object().begin(), texts.object().end(), is_text))
    refuse(path + ": not a session: its header has no texts in " + kDrafterStateMetadata);
  if (texts["format"] != Json(kSessionFormat)) {
    const std::string received = texts.find("format") ? texts["format"].text() : "None";
    refuse(path + ": received format " + python_repr(first_characters(received, kShown)) + ", expected " + python_repr(kSessionFormat));
  }
  std::map<std::string, std::string> found;
  for (const auto& [name, text] : texts.object()) found[name] = text.text();
  return found;
}

// The bytes of a file, which `memory` then keeps.
std::string_view content_of(const std::string& path, size_t most, bool trusted, std::shared_ptr<const void>& memory) {
  if (trusted) {
    const auto mapped = std::make_shared<const MappedFile>(path);
    memory = mapped;
    return mapped->bytes();
  }
  const auto read = std::make_shared<const std::string>(read_file(path, most + kDrafterStateLongest + kDrafterStateLengthBytes));
  memory = read;
  return *read;
}

// Append up to `size` more bytes of a file.
void read_more(const FileDescriptor& file, size_t size, std::string& content) {
  const size_t start = content.size();
  content.resize(start + size);
  size_t end = start;
  while (end < content.size()) {
    const ssize_t got = pread(file.number(), &content[end], content.size() - end, static_cast<off_t>(end));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw FileError(errno);
    if (got == 0) break;
    end += static_cast<size_t>(got);
  }
  content.resize(end);
}

// The bytes of numbers of the first entry of a header; 0 for an entry that is damaged or has more than `most`.
size_t first_bytes(const Json::Object& entries, size_t most) {
  if (entries.empty()) return 0;
  const Json& place = entries.front().second["data_offsets"];
  if (!place.is_list() || place.list().size() != 2 || place.list()[1].type() != Json::Type::kInteger) return 0;
  const int64_t end = place.list()[1].integer();
  return end >= 0 && static_cast<uint64_t>(end) <= most ? static_cast<size_t>(end) : 0;
}

}  // namespace

void SessionFile::add(const std::string& name, const std::string& dtype, const Shape& shape, std::string values) {
  const auto kept = std::make_shared<const std::string>(std::move(values));
  tensors.push_back({name, dtype, shape, *kept});
  memory.push_back(kept);
}

const SessionFile::Tensor* SessionFile::find(const std::string& name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& each) { return each.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

const std::string* SessionFile::text(const std::string& name) const {
  const auto found = metadata.find(name);
  return found == metadata.end() ? nullptr : &found->second;
}

void write_session(const std::string& path, const SessionFile& file) {
  Json entries{Json::Object{}};
  std::string data;
  for (const SessionFile::Tensor& tensor : file.tensors) {
    const auto entry = entry_of(tensor.dtype, tensor.shape, static_cast<int64_t>(data.size()));
    entries.object().emplace_back(tensor.name, entry.value().first);
    data += tensor.values;
  }
  std::map<std::string, std::string> metadata = file.metadata;
  metadata["format"] = kSessionFormat;
  try {
    write_atomically(path, {header_of(metadata, entries, data), data}, kPrivate);
  } catch (const FileError& error) {
    throw Error(Kind::kUsage, path + ": the session cannot be written: " + error.reason,
                "give a file in a folder that is there, that you may write to, and that has space");
  }
}

SessionFile read_session(const std::string& path, size_t most, bool trusted) {
  SessionFile file;
  std::string_view content, data;
  try {
    content = content_of(path, most, trusted, file.memory.emplace_back());
  } catch (const FileError& error) {
    refuse(path + ": the session cannot be read: " + error.reason);
  }
  Json header = split_header(content, path, "a session", kAnother, data);
  file.metadata = take_metadata(header, path);
  const std::string problem = layout_problem(header, data, file);
  if (!problem.empty()) refuse(path + ": the session is truncated or damaged: " + problem);
  file.metadata.erase(kSessionHash);
  if (!trusted && content.substr(0, content.size() - data.size()) != header_of(file.metadata, header, data))
    refuse(path + ": the session is damaged: it does not have the hash that it names");
  file.metadata.erase("format");
  return file;
}

SessionFile read_start(const std::string& path, size_t most) {
  SessionFile file;
  const auto content = std::make_shared<std::string>();
  file.memory.push_back(content);
  std::string_view data;
  Json header;
  try {
    const FileDescriptor opened(path, O_RDONLY | O_NONBLOCK);
    read_more(opened, kDrafterStateLengthBytes, *content);
    read_more(opened, static_cast<size_t>(std::min(header_bytes(*content), static_cast<uint64_t>(kDrafterStateLongest))), *content);
    header = split_header(*content, path, "a session", kAnother, data);
    file.metadata = take_metadata(header, path);
    read_more(opened, first_bytes(header.object(), most), *content);
  } catch (const FileError& error) {
    refuse(path + ": the session cannot be read: " + error.reason);
  }
  split_header(*content, path, "a session", kAnother, data);
  if (header.object().size() > 1) header.object().resize(1);
  const std::string problem = layout_problem(header, data, file);
  if (!problem.empty()) refuse(path + ": the session is truncated or damaged: " + problem);
  return file;
}

}  // namespace spc
