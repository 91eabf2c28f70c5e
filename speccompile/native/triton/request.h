// A request of the server's: its inputs, and its responses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "errors.h"

namespace triton {

// The values of an input, as the bytes that the client has sent.
struct Values {
  std::string name, bytes;
  size_t count = 0;

  // The value of an input that has one.
  template <class T>
  T single() const;
  template <class T>
  std::vector<T> numbers() const;
  std::vector<std::string> texts() const;
};

// An output as the server stores it.
struct Output {
  const char* name;
  TRITONSERVER_DataType type;
  int64_t count;
  std::string bytes;

  static Output text(const char* name, const std::string& value);
  static Output count_of(const char* name, size_t value);
  static Output ids(const char* name, const std::vector<int64_t>& values);
};

// Answered once, released at the end.
class Request {
 public:
  explicit Request(TRITONBACKEND_Request* request);
  ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // None where it was not sent. Throws Refused unless it is for one prompt.
  std::optional<Values> input(const char* name) const;
  bool cancelled() const;
  // A response with those of the outputs that are wanted.
  void send(const std::vector<Output>& outputs, bool final);
  // The last response: an error.
  void fail(std::exception_ptr thrown) noexcept;
  bool answered() const { return answered_ || !factory_; }
  bool succeeded() const { return succeeded_; }
  TRITONBACKEND_Request* get() const { return request_; }

 private:
  bool wants(const char* name) const;

  TRITONBACKEND_Request* request_;
  TRITONBACKEND_ResponseFactory* factory_ = nullptr;
  std::vector<std::string> wanted_;
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
