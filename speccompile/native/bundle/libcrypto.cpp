// Declarations: https://docs.openssl.org/master/man3/, EVP_PKEY_new (2), EVP_DigestVerifyInit, EVP_DigestInit (EVP_Digest). They
// are the same in OpenSSL 1.1.1 and 3.
#include "libcrypto.h"

#include <dlfcn.h>

#include <memory>

#include "../errors.h"

namespace spc {
namespace {

#if defined(__APPLE__)
constexpr const char* kNames[] = {"libcrypto.3.dylib", "libcrypto.dylib"};
#else
constexpr const char* kNames[] = {"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so"};
#endif
constexpr const char* kHint = "install OpenSSL (apt install libssl3), or check the signature with the Python package or minisign";
constexpr int kEd25519 = 1087;  // EVP_PKEY_ED25519

using Bytes = const unsigned char*;

Bytes bytes_of(std::string_view text) { return reinterpret_cast<Bytes>(text.data()); }

[[noreturn]] void refuse(const std::string& problem) {
  throw Error(Kind::kEngine, "a signature needs OpenSSL's libcrypto, version 1.1.1 or newer: " + problem, kHint);
}

void* open_first() {
  std::string tried;
  for (const char* name : kNames) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
    const char* reason = dlerror();
    tried += (tried.empty() ? "" : "; ") + std::string(reason ? reason : name);
  }
  refuse(tried);
}

struct Libcrypto {
  explicit Libcrypto(void* library) {
    take(library, "EVP_PKEY_new_raw_public_key", new_key);
    take(library, "EVP_PKEY_free", free_key);
    take(library, "EVP_MD_CTX_new", new_context);
    take(library, "EVP_MD_CTX_free", free_context);
    take(library, "EVP_DigestVerifyInit", begin);
    take(library, "EVP_DigestVerify", verify);
    take(library, "EVP_blake2b512", blake2b);
    take(library, "EVP_Digest", digest);
    take(library, "ERR_clear_error", clear_errors);
  }

  // Never closed: other code of the process may use the same library. Throws Error(kEngine).
  static const Libcrypto& get() {
    static const auto* const loaded = new Libcrypto(open_first());
    return *loaded;
  }

  void* (*new_key)(int type, void* engine, Bytes key, size_t size);
  void (*free_key)(void* key);
  void* (*new_context)();
  void (*free_context)(void* context);
  int (*begin)(void* context, void** key_context, const void* hash, void* engine, void* key);
  int (*verify)(void* context, Bytes signature, size_t signature_size, Bytes message, size_t size);
  const void* (*blake2b)();
  int (*digest)(const void* bytes, size_t size, unsigned char* to, unsigned* written, const void* hash, void* engine);
  void (*clear_errors)();

 private:
  template <class Function>
  static void take(void* library, const char* name, Function& to) {
    to = reinterpret_cast<Function>(dlsym(library, name));
    if (!to) refuse(std::string("it has no ") + name);
  }
};

}  // namespace

std::string blake2b(std::string_view bytes) {
  const Libcrypto& library = Libcrypto::get();
  unsigned char made[64];
  unsigned size = 0;
  if (library.digest(bytes.data(), bytes.size(), made, &size, library.blake2b(), nullptr) != 1 || size != sizeof made) {
    library.clear_errors();
    refuse("it has no BLAKE2b");  // as where only what FIPS allows is there
  }
  return {reinterpret_cast<const char*>(made), sizeof made};
}

bool is_signed(std::string_view message, std::string_view signature, std::string_view key) {
  const Libcrypto& library = Libcrypto::get();
  const std::unique_ptr<void, void (*)(void*)> made(library.new_key(kEd25519, nullptr, bytes_of(key), key.size()), library.free_key);
  const std::unique_ptr<void, void (*)(void*)> context(library.new_context(), library.free_context);
  const bool begun = made && context && library.begin(context.get(), nullptr, nullptr, nullptr, made.get()) == 1;
  const bool found = begun && library.verify(context.get(), bytes_of(signature), signature.size(), bytes_of(message), message.size()) == 1;
  library.clear_errors();  // the caller's own code may read them
  if (!begun) refuse("it has no Ed25519");
  return found;
}

}  // namespace spc
