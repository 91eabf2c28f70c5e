#include "prepacked.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>

#include "../bundle/hashes.h"
#include "../bundle/manifest.h"
#include "../bundle/sha256.h"
#include "../errors.h"
#include "../progress.h"
#include "../system.h"
#include "../words.h"
#include "onnx_file.h"

namespace fs = std::filesystem;

namespace spc {
namespace {

constexpr const char* kPacking = "packing";  // file whose name, the hash of its content, is not known yet

size_t whole_pages(size_t size) {
  constexpr size_t kPageBytes = kPage;
  return (size + kPageBytes - 1) / kPageBytes * kPageBytes;
}

[[noreturn]] void refuse(const std::string& message) { throw Error(Kind::kEngine, message); }

size_t number(const std::string& text) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    refuse("ONNX Runtime says of packed weights " + python_repr(text) + ", expected a number");
  return value;
}

// A packed form of a tensor: ONNX Runtime's key, and its buffers in the file that it was saved to.
struct Packed {
  std::string key;
  std::vector<std::string_view> buffers;
};

// Return the packed forms of a tensor from the attributes that ONNX Runtime writes: "key|start;size;checksum", and more of the
// latter three where a kernel packs into several buffers.
std::vector<Packed> packed_forms(const Entries& tensor, std::string_view content) {
  std::vector<Packed> forms;
  for (const auto& [name, text] : tensor) {
    if (!starts_with(name, "prepacked")) continue;
    const std::vector<std::string> parts = split(text, '|');
    Packed form{parts[0], {}};
    for (size_t i = 1; i < parts.size(); ++i) {
      const std::vector<std::string> words = split(parts[i], ';');
      const size_t start = number(words[0]), size = words.size() > 1 ? number(words[1]) : 0;
      if (start > content.size() || size > content.size() - start)
        refuse("packed weights that ONNX Runtime saved end behind their file");
      form.buffers.push_back(content.substr(start, size));
    }
    forms.push_back(std::move(form));
  }
  return forms;
}

// Return the name of a tensor's file, which lies beside the graph.
std::string location_of(const Entries& tensor) {
  for (const auto& [key, value] : tensor)
    if (key == "location" && value.find('/') == std::string::npos) return value;
  refuse("ONNX Runtime saved a weight to no file beside its graph");
}

// Return a path relative to kRoot, in which ONNX Runtime looks for the weights of a serialized graph.
std::string from_root(const std::string& path) {
  std::error_code error;
  const fs::path resolved = fs::weakly_canonical(path, error);
  if (error) throw FileError(error.value());
  return resolved.relative_path().native();
}

// Return the initializer that carries an entry's packed weights to ONNX Runtime, by its key.
PlaceholderInitializer carrier(const std::string& key, const Json& packed, const std::string& entry) {
  std::string text = key;
  uint64_t start = 0;
  for (const Json& size : packed["sizes"].list()) {
    text += "|" + std::to_string(start) + ";" + std::to_string(size.integer()) + ";0";
    start += whole_pages(static_cast<size_t>(size.integer()));
  }
  return {from_root(join_path(entry, packed["file"].text())), {{"prepacked_0", text}}};
}

// Return the serialized graph with weights where they are and packed weights in a cache entry.
std::string with_packed(const std::string& graph, const CacheEntry& entry) {
  std::vector<PlaceholderInitializer> carriers;
  for (const auto& [key, packed] : entry.content["packed"].object()) carriers.push_back(carrier(key, packed, entry.folder));
  const std::string folder = parent_path(graph);
  const auto locate = [&](std::string_view location) { return from_root(join_path(folder, location)); };
  return with_carriers(MappedFile(graph).bytes(), locate, carriers);
}

std::string gigabytes(int64_t size) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GB", static_cast<double>(size) / 1e9);
  return text;
}

// Throw FileError unless the disk has four times the size of the weights. ONNX Runtime writes them as they are and packed, then the
// packed ones are written again; packed ones may be larger.
void check_disk_space(const std::string& folder, int64_t size) {
  constexpr double kCopies = 4;
  struct statvfs found {};
  if (statvfs(folder.c_str(), &found) != 0) throw FileError(errno);
  const double free = static_cast<double>(found.f_bavail) * static_cast<double>(found.f_frsize);
  if (free < kCopies * static_cast<double>(size)) throw FileError(ENOSPC);
}

}  // namespace

Json PrepackedKey::to_json() const {
  Json records{Json::Object{}};
  for (const auto& [name, digest] : files) records.set(name, digest);
  return Json::Object{{"format", kPrepackedFormat}, {"onnxruntime", onnxruntime}, {"processor", processor}, {"files", records}};
}

std::string PrepackedKey::digest() const { return sha256(to_json().canonical()); }

PrepackedKey packed_key(const std::string& folder, const std::string& file, const std::string& onnxruntime) {
  const Hashes hashes = read_hashes(folder, false);
  std::vector<std::string> names = {file};
  for (const std::string& path : weights_of(join_path(folder, file))) names.push_back(join_path(parent_path(file), name_of(path)));
  PrepackedKey key{{}, 0, onnxruntime, processor()};
  for (const std::string& name : names) {
    const FileRecord* record = hashes.find(name);
    if (!record) continue;
    key.files.emplace_back(name, record->blake3);
    if (name != file) key.size += record->size;
  }
  return key;
}

PrepackedWeights::PrepackedWeights(std::string folder, double limit) : cache_(std::move(folder), limit) {}

