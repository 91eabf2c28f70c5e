// Request of Triton's server: its inputs and responses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "errors.h"

namespace triton {

// Values of an input, as the bytes that the client has sent.
struct Values {
  std::string name, bytes;
  size_t count = 0;

  // Return the first value.
  template <class T>
  T single() const;
  template <class T>
  std::vector<T> numbers() const;
  std::vector<std::string> texts() const;
};

// Output as the server stores it.
struct Output {
  const char* name;
  TRITONSERVER_DataType type;
  int64_t count;
  std::string bytes;

  static Output text(const char* name, const std::string& value);
  static Output count_of(const char* name, size_t value);
  static Output ids(const char* name, const std::vector<int64_t>& values);
};

// Owner of a request: it sends the responses, and releases the request at the end.
class Request {
 public:
  explicit Request(TRITONBACKEND_Request* request);
  ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // Return an input, none where it was not sent. Throws Refused unless it is for one prompt.
  std::optional<Values> input(const char* name) const;
  bool cancelled() const;
  // Send a response with those of the outputs that the client has requested.
  void send(const std::vector<Output>& outputs, bool final);
  // Send the last response, an error, unless the last one was sent.
  void fail(std::exception_ptr thrown) noexcept;
  bool answered() const { return answered_ || !factory_; }
  bool succeeded() const { return succeeded_; }
  TRITONBACKEND_Request* get() const { return request_; }

 private:
  bool is_requested(const char* output) const;

  TRITONBACKEND_Request* request_;
  TRITONBACKEND_ResponseFactory* factory_ = nullptr;
  std::vector<std::string> requested_outputs_;
  bool answered_ = false, succeeded_ = false;
};

template <class T>
std::vector<T> Values::numbers() const {
  std::vector<T> found(count);
  if (bytes.size() != count * sizeof(T)) throw std::runtime_error(name + ": received bytes that are not of its shape and type");
  bytes.copy(reinterpret_cast<char*>(found.data()), bytes.size());
  return found;
}

template <class T>
T Values::single() const {
  return numbers<T>().at(0);
}

}  // namespace triton
