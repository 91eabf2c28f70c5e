// Files that are part of the program (cmake/page.cmake).
#pragma once

#include <cstddef>

namespace spc::http {

// tag: for the header ETag.
struct EmbeddedFile {
  const char* name;
  const unsigned char* data;
  size_t size;
  const char* tag;
};

// The page to talk to the model, and the description of the API in OpenAPI's form.
extern const EmbeddedFile* const kPageFiles;
extern const size_t kPageFileCount;
extern const EmbeddedFile& kOpenapi;

}  // namespace spc::http
