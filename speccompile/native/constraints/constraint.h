// Constraints of new tokens: a JSON schema, a regular expression, a grammar, or a choice of texts (runtime/constraints).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../bundle/manifest.h"
#include "../json.h"
#include "matcher.h"
#include "tokens.h"

namespace spc::constraints {

constexpr char kSimpler[] = "ask for a simpler form, or give Bundle.constraint other limits, in Python";

// Throw Error(kUsage) for a kind that is none of constraint_kind::kAll.
void check_kind(const std::string& kind);

// Limit of the size of a constraint's text, or of its JSON. hint: of the error about one that exceeds it.
struct SizeLimit {
  int64_t bytes = 64 * 1024;
  const char* hint = kSimpler;
};

// Compiled constraint of some sequences, of one thread.
class Constraint {
 public:
  explicit Constraint(Matcher compiled) : compiled_(std::move(compiled)) {}
  // Return a new matcher for one sequence. ends: tokens that end it; other end tokens of the model are never allowed.
  Matcher matcher(const std::vector<int64_t>& ends) const { return compiled_.copy(ends); }

 private:
  const Matcher compiled_;
};

// Compiler of constraints for a bundle. It reads the tokenizer at first use. Thread-safe.
class Compiler {
 public:
  // tokenizer: path of a tokenizer.json, "" if the bundle has none.
  Compiler(const Manifest& manifest, std::string tokenizer);

  // True if the bundle takes constraints.
  bool is_supported() const { return is_supported_; }
  // Compile a constraint. kind: of constraint_kind::kAll; text: a text, or what `json_schema` and `choice` take else. Throws Error(kUsage) for
  // bundles that were built without constraints, for one that reaches a limit, and for what is not supported: no part of a constraint
  // is ignored.
  std::shared_ptr<const Constraint> compile(const std::string& kind, const Json& text, const SizeLimit& most = {}) const;
  // Return the special token with a text, -1 without one. Throws Error.
  int64_t special(const std::string& text) const { return tokens()->special(text); }

 private:
  std::shared_ptr<const Tokens> tokens() const;

  const Manifest& manifest_;
  const std::string tokenizer_;
  bool is_supported_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Tokens> tokens_;
};

}  // namespace spc::constraints
