// The encoder's graph in ONNX Runtime.
#include <algorithm>

#include "../errors.h"
#include "../files.h"
#include "../runtime/sessions.h"
#include "reader.h"

namespace spc::images {
namespace {

std::shared_ptr<OrtValue> tensor_of(const Ort& library, const OrtMemoryInfo* memory, const EncoderInput& input) {
  const bool is_float = !input.floats.empty();
  const void* const data = is_float ? static_cast<const void*>(input.floats.data()) : input.ints.data();
  const size_t bytes = is_float ? input.floats.size() * sizeof(float) : input.ints.size() * sizeof(int64_t);
  OrtValue* value = nullptr;
  // the graph only reads its inputs
  library.check(ort::CreateTensorWithDataAsOrtValue(library.api(), memory, const_cast<void*>(data), bytes, input.shape.data(), input.shape.size(),
                                                   onnx_type(is_float ? dtype::kFloat32 : dtype::kInt64), &value));
  return make_shared_handle(library, value, ort::ReleaseValue);
}

Rows rows_of(const Ort& library, OrtValue* value) {
  OrtTensorTypeAndShapeInfo* made = nullptr;
  library.check(speccompile::ort::GetTensorTypeAndShape(library.api(), value, &made));
  const auto info = make_shared_handle(library, made, speccompile::ort::ReleaseTensorTypeAndShapeInfo);
  size_t rank = 0;
  int type = 0;
  library.check(speccompile::ort::GetDimensionsCount(library.api(), made, &rank));
  library.check(speccompile::ort::GetTensorElementType(library.api(), made, &type));
  std::vector<int64_t> shape(rank);
  library.check(speccompile::ort::GetDimensions(library.api(), made, shape.data(), rank));
  if (rank != 2 || type != speccompile::ort::kFloat)
    throw Error(Kind::kEngine, std::string(kEncodeImage) + ": received rows with " + std::to_string(rank) + " dimensions, expected float32 rows with 2", "build the bundle again");
  void* data = nullptr;
  library.check(speccompile::ort::GetTensorMutableData(library.api(), value, &data));
  const auto* const values = static_cast<const float*>(data);
  return {shape[0], shape[1], {values, values + shape[0] * shape[1]}};
}

Rows run(const Ort& library, OrtSession* session, const OrtMemoryInfo* memory, const EncoderRun& given) {
  std::vector<const char*> names;
  std::vector<std::shared_ptr<OrtValue>> held;
  std::vector<const OrtValue*> inputs;
  OrtValue* output = nullptr;
  try {
    for (const EncoderInput& input : given) {
      names.push_back(input.name);
      held.push_back(tensor_of(library, memory, input));
      inputs.push_back(held.back().get());
    }
    const char* const rows = kRows;
    library.check(ort::Run(library.api(), session, nullptr, names.data(), inputs.data(), inputs.size(), &rows, size_t{1}, &output));
  } catch (const OrtError& refusal) {
    throw Error(Kind::kEngine, std::string(kEncodeImage) + ": ONNX Runtime cannot run it: " + refusal.message);
  }
  return rows_of(library, make_shared_handle(library, output, ort::ReleaseValue).get());
}

}  // namespace

std::function<RunEncoder()> encoder_of(const Ort& library, const std::string& folder, int threads, bool verify) {
  return [&library, folder, threads, verify]() -> RunEncoder {
    const SharedSession session = shared_session(library, folder, std::string(kImagesFolder) + "/" + kEncodeImage + ".onnx", threads, verify);
    OrtMemoryInfo* made = nullptr;
    library.check(ort::CreateCpuMemoryInfo(library.api(), ort::kDeviceAllocator, ort::kDefaultMemory, &made));
    const auto memory = make_shared_handle(library, made, ort::ReleaseMemoryInfo);
    return [&library, session, memory](const EncoderRun& given) { return run(library, session.get(), memory.get(), given); };
  };
}

}  // namespace spc::images
