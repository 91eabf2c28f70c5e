// Log of warnings and progress, like Python's logger "speccompile". Silent until a sink is set.
#pragma once

#include <functional>
#include <string>

namespace spc {

enum class Level : int { kDebug = 10, kInfo = 20, kWarning = 30 };

using Sink = std::function<void(Level, const std::string& line)>;

// Set the sink of log lines, which any thread may call; empty for none.
void log_to(Sink sink);
void log(Level level, const std::string& line);
inline void warn(const std::string& line) { log(Level::kWarning, line); }

// Log the start of a step, and its seconds: for debugging if it took at most one (speccompile/progress.py: log_step).
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
