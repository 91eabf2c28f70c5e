// A library that decodes pictures, loaded when the first file of its format comes: a program that has none starts all the same.
#pragma once

#include <dlfcn.h>

#include <string>

#include "../errors.h"

namespace spc::images {

// Throws Error(kEngine): no decoder for a format.
[[noreturn]] inline void refuse_format(const std::string& format, const std::string& problem, const std::string& hint) {
  throw Error(Kind::kEngine, "a picture in a " + format + " file needs a library: " + problem, hint + ", or give the picture as PPM");
}

class Library {
 public:
  // name: of the shared library; package: that has it, for the hint. It is never closed. Throws Error(kEngine).
  Library(const char* name, const char* format, const char* package) : format_(format), hint_(std::string("install it (apt install ") + package + ")") {
    handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const char* const reason = handle_ ? nullptr : dlerror();
    if (!handle_) refuse_format(format_, reason ? reason : name, hint_);
  }
  template <class Function>
  Function* take(const char* name) const {
    auto* const function = reinterpret_cast<Function*>(dlsym(handle_, name));
    if (!function) refuse_format(format_, std::string("it has no ") + name, hint_);
    return function;
  }

 private:
  const std::string format_, hint_;
  void* handle_ = nullptr;
};

// A member that is a function of the member `library`, with the type that its header declares.
#define SPC_FUNCTION(name) decltype(::name)* const name = library.take<decltype(::name)>(#name)

}  // namespace spc::images
