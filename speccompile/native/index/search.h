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

// Range of places in a suffix array, from `first` to before `last`.
struct Places {
  size_t first = 0, last = 0;
  size_t count() const { return last - first; }
};

// Last tokens of a text that occur in the corpus. length: their number; places: of the occurrences, in each chunk's suffix array.
struct Match {
  size_t length = 0;
  std::vector<Places> places;

  size_t count() const;
};

// Part of a corpus: tokens and their suffix array.
class Chunk {
 public:
  // Throws FileError.
  Chunk(const std::string& tokens, const std::string& suffixes);

  // Return the places whose suffixes begin with the pattern, which is tokens in big-endian bytes.
  Places places(std::string_view pattern) const;
  // Return at most `depth` tokens from the suffix at a place, after its first `skip` ones, up to the end of the document or the chunk.
  TokenRow following(size_t place, size_t skip, size_t depth) const;

 private:
  size_t start(size_t place) const;
  std::string_view head(size_t place, size_t size) const;

  std::unique_ptr<const MappedFile> tokens_, suffixes_;
};

// Opened index. Its files are mapped, and read as they are needed. Any thread may use it.
class Index {
 public:
  // Throws Error(kBundle).
  explicit Index(const std::string& folder);

  // Return the most last tokens of the text, of `fewest` to `most`, that occur in the corpus; none where the fewest do not.
  //
  // Fewer last tokens occur wherever more do: the number is found by binary search too.
  std::optional<Match> longest(const std::vector<int64_t>& text, size_t fewest, size_t most) const;
  // Return the tokens, at most `depth`, that follow the match where it occurs, up to the end of the document.
  //
  // occurrences: at most so many are taken, spread evenly. Of n, in the order of the chunks and of their suffix arrays, these are the
  // numbers i * n / occurrences, for i from 0 on.
  std::vector<TokenRow> continuations(const Match& match, size_t occurrences, size_t depth) const;

 private:
  std::vector<Chunk> chunks_;
};

}  // namespace spc
