// Base of all operators of the library: description for ONNX Runtime, tensors, threads and errors.
//
// An operator is a class with kName, kInputs, kOutputs (types), a constructor that takes `Info`, and
// `compute(Context&) const`. Both may throw: `Bridge` makes errors of ONNX Runtime of it. One with kIsVariadic takes any number of
// inputs of any type, and gives any number of outputs of one type.
#pragma once

#include <array>
#include <exception>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "float_mode.h"
#include "ort.h"
#include "thread_pool.h"

namespace speccompile {

struct Shape {
  int64_t sizes[8];
  size_t rank;

  int64_t operator[](size_t axis) const { return sizes[axis]; }
  int64_t last() const { return sizes[rank - 1]; }
  int64_t count() const { return product(rank); }
  int64_t rows() const { return product(rank - 1); }  // all axes but the last

 private:
  int64_t product(size_t axes) const {
    int64_t all = 1;
    for (size_t i = 0; i < axes; ++i) all *= sizes[i];
    return all;
  }
};

std::string describe(const Shape& shape);

// Failure of an operator, with the text of ONNX Runtime's error.
class OperatorError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throw OperatorError for the shape of an input that does not fit those of the others. name: the input's.
void expect(bool fits, const char* name, const Shape& received);

// Throws where ONNX Runtime itself refuses something.
void check(const OrtApi* api, OrtStatus* status);

// Told of ONNX Runtime's version, "1.17.0": newer ones lend a tensor's sizes, where older ones allocate for every question.
void set_version(const OrtApi* api, const char* version);

class Tensor {
 public:
  Tensor() = default;
  Tensor(const OrtApi* api, const OrtValue* value);
  Tensor(int type, const void* data, const Shape& shape) : type_(type), data_(data), shape_(shape) {}

  int type() const { return type_; }

  template <class T>
  const T* data() const {
    return static_cast<const T*>(data_);
  }
  // Throws unless the tensor has so many axes.
  const Shape& shape(size_t rank, const char* name) const;
  const Shape& shape() const& { return shape_; }
  const Shape& shape() const&& = delete;

 private:
  int type_ = 0;
  const void* data_ = nullptr;
  Shape shape_{};
};

constexpr size_t kComputed = ~size_t{0};  // the place of what another step gives

// Throws unless a tensor has the type that an operator reads.
void expect_type(const Tensor& tensor, int type, const char* name, size_t index);

// Attributes and constants of a graph's node when its session is opened.
class Info {
 public:
  Info(const OrtApi* api, const OrtKernelInfo* info, const char* name) : api_(api), info_(info), name_(name) {}

  // Info of a step of a node, an operator: its attributes have a suffix, and input i of it is input places[i] of the node, or
  // `kComputed`.
  template <class Operator>
  Info step(const std::string& suffix, const std::vector<size_t>& places) const {
    Info own(api_, info_, Operator::kName);
    own.suffix_ = suffix;
    for (size_t i = 0; i < places.size(); ++i) own.inputs_.emplace_back(places[i], Operator::kInputs[i]);
    return own;
  }

  int64_t integer(const char* attribute) const;
  int64_t integer(const char* attribute, int64_t otherwise) const;  // where it is missing
  float number(const char* attribute) const;
  std::string text(const char* attribute) const;
  // Throws unless the input is a constant: weights are read where they lie.
  Tensor constant(size_t index, const char* input) const;

 private:
  [[noreturn]] void missing(const char* attribute) const;

  const OrtApi* api_;
  const OrtKernelInfo* info_;
  const char* name_;
  std::string suffix_;
  std::vector<std::pair<size_t, int>> inputs_;  // of a step: their places and types
};

// Tensors that a step of a node reads and writes in place of the node's own tensors.
class StepValues {
 public:
  virtual Tensor input(size_t index) const = 0;
  virtual void* output(size_t index, const Shape& shape) = 0;

 protected:
  ~StepValues() = default;
};

// One run of a node.
class Context {
 public:
  // A function over [0, count), and what a call of it takes at least.
  struct Part {
    bool (*call)(const void* function, int64_t first, int64_t last);
    const void* function;
    int64_t count, grain;
  };

  // pools: those of the session; null for ONNX Runtime's own threads.
  Context(const OrtApi* api, OrtKernelContext* context, ThreadPools* pools) : api_(api), context_(context), pools_(pools) {}

