#include "request.h"

#include <algorithm>
#include <cstring>

namespace triton {

namespace {

std::string shape_text(const int64_t* shape, uint32_t rank) {
  std::string text = "[";
  for (uint32_t axis = 0; axis < rank; ++axis) text += (axis ? ", " : "") + std::to_string(shape[axis]);
  return text + "]";
}

void check_host_memory(TRITONSERVER_MemoryType memory, const char* name) {
  if (memory == TRITONSERVER_MEMORY_CPU || memory == TRITONSERVER_MEMORY_CPU_PINNED) return;
  throw Refused(TRITONSERVER_ERROR_INVALID_ARG, std::string("the ") + name + " is in the memory of a GPU, expected the processor's",
                "use the processor's memory");
}

// Append the part of an input that lies in one of its buffers.
void append(std::string& bytes, TRITONBACKEND_Input* input, uint32_t index) {
  const void* data = nullptr;
  uint64_t size = 0;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  check(TRITONBACKEND_InputBuffer(input, index, &data, &size, &memory, &memory_id));
  check_host_memory(memory, "input");
  bytes.append(static_cast<const char*>(data), size);
}

}  // namespace

std::vector<std::string> Values::texts() const {
  std::vector<std::string> found;
  for (size_t place = 0; place < bytes.size();) {
    uint32_t size = 0;
    if (bytes.size() - place >= sizeof size) std::memcpy(&size, bytes.data() + place, sizeof size);
    if (bytes.size() - place < sizeof size + size) throw std::runtime_error(name + ": received bytes that end inside a text");
    found.push_back(bytes.substr(place + sizeof size, size));
    place += sizeof size + size;
  }
  return found;
}

Output Output::text(const char* name, const std::string& value) {
  const uint32_t size = static_cast<uint32_t>(value.size());
  return {name, TRITONSERVER_TYPE_BYTES, 1, std::string(reinterpret_cast<const char*>(&size), sizeof size) + value};
}

Output Output::count_of(const char* name, size_t value) {
  const uint32_t count = static_cast<uint32_t>(value);
  return {name, TRITONSERVER_TYPE_UINT32, 1, std::string(reinterpret_cast<const char*>(&count), sizeof count)};
}

Output Output::ids(const char* name, const std::vector<int64_t>& values) {
  const char* data = reinterpret_cast<const char*>(values.data());
  return {name, TRITONSERVER_TYPE_INT64, static_cast<int64_t>(values.size()), std::string(data, values.size() * sizeof(int64_t))};
}

Request::Request(TRITONBACKEND_Request* request) : request_(request) {
  ignore(TRITONBACKEND_ResponseFactoryNew(&factory_, request));  // an exception here would leave the request unreleased
  uint32_t count = 0;
  ignore(TRITONBACKEND_RequestOutputCount(request, &count));
  for (uint32_t index = 0; index < count; ++index) {
    const char* name = nullptr;
    ignore(TRITONBACKEND_RequestOutputName(request, index, &name));
    if (name) requested_outputs_.emplace_back(name);
  }
}

Request::~Request() {
  if (factory_) ignore(TRITONBACKEND_ResponseFactoryDelete(factory_));
  ignore(TRITONBACKEND_RequestRelease(request_, TRITONSERVER_REQUEST_RELEASE_ALL));
}

std::optional<Values> Request::input(const char* name) const {
  TRITONBACKEND_Input* input = nullptr;
  if (TRITONSERVER_Error* absent = TRITONBACKEND_RequestInput(request_, name, &input)) {
    ignore(absent);
    return std::nullopt;
  }
  const int64_t* shape = nullptr;
  uint32_t rank = 0, buffers = 0;
  uint64_t size = 0;
  check(TRITONBACKEND_InputProperties(input, nullptr, nullptr, &shape, &rank, &size, &buffers));
  Values values{name, "", 1};
  for (uint32_t axis = 0; axis < rank; ++axis) values.count *= static_cast<size_t>(shape[axis]);
  if (!rank || shape[0] != 1 || !values.count)
    throw Refused(TRITONSERVER_ERROR_INVALID_ARG,
                  name + (": received shape " + shape_text(shape, rank)) + ", expected one row with at least one value",
                  "send a request for each prompt: those that arrive together run side by side");
  for (uint32_t index = 0; index < buffers; ++index) append(values.bytes, input, index);
  return values;
}

bool Request::cancelled() const {
  bool found = false;
  ignore(TRITONBACKEND_RequestIsCancelled(request_, &found));
  return found;
}

bool Request::is_requested(const char* output) const {
  return std::find(requested_outputs_.begin(), requested_outputs_.end(), output) != requested_outputs_.end();
}

void Request::send(const std::vector<Output>& outputs, bool final) {
  TRITONBACKEND_Response* response = nullptr;
  check(TRITONBACKEND_ResponseNewFromFactory(&response, factory_));
  try {
    for (const Output& each : outputs) {
      if (!is_requested(each.name)) continue;
      const int64_t shape[] = {1, each.count};
      TRITONBACKEND_Output* output = nullptr;
      check(TRITONBACKEND_ResponseOutput(response, &output, each.name, each.type, shape, 2));
      void* data = nullptr;
      TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
      int64_t memory_id = 0;
      check(TRITONBACKEND_OutputBuffer(output, &data, each.bytes.size(), &memory, &memory_id));
      check_host_memory(memory, "answer");
      std::memcpy(data, each.bytes.data(), each.bytes.size());
    }
  } catch (...) {
    ignore(TRITONBACKEND_ResponseDelete(response));
    throw;
  }
  answered_ = succeeded_ = final;
  check(TRITONBACKEND_ResponseSend(response, final ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0, nullptr));
}

void Request::fail(std::exception_ptr thrown) noexcept {
  if (answered_ || !factory_) return;
  answered_ = true;
  TRITONSERVER_Error* error = error_of(thrown);
  TRITONBACKEND_Response* response = nullptr;
  ignore(TRITONBACKEND_ResponseNewFromFactory(&response, factory_));
  if (response) ignore(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  ignore(error);
}

}  // namespace triton
