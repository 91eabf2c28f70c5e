// Entry points of the backend, which answers requests with a bundle, over speccompile's C ABI, without Python.
//
// A model is a bundle, opened once; its instances are sessions of it, which share its weights.
#include <sys/stat.h>

#include "../json.h"
#include "answers.h"

#define TRITON_EXPORT extern "C" __attribute__((visibility("default")))

namespace triton {
namespace {

constexpr uint32_t kMajor = 1, kMinor = 16;

// Options of spc_bundle_open, by the names of the model's parameters.
std::vector<std::string> options(TRITONBACKEND_Model* model) {
  TRITONSERVER_Message* message = nullptr;
  check(TRITONBACKEND_ModelConfig(model, 1, &message));
  const char* text = nullptr;
  size_t size = 0;
  TRITONSERVER_Error* failed = TRITONSERVER_MessageSerializeToJson(message, &text, &size);
  const spc::Json config = failed ? spc::Json() : spc::Json::parse({text, size});
  ignore(TRITONSERVER_MessageDelete(message));
  check(failed);
  std::vector<std::string> words;
  for (const char* name : {"engine", "threads"})
    if (const spc::Json* value = config["parameters"][name].find("string_value")) words.insert(words.end(), {name, value->text()});
  return words;
}

std::string version_folder(TRITONBACKEND_Model* model) {
  TRITONBACKEND_ArtifactType type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  const char* folder = nullptr;
  uint64_t version = 0;
  check(TRITONBACKEND_ModelRepository(model, &type, &folder));
  check(TRITONBACKEND_ModelVersion(model, &version));
  return std::string(folder) + "/" + std::to_string(version);
}

Bundle open_bundle(const std::string& folder, const std::vector<std::string>& words) {
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  pointers.push_back(nullptr);
  spc_bundle* bundle = nullptr;
  speccompile::check(spc_bundle_open(folder.c_str(), pointers.data(), &bundle));
  return Bundle(bundle);
}

// With the ONNX Runtime that lies beside the model, unless the process has one: the models of a server share the first's.
Bundle open_bundle(TRITONBACKEND_Model* handle) {
  const std::string folder = version_folder(handle), library = folder + "/libonnxruntime.so.1";
  std::vector<std::string> words = options(handle);
  struct stat found;
  if (stat(library.c_str(), &found) != 0) return open_bundle(folder + "/bundle", words);
  try {
    std::vector<std::string> beside = words;
    beside.insert(beside.end(), {"onnxruntime", library});
    return open_bundle(folder + "/bundle", beside);
  } catch (const speccompile::Error& error) {
    if (error.kind != SPC_ENGINE) throw;
    return open_bundle(folder + "/bundle", words);
  }
}

std::unique_ptr<Model> open_model(TRITONBACKEND_Model* handle) {
  auto model = std::make_unique<Model>(Model{open_bundle(handle), 1, false});
  const spc::Json manifest = spc::Json::parse(spc_bundle_manifest(model->bundle.get()));
  model->batch_size = static_cast<size_t>(manifest["batch_size"].integer());
  model->has_text = manifest["tokenizer"].boolean();
  return model;
}

void log_line(void*, int level, const char* line) { log(level >= 30 ? TRITONSERVER_LOG_WARN : TRITONSERVER_LOG_INFO, line); }

}  // namespace
}  // namespace triton

TRITON_EXPORT TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend*) {
  return triton::guarded([] {
    uint32_t major = 0, minor = 0;
    triton::check(TRITONBACKEND_ApiVersion(&major, &minor));
    if (major != triton::kMajor || minor < triton::kMinor)
      throw triton::Refused(TRITONSERVER_ERROR_UNSUPPORTED,
                            "this server has version " + std::to_string(major) + "." + std::to_string(minor) +
                                " of the interface for backends, expected 1.16 or a later 1",
                            "use a Triton Inference Server from 23.10 on");
    spc_log_to(triton::log_line, nullptr);
  });
}

TRITON_EXPORT TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  return triton::guarded([&] { triton::check(TRITONBACKEND_ModelSetState(model, triton::open_model(model).release())); });
}

TRITON_EXPORT TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return triton::guarded([&] {
    void* state = nullptr;
    triton::check(TRITONBACKEND_ModelState(model, &state));
    delete static_cast<triton::Model*>(state);
  });
}

TRITON_EXPORT TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  return triton::guarded([&] {
    TRITONBACKEND_Model* model = nullptr;
    void* state = nullptr;
    triton::check(TRITONBACKEND_ModelInstanceModel(instance, &model));
    triton::check(TRITONBACKEND_ModelState(model, &state));
    const auto& opened = *static_cast<triton::Model*>(state);
    spc_session* session = nullptr;
    speccompile::check(spc_session_create(opened.bundle.get(), &session));
    auto made = std::make_unique<triton::Instance>(triton::Instance{instance, opened, triton::Session(session)});
    triton::check(TRITONBACKEND_ModelInstanceSetState(instance, made.release()));
  });
}

TRITON_EXPORT TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {
  return triton::guarded([&] {
    void* state = nullptr;
    triton::check(TRITONBACKEND_ModelInstanceState(instance, &state));
    delete static_cast<triton::Instance*>(state);
  });
}

TRITON_EXPORT TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,
                                                                     TRITONBACKEND_Request** requests, uint32_t count) {
  void* state = nullptr;
  if (TRITONSERVER_Error* error = TRITONBACKEND_ModelInstanceState(instance, &state)) return error;  // the requests stay the server's
  triton::ignore(triton::guarded([&] { triton::answer(*static_cast<triton::Instance*>(state), requests, count); }));
  return nullptr;
}