  // Context of a step of the node.
  Context(const Context& node, StepValues& values) : api_(node.api_), context_(node.context_), pools_(node.pools_), step_(&values) {}

  Tensor input(size_t index) const;

  template <class T>
  T* output(size_t index, const Shape& shape) {
    return static_cast<T*>(allocate(index, shape));
  }

  void* allocate(size_t index, const Shape& shape);

  // f(first, last) over parts of [0, count), on the threads of the session; at least `grain` of them a part. What f
  // throws, or a false that it returns, is thrown here.
  template <class F>
  void parallel(int64_t count, int64_t grain, const F& f) const {
    const Part part{[](const void* function, int64_t first, int64_t last) { return (*static_cast<const F*>(function))(first, last); },
                    &f, count, grain < 1 ? 1 : grain};
    run(part);
  }

 private:
  void run(const Part& part) const;

  const OrtApi* api_;
  OrtKernelContext* context_;
  ThreadPools* pools_;
  StepValues* step_ = nullptr;
};

// Description of an operator for ONNX Runtime, and the threads of its sessions; 0 for ONNX Runtime's own.
struct Description {
  OrtCustomOp op;  // comes first: ONNX Runtime gives its address
  int threads;
};

template <class Operator>
struct Bridge {
  struct Kernel {
    const OrtApi* api;
    std::shared_ptr<ThreadPools> pools;
    Operator op;
  };

  template <class F>
  static OrtStatus* guarded(const OrtApi* api, F f) noexcept {
    try {
      f();
      return nullptr;
    } catch (const std::exception& error) {
      return ort::CreateStatus(api, ort::kFail, error.what());
    } catch (...) {
      return ort::CreateStatus(api, ort::kFail, Operator::kName);
    }
  }

  static OrtStatus* create(const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info, void** kernel) {
    const int threads = reinterpret_cast<const Description*>(op)->threads;
    return guarded(api, [&] { *kernel = new Kernel{api, ThreadPools::of(threads), Operator(Info(api, info, Operator::kName))}; });
  }
  static OrtStatus* compute(void* kernel, OrtKernelContext* context) {
    const Kernel* self = static_cast<const Kernel*>(kernel);
    return guarded(self->api, [&] {
      const FloatMode mode;  // of this thread; others have their own (Context::run)
      Context run(self->api, context, self->pools.get());
      self->op.compute(run);
    });
  }
  static void destroy(void* kernel) { delete static_cast<Kernel*>(kernel); }
};

template <class Operator, class = void>
constexpr bool kIsVariadic = false;
template <class Operator>
constexpr bool kIsVariadic<Operator, std::enable_if_t<Operator::kIsVariadic>> = true;

template <class Operator>
Description describe(int threads) {
  OrtCustomOp op{};
  op.version = ort::kVersion;
  op.GetName = [](const OrtCustomOp*) { return Operator::kName; };
  op.GetExecutionProviderType = [](const OrtCustomOp*) { return "CPUExecutionProvider"; };
  op.GetInputType = [](const OrtCustomOp*, size_t i) { return static_cast<int>(Operator::kInputs[i]); };
  op.GetInputTypeCount = [](const OrtCustomOp*) { return Operator::kInputs.size(); };
  op.GetOutputType = [](const OrtCustomOp*, size_t i) { return static_cast<int>(Operator::kOutputs[i]); };
  op.GetOutputTypeCount = [](const OrtCustomOp*) { return Operator::kOutputs.size(); };
  op.GetInputCharacteristic = op.GetOutputCharacteristic = [](const OrtCustomOp*, size_t) {
    return static_cast<int>(kIsVariadic<Operator> ? ort::kVariadic : ort::kRequired);
  };
  op.GetInputMemoryType = [](const OrtCustomOp*, size_t) { return 0; };  // default
  op.GetVariadicInputMinArity = [](const OrtCustomOp*) { return 1; };
  op.GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return static_cast<int>(!kIsVariadic<Operator>); };
  op.GetVariadicOutputMinArity = op.GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
  op.GetStartVersion = op.GetEndVersion = [](const OrtCustomOp*) { return 1; };
  op.CreateKernelV2 = Bridge<Operator>::create;
  op.KernelComputeV2 = Bridge<Operator>::compute;
  op.KernelDestroy = Bridge<Operator>::destroy;
  return {op, threads};
}

}  // namespace speccompile
