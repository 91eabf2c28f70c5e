// Drafts from an index: what followed the longest end of the text that occurs in the corpus
// (speccompile/index/retrieval.py).
#pragma once

#include <string>
#include <vector>

#include "search.h"
#include "votes.h"

namespace spc {

// fewest, most: tokens of the text's end that are looked for. occurrences: how many of them vote. branching: the most drafts
// that follow one; 1 for a chain, 0 for any number.
struct RetrievalPolicy {
  size_t fewest, most, occurrences, branching;
};

// For any thread.
class RetrievalProposer {
 public:
  // The index in a bundle's folder, asked as its policy says, for at most so many drafts, and so many after one another.
  // Throws Error(kBundle).
  RetrievalProposer(const std::string& folder, size_t drafts, size_t depth);

  // Return the drafts. If nothing follows the longest end of the text, as at the end of a document, the next shorter one is searched.
  Drafts propose(const std::vector<int64_t>& tokens) const;

 private:
  const Index index_;
  const RetrievalPolicy policy_;
  const size_t drafts_, depth_;
};

}  // namespace spc
