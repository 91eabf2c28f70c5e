#include "search.h"

#include <algorithm>

#include "../byte_order.h"
#include "../errors.h"
#include "files.h"

namespace spc {
namespace {

constexpr size_t kBytes = static_cast<size_t>(kTokenBytes);

std::string as_bytes(const std::vector<int64_t>& text, size_t from) {
  std::string bytes;
  for (size_t i = from; i < text.size(); ++i)
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(text[i] >> shift);
  return bytes;
}

std::string_view last_tokens(std::string_view whole, size_t count) { return whole.substr(whole.size() - kBytes * count); }

// The most last tokens of `whole` that occur in a chunk, and where; `fewest` and nothing where these do not.
std::pair<size_t, Places> longest_in(const Chunk& chunk, std::string_view whole, size_t fewest, size_t most) {
  Places places = chunk.places(last_tokens(whole, fewest));
  if (!places.count()) return {fewest, {}};
  while (fewest < most) {
    const size_t length = (fewest + most + 1) / 2;
    const Places found = chunk.places(last_tokens(whole, length));
    if (found.count()) {
      fewest = length;
      places = found;
    } else {
      most = length - 1;
    }
  }
  return {fewest, places};
}

}  // namespace

size_t Match::count() const {
  size_t all = 0;
  for (const Places& each : places) all += each.count();
  return all;
}

Chunk::Chunk(const std::string& tokens, const std::string& suffixes)
    : tokens_(std::make_unique<const MappedFile>(tokens)), suffixes_(std::make_unique<const MappedFile>(suffixes)) {}

size_t Chunk::start(size_t place) const { return little_endian_32(suffixes_->bytes(), kBytes * place); }

// The first bytes of a suffix; none of one that begins where no token is, in a file that was changed.
std::string_view Chunk::head(size_t place, size_t size) const {
  const std::string_view tokens = tokens_->bytes();
  return tokens.substr(std::min(kBytes * start(place), tokens.size()), size);
}

Places Chunk::places(std::string_view pattern) const {
  // The first place from `first` on whose suffix is not before the pattern, or, with `behind`, is behind all that begin with it.
  const auto bound = [&](size_t first, bool behind) {
    for (size_t count = suffixes_->bytes().size() / kBytes - first; count > 0;) {
      const size_t half = count / 2;
      const int order = head(first + half, pattern.size()).compare(pattern);
      const bool is_before = order < 0 || (behind && order == 0);
      first += is_before ? half + 1 : 0;
      count = is_before ? count - half - 1 : half;
    }
    return first;
  };
  const size_t first = bound(0, false);
  return {first, bound(first, true)};
}

TokenRow Chunk::following(size_t place, size_t skip, size_t depth) const {
  const std::string_view tokens = tokens_->bytes();
  TokenRow row;
  for (size_t at = start(place) + skip; row.size() < depth && at < tokens.size() / kBytes; ++at) {
    const uint32_t token = big_endian_32(tokens, kBytes * at);
    if (token == kSeparator) break;
    row.push_back(token);
  }
  return row;
}

Index::Index(const std::string& folder) {
  const size_t count = read_index_chunks(folder).size();
  for (size_t chunk = 0; chunk < count; ++chunk) {
    try {
      chunks_.emplace_back(join_path(folder, tokens_file(chunk)), join_path(folder, suffixes_file(chunk)));
    } catch (const FileError& error) {
      throw Error(Kind::kBundle, folder + ": chunk " + std::to_string(chunk) + " of the index cannot be read: " + error.reason,
                  "make the files readable");
    }
  }
}

std::optional<Match> Index::longest(const std::vector<int64_t>& text, size_t fewest, size_t most) const {
  most = std::min(most, text.size());
  if (most < fewest) return std::nullopt;
  const std::string whole = as_bytes(text, text.size() - most);
  Match match{fewest, {}};
  for (const Chunk& chunk : chunks_) {
    const auto [longer, places] = longest_in(chunk, whole, match.length, most);
    if (longer > match.length) match = {longer, std::vector<Places>(match.places.size())};
    match.places.push_back(places);
  }
  if (!match.count()) return std::nullopt;
  return match;
}

std::vector<TokenRow> Index::continuations(const Match& match, size_t occurrences, size_t depth) const {
  const size_t count = match.count(), asked = std::min(count, occurrences);
  std::vector<TokenRow> rows;
  size_t chunk = 0, before = 0;  // occurrences in the chunks before this one
  for (size_t i = 0; i < asked; ++i) {
    const size_t number = i * count / asked;
    while (number >= before + match.places[chunk].count()) before += match.places[chunk++].count();
    rows.push_back(chunks_[chunk].following(match.places[chunk].first + number - before, match.length, depth));
  }
  return rows;
}

}  // namespace spc
