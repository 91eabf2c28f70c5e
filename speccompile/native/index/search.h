// Search for the end of a text in a corpus: binary search in suffix arrays that are mapped into memory
// (speccompile/index/search.py).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../files.h"

namespace spc {

using TokenRow = std::vector<uint32_t>;

// Places of a suffix array, from `first` to before `last`.
struct Places {
  size_t first = 0, last = 0;
  size_t count() const { return last - first; }
};

// The end of a text that occurs: its tokens, and where, chunk by chunk, in the suffix array.
struct Match {
  size_t length = 0;
  std::vector<Places> places;

  size_t count() const;
};

// Tokens and their suffix array.
class Chunk {
 public:
  // Throws FileError.
  Chunk(const std::string& tokens, const std::string& suffixes);

  // Return the places whose suffixes begin with the pattern, which is tokens in big-endian bytes.
  Places places(std::string_view pattern) const;
  // The tokens, at most `depth`, from `skip` behind the suffix at a place on, up to the end of the document or the chunk.
  TokenRow following(size_t place, size_t skip, size_t depth) const;

 private:
  size_t start(size_t place) const;
  std::string_view head(size_t place, size_t size) const;

  std::unique_ptr<const MappedFile> tokens_, suffixes_;
};

// An index, opened. Its files are read as they are needed; for any thread.
class Index {
 public:
  // Throws Error(kBundle).
  explicit Index(const std::string& folder);

  // The longest end of the text, of `fewest` to `most` tokens, that occurs in the corpus; none where none does.
  //
  // An end occurs wherever a longer one does: so the length is searched for by halves too.
  std::optional<Match> longest(const std::vector<int64_t>& text, size_t fewest, size_t most) const;
  // The tokens, at most `depth`, that follow at the occurrences: at all, or at so many, spread evenly.
  //
  // Return continuations. Of n occurrences, in the order of the chunks and of their suffix arrays, those are taken with the numbers
  // i * n / occurrences, for i from 0 on. What follows ends with its document.
  std::vector<TokenRow> continuations(const Match& match, size_t occurrences, size_t depth) const;

 private:
  std::vector<Chunk> chunks_;
};

}  // namespace spc
