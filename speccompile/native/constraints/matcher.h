// State of one sequence in its constraint (runtime/constraints/matcher.py).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parser.h"
#include "tokens.h"

namespace spc::constraints {

class Matcher {
 public:
  // stops: tokens that end the sequence. Throws TooComplex.
  Matcher(std::shared_ptr<const Tokens> tokens, std::shared_ptr<Grammar> grammar, std::vector<int64_t> stops);

  // Return a copy in the same state for a sequence that ends with those of the model's end tokens that are in `stops`.
  Matcher copy(const std::vector<int64_t>& stops) const;

  // Return the finish reason here, or "": `stop` if the text is complete and nothing can follow, `capacity` if it is not and no
  // token can follow, or the grammar has reached a limit.
  std::string end();
  // Return whether a token that is no end token may follow. Throws TooComplex.
  bool allows_any();
  // Advance by tokens that were chosen among the allowed ones. Return their number until the text is complete: later ones were
  // chosen freely.
  size_t accept_tokens(const int64_t* tokens, size_t count);
  // Write the tokens that may follow every node of a round into bool [rows, V]. All are allowed where it does not matter: after
  // drafts that are not allowed, after those that end the text, and after the last node. drafts: tokens of node 1, 2, ..; parents:
  // of all nodes. The state does not change.
  void write(uint8_t* allowed, int64_t rows, const int64_t* drafts, size_t count, const std::vector<int64_t>& parents);

 private:
  const std::vector<uint8_t>& mask();
  std::vector<uint8_t> make_mask();
  // Return the token that the tokenizer would write next, where bytes must follow and what follows them cannot change it.
  std::optional<int64_t> forced_token();
  // Read the bytes that must follow, up to the first that has an alternative.
  std::string push_forced_bytes();
  // Return the token that the tokenizer begins such bytes with, once they have been read.
  std::optional<int64_t> first_token(const std::string& forced);
  // Read a token's bytes. Return whether they may follow; if not, nothing changes.
  bool consume(int64_t token);
  void rollback(size_t tokens);
  bool enter(int64_t draft);
  bool is_stop(int64_t token) const;

  const std::shared_ptr<const Tokens> tokens_;
  Parser parser_;
  std::vector<int64_t> stops_;
  std::vector<int64_t> read_;  // tokens
  std::optional<std::vector<uint8_t>> next_;
  bool has_failed_ = false;
};

}  // namespace spc::constraints
