#include "matcher.h"

#include <algorithm>
#include <cstring>

#include "../contract_table.h"

namespace spc::constraints {

Matcher::Matcher(std::shared_ptr<const Tokens> tokens, std::shared_ptr<Grammar> grammar, std::vector<int64_t> stops)
    : tokens_(std::move(tokens)), parser_(std::move(grammar)), stops_(std::move(stops)) {}

Matcher Matcher::copy(const std::vector<int64_t>& stops) const {
  Matcher found = *this;
  const auto is_no_end = [&](int64_t token) { return std::find(stops.begin(), stops.end(), token) == stops.end(); };
  found.stops_.erase(std::remove_if(found.stops_.begin(), found.stops_.end(), is_no_end), found.stops_.end());
  found.next_.reset();
  return found;
}

bool Matcher::is_stop(int64_t token) const { return std::find(stops_.begin(), stops_.end(), token) != stops_.end(); }

std::string Matcher::end() {
  try {
    if (!has_failed_) {
      if (!parser_.is_complete() && allows_any()) return "";
      return parser_.is_accepting() ? finish::kStop : finish::kCapacity;
    }
  } catch (const TooComplex&) {
    has_failed_ = true;
  }
  return finish::kCapacity;
}

bool Matcher::allows_any() {
  const std::vector<uint8_t>& allowed = mask();
  const auto count = std::count(allowed.begin(), allowed.end(), 1);
  return count > std::count_if(stops_.begin(), stops_.end(), [&](int64_t token) { return allowed[static_cast<size_t>(token)] != 0; });
}

const std::vector<uint8_t>& Matcher::mask() {
  if (!next_) next_ = make_mask();
  return *next_;
}

std::vector<uint8_t> Matcher::make_mask() {
  std::vector<uint8_t> found(static_cast<size_t>(tokens_->size()));
  if (const auto forced = forced_token())
    found[static_cast<size_t>(*forced)] = 1;
  else
    tokens_->allow(parser_, found.data());
  for (const int64_t token : tokens_->ends()) found[static_cast<size_t>(token)] = 0;
  if (parser_.is_accepting())
    for (const int64_t token : stops_) found[static_cast<size_t>(token)] = 1;
  return found;
}

std::optional<int64_t> Matcher::forced_token() {
  const size_t base = parser_.size();
  const std::string forced = push_forced_bytes();
  const std::optional<int64_t> found = forced.empty() ? std::nullopt : first_token(forced);
  parser_.pop(parser_.size() - base);
  if (!found || !consume(*found)) return std::nullopt;  // a tokenizer may write "unknown" for a letter that it lacks
  rollback(1);
  return found;
}

std::string Matcher::push_forced_bytes() {
  std::string forced;
  while (!parser_.is_accepting()) {
    int only = -1;
    for (int byte = 0; byte < 256; ++byte) {
      if (!parser_.push(static_cast<uint8_t>(byte))) continue;
      parser_.pop(1);
      if (only >= 0) return forced;
      only = byte;
    }
    if (only < 0) break;
    parser_.push(static_cast<uint8_t>(only));
    forced += static_cast<char>(only);
  }
  return forced;
}

std::optional<int64_t> Matcher::first_token(const std::string& forced) {
  const int64_t last = read_.empty() ? -1 : read_.back();
  const std::string known = last < 0 ? "" : tokens_->is_special(last) ? Tokens::mark(last) : tokens_->bytes(last);
  size_t fixed = 0, before = last < 0 ? 0 : 1;
  TokenIds ids = tokens_->encode(known + forced, fixed);
  if (before && (ids.empty() || ids[0] != last)) {
    before = 0;
    ids = tokens_->encode(forced, fixed);
  }
  fixed = std::max(fixed, before);
  if (!std::all_of(ids.begin(), ids.end(), [&](int64_t token) { return token < tokens_->size(); })) return std::nullopt;
  std::string open;  // the last bytes that are not fixed
  for (size_t at = std::max(fixed, ids.size() - std::min<size_t>(ids.size(), 4)); at < ids.size(); ++at) open += tokens_->bytes(ids[at]);
  size_t kept = ids.size();
  for (size_t left = tokens_->open_bytes(parser_, open); left > 0 && kept > fixed;) left -= std::min(left, tokens_->bytes(ids[--kept]).size());
  return kept > before ? std::optional<int64_t>(ids[before]) : std::nullopt;
}

bool Matcher::consume(int64_t token) {
  const std::string& bytes = tokens_->bytes(token);
  if (bytes.empty()) return false;
  const size_t base = parser_.size();
  for (const char byte : bytes) {
    if (parser_.push(static_cast<uint8_t>(byte))) continue;
    parser_.pop(parser_.size() - base);
    return false;
  }
  read_.push_back(token);
  return true;
}

void Matcher::rollback(size_t count) {
  for (; count > 0; --count) {
    parser_.pop(tokens_->bytes(read_.back()).size());
    read_.pop_back();
  }
}

size_t Matcher::accept_tokens(const int64_t* tokens, size_t count) {
  size_t number = 0;
  try {
    for (; number < count && !has_failed_; ++number) {
      if (is_stop(tokens[number])) return number + 1;
      next_.reset();
      if (!consume(tokens[number])) {
        has_failed_ = allows_any();  // where none is allowed, the token was not chosen among allowed ones: the text ends
        return number;
      }
      if (parser_.is_complete()) return number + 1;
    }
  } catch (const TooComplex&) {
    has_failed_ = true;
  }
  return number;
}

void Matcher::write(uint8_t* allowed, int64_t rows, const int64_t* drafts, size_t count, const std::vector<int64_t>& parents) {
  const auto width = static_cast<size_t>(tokens_->size());
  std::memset(allowed, 1, static_cast<size_t>(rows) * width);
  std::vector<std::vector<size_t>> children(count + 1);
  for (size_t node = 1; node <= count; ++node)  // what a graph says is not trusted
    if (parents[node] >= 0 && parents[node] < static_cast<int64_t>(node)) children[static_cast<size_t>(parents[node])].push_back(node);
  std::vector<std::pair<size_t, size_t>> todo = {{0, 0}};  // node, depth of its parent
  size_t depth = 0;
  try {
    while (!todo.empty()) {
      const auto [node, at] = todo.back();
      todo.pop_back();
      rollback(depth - at);
      depth = at;
      if (node && !enter(drafts[node - 1])) continue;
      depth += node > 0;
      if (static_cast<int64_t>(node) < rows) {
        const std::vector<uint8_t> found = depth ? make_mask() : mask();
        std::memcpy(allowed + node * width, found.data(), width);
      }
      for (size_t each = children[node].size(); each > 0; --each) todo.emplace_back(children[node][each - 1], depth);
    }
  } catch (const TooComplex&) {
    has_failed_ = true;
  }
  rollback(depth);
}

// Read a draft if it is allowed and text can follow it. Return whether it was read.
bool Matcher::enter(int64_t draft) {
  if (draft < 0 || draft >= tokens_->size()) return false;
  const std::vector<int64_t>& ends = tokens_->ends();
  if (std::find(ends.begin(), ends.end(), draft) != ends.end() || !consume(draft)) return false;
  if (!parser_.is_complete()) return true;
  rollback(1);
  return false;
}

}  // namespace spc::constraints
