#include "subtitles.h"

#include <cmath>
#include <cstdio>

#include "../text/jinja/builtins.h"

namespace spc::audio {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  return text;
}

// A text without empty lines, which would end its block, and without arrows, which are times.
std::string one_block(std::string text) {
  text = replaced(std::move(text), "-->", "->");
  for (const char* const end : {"\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\xC2\x85", "\xE2\x80\xA8", "\xE2\x80\xA9"}) text = replaced(std::move(text), end, "\n");
  std::string found;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    if (!stripped(line).empty()) found += (found.empty() ? "" : "\n") + line;
    at = end + 1;
  }
  return found;
}

std::string times_of(const Segment& segment, char mark, bool hours) { return clock_of(segment.start, mark, hours) + " --> " + clock_of(segment.end, mark, hours); }

}  // namespace

std::string clock_of(double seconds, char mark, bool hours) {
  const long long whole = std::llrint(1000 * seconds);
  char text[48];
  std::snprintf(text, sizeof text, "%02lld:%02lld%c%03lld", whole / 60000 % 60, whole / 1000 % 60, mark, whole % 1000);
  char front[24] = "";
  if (hours || whole >= 3600000) std::snprintf(front, sizeof front, "%02lld:", whole / 3600000);
  return std::string(front) + text;
}

std::string timed_line(const Segment& segment) { return "[" + times_of(segment, '.', false) + "] " + shown(segment) + "\n"; }

std::string subtitle(const std::string& form, size_t number, const Segment& segment) {
  if (form == "srt") return std::to_string(number) + "\n" + times_of(segment, ',', true) + "\n" + one_block(shown(segment)) + "\n\n";
  std::string text = replaced(replaced(replaced(shown(segment), "&", "&amp;"), "<", "&lt;"), ">", "&gt;");
  return times_of(segment, '.', true) + "\n" + one_block(std::move(text)) + "\n\n";
}

std::string shown(const Segment& segment) {
  if (segment.text) return stripped(*segment.text);
  std::string ids;
  for (const int64_t token : segment.token_ids) ids += (ids.empty() ? "" : ",") + std::to_string(token);
  return ids;
}

std::string stripped(const std::string& text) { return jinja::stripped(text, nullptr, true, true); }
std::string stripped_left(const std::string& text) { return jinja::stripped(text, nullptr, true, false); }

}  // namespace spc::audio