void PrepackedWeights::store(const PrepackedKey& key, const std::string& graph, const SaveGraph& save) const {
  if (static_cast<double>(key.size) > cache_.limit())
    refuse("its weights are " + gigabytes(key.size) + ", more than $" + kCacheLimit + " allows");
  cache_.add(key.digest(), [&](const std::string& part) {
    check_disk_space(part, key.size);
    save(graph, join_path(part, kSavedGraph));
    trim_heap();
    return Json(Json::Object{{"key", key.to_json()}, {"packed", extract_packed(join_path(part, kSavedGraph), part)}});
  });
}

bool PrepackedWeights::open(const PrepackedKey& key, const std::string& graph, const OpenGraph& open_graph, bool verify) const {
  const std::optional<CacheEntry> entry = cache_.read(key.digest(), "packed graph", verify);
  if (!entry) return false;
  open_graph(with_packed(graph, *entry));
  return true;
}

// Move the packed weights of a saved graph into files of their own, and remove the saved files. Return by ONNX Runtime's key the
// name of the file and the sizes of the buffers in it.
Json PrepackedWeights::extract_packed(const std::string& saved, const std::string& part) const {
  Json::Object packed;
  std::set<std::string> known, saved_files = {kSavedGraph};
  for (const Entries& tensor : external_data(read_file(saved))) {
    const std::string location = location_of(tensor);
    saved_files.insert(location);
    const MappedFile content(join_path(part, location));
    for (const Packed& form : packed_forms(tensor, content.bytes())) {
      size_t size = 0;
      Json::List sizes;
      for (const std::string_view buffer : form.buffers) {
        size += buffer.size();
        sizes.push_back(static_cast<int64_t>(buffer.size()));
      }
      if (size >= kSmallestPackedFile && known.insert(form.key).second)
        packed.emplace_back(form.key, Json::Object{{"file", write_buffers(form.buffers, part)}, {"sizes", sizes}});
    }
  }
  for (const std::string& name : saved_files)
    if (unlink(join_path(part, name).c_str()) != 0) throw FileError(errno);
  return packed;
}

// Write buffers into a file, each at the start of a page, or link a file of another entry that has this content. Return its name:
// the BLAKE3 of its content.
std::string PrepackedWeights::write_buffers(const std::vector<std::string_view>& buffers, const std::string& part) const {
  static constexpr char kZeros[kPage] = {};
  std::vector<std::string_view> pieces;
  for (const std::string_view buffer : buffers) {
    pieces.push_back(buffer);
    pieces.emplace_back(kZeros, whole_pages(buffer.size()) - buffer.size());
  }
  const std::string written = join_path(part, kPacking);
  write_file(written, pieces);
  const std::string name = hash_file(written);
  if (link_equal_file(name, part)) {
    unlink(written.c_str());
  } else if (std::rename(written.c_str(), join_path(part, name).c_str()) != 0) {
    throw FileError(errno);
  }
  return name;
}

// Link a file with this content from another entry into `part`. Return whether `part` has one now.
bool PrepackedWeights::link_equal_file(const std::string& name, const std::string& part) const {
  std::error_code error;
  const std::string wanted = join_path(part, name);
  if (fs::exists(wanted, error)) return true;
  for (fs::directory_iterator each(cache_.folder(), error), end; !error && each != end; each.increment(error)) {
    const std::string other = join_path(each->path().native(), name);
    if (each->path().filename().native()[0] == '.' || access(other.c_str(), R_OK) != 0) continue;
    try {
      if (hash_file(other) == name && link(other.c_str(), wanted.c_str()) == 0) return true;
    } catch (const Error&) {  // the other entry is removed meanwhile
    }
  }
  return false;
}

std::vector<std::string> weights_of(const std::string& graph) {
  std::vector<std::string> found;
  try {
    const MappedFile model(graph);
    const std::string folder = parent_path(graph), own = name_of(plain_path(graph));
    std::error_code error;
    for (fs::directory_iterator each(folder, error), end; !error && each != end; each.increment(error)) {
      const std::string name = each->path().filename().native();
      if (name != own && model.bytes().find(name) != std::string_view::npos) found.push_back(join_path(folder, name));
    }
  } catch (const FileError&) {  // ONNX Runtime says what is wrong with it
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool open_with_prepacked(const std::string& folder, const std::string& file, const std::string& onnxruntime, bool verify,
                         const SaveGraph& save, const OpenGraph& open_graph) {
  const PrepackedWeights packed;
  std::error_code error;
  if (packed.cache().limit() == 0 || !fs::is_regular_file(join_path(folder, kHashes), error)) return false;
  const PrepackedKey key = packed_key(folder, file, onnxruntime);
  if (key.size < kSmallestPackedGraph) return false;
  const std::string graph = join_path(folder, file), name = name_of(graph);
  std::string reason;
  try {
    if (packed.open(key, graph, open_graph, verify)) return true;
    {
      const Step step("packing the weights of " + name + ", once on this machine");
      packed.store(key, graph, save);
    }
    return packed.open(key, graph, open_graph, false);
  } catch (const FileError& error) {
    reason = error.reason;
  } catch (const Error& error) {
    if (error.kind != Kind::kBundle && error.kind != Kind::kEngine) throw;
    reason = error.message;
  }
  warn("note: the weights of " + name + " are held, not mapped from " + packed.cache().folder() + ": " + reason);
  return false;
}

}  // namespace spc
