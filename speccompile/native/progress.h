// What is told beside results: warnings and progress, as Python's logger "speccompile". Silent until somebody listens.
#pragma once

#include <functional>
#include <string>

namespace spc {

enum class Level : int { kInfo = 20, kWarning = 30 };

using Sink = std::function<void(Level, const std::string& line)>;

// Where lines go from now on, from any thread; none where `sink` is empty.
void log_to(Sink sink);
void log(Level level, const std::string& line);
inline void warn(const std::string& line) { log(Level::kWarning, line); }

// Tells that a step begins, and its seconds when it took over one (speccompile/progress.py: step).
class Step {
 public:
  explicit Step(std::string title);
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

 private:
  std::string title_;
  double start_;
  int failing_;
};

}  // namespace spc
