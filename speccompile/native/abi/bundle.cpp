// Bundles: opened, described, and their tokenizer.
#include <algorithm>
#include <charconv>
#include <cstring>

#include "handles.h"

namespace spc {
namespace {

// Return the whole number of an option, at least `least`. otherwise: what leaving it out means.
template <class Number>
Number number_of(const std::string& name, const std::string& value, Number least, const char* otherwise) {
  Number count = 0;
  const char* const end = value.data() + value.size();
  const auto [at, error] = std::from_chars(value.data(), end, count);
  if (error == std::errc() && at == end && count >= least) return count;
  throw Error(Kind::kUsage, name + ": received " + python_repr(value) + ", expected a whole number from " + std::to_string(least) + " on",
              std::string("leave it out for ") + otherwise);
}

bool verify_of(const std::string& value) {
  if (value == "true" || value == "false") return value == "true";
  throw Error(Kind::kUsage, "verify: received " + python_repr(value) + ", expected true or false", "leave it out for true");
}

const std::string& signer_of(const std::string& value) {
  if (!value.empty()) return value;  // an empty one, perhaps a variable that is not set, must not open what is not signed
  throw Error(Kind::kUsage, "signed_by: received an empty text, expected the file of a public key", "leave it out to open any bundle");
}

OpenOptions options_of(const char* const* options) {
  OpenOptions made;
  for (; options && *options; options += 2) {
    const std::string name = options[0];
    require_pointer(options[1], options[0]);
    const std::string value = options[1];
    if (name == "engine")
      made.engine = value;
    else if (name == "onnxruntime")
      made.onnxruntime = value;
    else if (name == "threads")
      made.threads = number_of(name, value, 1, "one a core");
    else if (name == "image_cache")
      made.image_cache = number_of<int64_t>(name, value, 0, "256 MiB");
    else if (name == "verify")
      made.verify = verify_of(value);
    else if (name == "signed_by")
      made.signed_by = signer_of(value);
    else
      throw Error(Kind::kUsage, "received the option " + python_repr(name) + ", expected one of engine, threads, verify, signed_by, image_cache, onnxruntime",
                  "options are names and values in turn, closed by NULL");
  }
  return made;
}

// Copy a result to the caller's buffer of size `given`; `given` becomes the size that was or would be written.
template <class Item>
void hand_out(const Item* made, size_t count, Item* to, size_t* given) {
  const size_t room = *given;
  *given = count;
  if (count > room)
    throw Error(Kind::kTooSmall, "received room for " + std::to_string(room) + ", expected " + std::to_string(count), "give that much");
  if (count) require_pointer(to, "the buffer");
  std::copy_n(made, count, to);
}

}  // namespace
}  // namespace spc

extern "C" {

spc_error* spc_bundle_open(const char* folder, const char* const* options, spc_bundle** bundle) {
  return spc::call_with({{folder, "folder"}, {bundle, "bundle"}}, [&] {
    auto made = std::make_unique<spc_bundle>();
    made->bundle = std::make_shared<const spc::Bundle>(folder, spc::options_of(options));
    made->manifest = made->bundle->manifest().json.canonical();
    made->description = made->bundle->description().dump();
    *bundle = made.release();
  });
}

void spc_bundle_free(spc_bundle* bundle) {
  spc_error_free(spc::call_guarded([&] { delete bundle; }));
}

const char* spc_bundle_manifest(const spc_bundle* bundle) { return bundle ? bundle->manifest.c_str() : ""; }
const char* spc_bundle_description(const spc_bundle* bundle) { return bundle ? bundle->description.c_str() : ""; }

spc_error* spc_bundle_encode(const spc_bundle* bundle, const char* text, size_t size, int special_tokens, int64_t* ids, size_t* count) {
  return spc::call_with({{bundle, "bundle"}, {count, "count"}}, [&] {
    spc::require_size(size, "size");
    if (size) spc::require_pointer(text, "text");
    const spc::Text& tokenizer = bundle->bundle->require_tokenizer("this bundle has no tokenizer", "give token ids instead of text");
    const spc::TokenIds made = tokenizer.encode({size ? text : "", size}, special_tokens != 0);
    spc::hand_out(made.data(), made.size(), ids, count);
  });
}

spc_error* spc_bundle_decode(const spc_bundle* bundle, const int64_t* ids, size_t count, char* text, size_t* size) {
  return spc::call_with({{bundle, "bundle"}, {size, "size"}}, [&] {
    spc::require_size(count, "count");
    if (count) spc::require_pointer(ids, "ids");
    const spc::Text& tokenizer = bundle->bundle->require_tokenizer("this bundle has no tokenizer", "use the token ids as they are");
    const std::string made = tokenizer.decode(count ? spc::TokenIds(ids, ids + count) : spc::TokenIds());
    spc::hand_out(made.data(), made.size(), text, size);
  });
}

}  // extern "C"
