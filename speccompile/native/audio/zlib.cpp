#include "zlib.h"

#include <dlfcn.h>

#include <string>

#include "../errors.h"

namespace spc::audio {
namespace {

#if defined(__APPLE__)
constexpr const char* kLibrary = "libz.1.dylib";
#else
constexpr const char* kLibrary = "libz.so.1";
#endif

[[noreturn]] void refuse(const std::string& problem) {
  throw Error(Kind::kEngine, "a transcript is checked for repetitions by zlib: " + problem, "install it (apt install zlib1g)");
}

// Functions of zlib.h, whose types are the same on all systems.
struct Zlib {
  unsigned long (*compressBound)(unsigned long size);
  int (*compress)(unsigned char* to, unsigned long* size, const unsigned char* from, unsigned long count);

  Zlib() {
    void* const handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // never closed
    const char* const reason = handle ? nullptr : dlerror();
    if (!handle) refuse(reason ? reason : kLibrary);
    compressBound = reinterpret_cast<decltype(compressBound)>(dlsym(handle, "compressBound"));
    compress = reinterpret_cast<decltype(compress)>(dlsym(handle, "compress"));
    if (!compressBound || !compress) refuse(std::string(kLibrary) + " lacks its functions");
  }
};

}  // namespace

size_t compressed_size(std::string_view plain) {
  static const Zlib zlib;
  unsigned long size = zlib.compressBound(plain.size());
  std::string room(size, '\0');
  const int code = zlib.compress(reinterpret_cast<unsigned char*>(room.data()), &size, reinterpret_cast<const unsigned char*>(plain.data()), plain.size());
  if (code != 0) refuse("its error " + std::to_string(code));
  return size;
}

}  // namespace spc::audio
