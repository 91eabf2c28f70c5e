// Errors as the caller's objects, the log, and what the library is.
#include <exception>
#include <new>
#include <stdexcept>

#include "../progress.h"
#include "handles.h"

namespace spc {
namespace {

// The numbers of the ABI's header are those of both runtimes.
static_assert(static_cast<int>(Kind::kFailed) == SPC_FAILED && static_cast<int>(Kind::kUsage) == SPC_USAGE);
static_assert(static_cast<int>(Kind::kBundle) == SPC_BUNDLE && static_cast<int>(Kind::kEngine) == SPC_ENGINE);
static_assert(static_cast<int>(Kind::kPrompt) == SPC_PROMPT && static_cast<int>(Kind::kCancelled) == SPC_CANCELLED);
static_assert(static_cast<int>(Kind::kMemory) == SPC_MEMORY && static_cast<int>(Kind::kTooSmall) == SPC_TOO_SMALL);
static_assert(static_cast<int>(Kind::kOverloaded) == SPC_OVERLOADED && static_cast<int>(Kind::kDefect) == SPC_DEFECT);

// Error for when no memory is left for an error. Made with the library, while there is memory; never freed.
spc_error* const kOutOfMemory = new spc_error{SPC_MEMORY, 1, "out of memory", "free some memory, or use a bundle with a smaller cache"};

spc_error* made(int kind, const std::string& message, const std::string& hint) {
  return new spc_error{kind, exit_code(static_cast<Kind>(kind)), message, hint};
}

// Throws where there is no memory for the words.
spc_error* describe() {
  try {
    throw;
  } catch (const Error& error) {
    return made(static_cast<int>(error.kind), error.message, error.hint);
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  } catch (const std::length_error&) {  // a size that no memory has
    return kOutOfMemory;
  } catch (const std::exception& error) {
    return made(SPC_DEFECT, std::string("this is a defect of speccompile: ") + error.what(), "please report it");
  } catch (...) {
    return made(SPC_DEFECT, "this is a defect of speccompile", "please report it");
  }
}

}  // namespace

spc_error* current_error() noexcept {
  try {
    return describe();
  } catch (...) {
    return kOutOfMemory;
  }
}

void require_pointer(const void* pointer, const char* name) {
  if (!pointer) throw Error(Kind::kUsage, std::string(name) + ": received NULL, expected a pointer", "see speccompile.h");
}

void require_size(size_t count, const char* name) {
  constexpr size_t kMost = size_t{1} << 32;
  if (count > kMost)
    throw Error(Kind::kUsage, std::string(name) + ": received " + std::to_string(count) + ", expected at most " + std::to_string(kMost),
                "no prompt is as long; a count below zero looks like this");
}

}  // namespace spc

extern "C" {

uint32_t spc_abi(void) { return SPC_ABI; }
const char* spc_version(void) { return spc::kVersion; }

int spc_error_kind(const spc_error* error) { return error ? error->kind : 0; }
int spc_error_exit_code(const spc_error* error) { return error ? error->exit_code : 0; }
const char* spc_error_message(const spc_error* error) { return error ? error->message.c_str() : ""; }
const char* spc_error_hint(const spc_error* error) { return error ? error->hint.c_str() : ""; }

void spc_error_free(spc_error* error) {
  if (error != spc::kOutOfMemory) delete error;
}

void spc_log_to(void (*sink)(void* user, int level, const char* line), void* user) {
  spc_error_free(spc::call_guarded([&] {
    spc::Sink to;
    if (sink)
      to = [sink, user](spc::Level level, const std::string& line) {
        if (level >= spc::Level::kInfo) sink(user, static_cast<int>(level), line.c_str());
      };
    spc::log_to(std::move(to));
  }));
}

}  // extern "C"
