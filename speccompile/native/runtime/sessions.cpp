#include "sessions.h"

#include <sys/stat.h>

#include <cstdio>
#include <map>
#include <mutex>
#include <new>

#include "../errors.h"
#include "../files.h"
#include "../kernels/choose.h"
#include "../progress.h"
#include "../system.h"
#include "../words.h"
#include "prepacked.h"

// operators/library.cpp, which is linked in
extern "C" OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base);

namespace spc {
namespace {

// Return a key of a file's present content. A file that is written anew has another one, whatever the hashes of its bundle say.
std::string file_identity(const std::string& path) {
  struct stat found = {};
  if (stat(path.c_str(), &found) != 0) return path;
  return std::to_string(found.st_dev) + ":" + std::to_string(found.st_ino) + ":" + std::to_string(found.st_size) + ":" +
         std::to_string(modified_nanoseconds(found)) + "/";
}

bool calls_kernels(const std::string& graph) {
  try {
    return MappedFile(graph).bytes().find(kKernelsDomain) != std::string_view::npos;
  } catch (const FileError&) {
    return false;  // ONNX Runtime says what is wrong with it
  }
}

SharedSession open_file(const Ort& library, const std::string& path, const SessionOptions& options) {
  return create_session(library, name_of(path), [&] {
    OrtSession* session = nullptr;
    library.check(ort::CreateSession(library.api(), library.env(), path.c_str(), options.get(), &session));
    return session;
  });
}

// Open a graph and write it again with its weights, as they are and packed.
void save_packed(const Ort& library, int threads, const std::string& graph, const std::string& output) {
  const std::string name = name_of(output);
  const SessionOptions options = session_options(library, threads,
                                                 {{"optimized_model_external_initializers_file_name", name + ".weights"},
                                                  {"optimized_model_external_initializers_min_size_in_bytes", "1024"},
                                                  {"save_external_prepacked_constant_initializers", "1"}});
  library.check(ort::SetOptimizedModelFilePath(library.api(), options.get(), output.c_str()));
  // it would warn that what it writes is for this machine
  library.check(ort::SetSessionLogSeverityLevel(library.api(), options.get(), ort::kLogError));
  open_file(library, graph, options);
}

SharedSession open_serialized(const Ort& library, int threads, const std::string& file, const std::string& model) {
  const SessionOptions options = session_options(library, threads, {{"model_external_initializers_file_folder_path", kRoot}});
  return create_session(library, file, [&] {
    OrtSession* session = nullptr;
    library.check(ort::CreateSessionFromArray(library.api(), library.env(), model.data(), model.size(), options.get(), &session));
    return session;
  });
}

SharedSession open_session(const Ort& library, const std::string& folder, const std::string& file, int threads, bool verify) {
  const std::string graph = join_path(folder, file);
  const bool has_kernels = calls_kernels(graph);
  if (!has_kernels) {
    SharedSession mapped;
    const bool is_mapped = open_with_prepacked(
        folder, file, library.version(), verify,
        [&](const std::string& from, const std::string& output) { save_packed(library, threads, from, output); },
        [&](const std::string& model) { mapped = open_serialized(library, threads, file, model); });
    if (is_mapped) return mapped;
  }
  // The kernels have threads of their own. Other nodes are small: a thread that spins for them takes more than it gives.
  std::vector<std::pair<std::string, std::string>> entries;
  if (has_kernels && kernels_in_use() != kNoKernels) entries.emplace_back("intra_op.allow_spinning", "0");
  // With the kernels the weights lie in their file as they are read, and are mapped as they are.
  SharedSession session = open_file(library, graph, session_options(library, threads, entries));
  if (kernels_in_use() == kNoKernels) trim_heap();  // ONNX Runtime has freed the weights as they were read: it uses packed copies
  return session;
}

// Return a remedy for a graph that ONNX Runtime does not take. Graphs commit rows by an operator that it has on the processor since
// 1.25.
std::string version_hint(const Ort& library) {
  constexpr int kSince = 25;
  int major = 0, minor = 0;
  const bool is_known = std::sscanf(library.version().c_str(), "%d.%d", &major, &minor) == 2;
  if (is_known && major == 1 && minor < kSince) return "use ONNX Runtime 1." + std::to_string(kSince) + " or newer, which bundles need";
  return "`speccompile inspect` shows the version that the bundle was built with";
}

}  // namespace

SessionOptions session_options(const Ort& library, int threads, const std::vector<std::pair<std::string, std::string>>& entries) {
  OrtSessionOptions* made = nullptr;
  library.check(ort::CreateSessionOptions(library.api(), &made));
  const SessionOptions options = make_shared_handle(library, made, ort::ReleaseSessionOptions);
  const auto set = [&](const std::string& name, const std::string& value) {
    library.check(ort::AddSessionConfigEntry(library.api(), made, name.c_str(), value.c_str()));
  };
  library.check(ort::SetIntraOpNumThreads(library.api(), made, threads));
  for (const auto& [name, value] : entries) set("session." + name, value);
  // The graphs of a round take turns, each with its own threads. Those of the one that just ran would spin on the cores that
  // the next one needs.
  set("session.force_spinning_stop", "1");
  // Quantized graphs run as they are written: otherwise activations are quantized that the graph leaves alone, and an
  // optimizer drops a Relu in front of a quantization, even one to signed numbers.
  set("session.disable_quant_qdq", "1");
  set("optimization.disable_specified_optimizers", "ReluQuantRewrite");
  library.check(ort::AddSessionConfigEntry(library.api(), made, kThreadsEntry, std::to_string(threads).c_str()));
  if (kernels_in_use() != kNoKernels) library.check(RegisterCustomOps(made, library.base()));
  return options;
}

SharedSession shared_session(const Ort& library, const std::string& folder, const std::string& file, int threads, bool verify) {
  static auto* mutex = new std::mutex;
  static auto* open = new std::map<std::string, std::weak_ptr<OrtSession>>;
  const std::lock_guard<std::mutex> lock(*mutex);
  const std::string graph = join_path(folder, file);
  std::string key = std::to_string(threads) + "/" + kernels_in_use() + "/" + file_identity(graph);
  for (const std::string& weights : weights_of(graph)) key += file_identity(weights);
  std::weak_ptr<OrtSession>& known = (*open)[key];
  SharedSession session = known.lock();
  if (!session) known = session = open_session(library, folder, file, threads, verify);
  for (auto each = open->begin(); each != open->end();) each = each->second.expired() ? open->erase(each) : std::next(each);
  return session;
}

SharedSession create_session(const Ort& library, const std::string& file, const std::function<OrtSession*()>& open) {
  try {
    return make_shared_handle(library, open(), ort::ReleaseSession);
  } catch (const OrtError& refusal) {
    // it has no error code for memory that ran out: these are the words of C++, of the C library, and of its arena
    for (const char* words : {"std::bad_alloc", "Cannot allocate memory", "Failed to allocate memory"})
      if (refusal.message.find(words) != std::string::npos) throw std::bad_alloc();
    throw Error(Kind::kEngine, "ONNX Runtime " + library.version() + " does not take " + file + ": " + refusal.message, version_hint(library));
  }
}

std::string kernels_in_use() {
  const std::string wanted = environment(kKernelsVariable);
  if (wanted == kNoKernels) return wanted;
  if (wanted.empty()) return speccompile::kernels().name;
  std::vector<std::string> known;
  for (const speccompile::Kernels* const* path = speccompile::runnable_paths(); *path; ++path) {
    if (wanted == (*path)->name) return speccompile::kernels().name;
    known.emplace_back((*path)->name);
  }
  throw Error(Kind::kUsage, std::string("$") + kKernelsVariable + " is '" + wanted + "', which this machine cannot run",
              "set it to one of " + joined(known) + ", " + kNoKernels + ", or unset it for the fastest");
}

}  // namespace spc
