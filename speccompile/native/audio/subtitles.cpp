#include "subtitles.h"

#include <cmath>
#include <cstdio>

#include "../text/jinja/builtins.h"
#include "../words.h"

namespace spc::audio {
namespace {

// A text without empty lines, which would end its block, and without arrows, which are times.
std::string one_block(std::string text) {
  replace_all(text, "-->", "->");
  for (const char* const end : {"\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\xC2\x85", "\xE2\x80\xA8", "\xE2\x80\xA9"}) replace_all(text, end, "\n");
  std::string found;
  for (const std::string& line : split(text, '\n'))
    if (!stripped(line).empty()) found += (found.empty() ? "" : "\n") + line;
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
  std::string text = shown(segment);
  for (const auto& [from, to] : {std::pair("&", "&amp;"), {"<", "&lt;"}, {">", "&gt;"}}) replace_all(text, from, to);
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
