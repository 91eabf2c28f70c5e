#include "tensor_header.h"

#include <algorithm>
#include <cstdint>

#include "../contract_table.h"
#include "../errors.h"

namespace spc {

std::string with_length(std::string header) {
  header.append((kDrafterStateAlignment - header.size() % kDrafterStateAlignment) % kDrafterStateAlignment, ' ');
  std::string content;
  for (size_t i = 0; i < kDrafterStateLengthBytes; ++i) content += static_cast<char>(static_cast<uint64_t>(header.size()) >> 8 * i);
  return content + header;
}

uint64_t header_bytes(std::string_view content) {
  if (content.size() < kDrafterStateLengthBytes) return 0;
  uint64_t length = 0;
  for (size_t i = 0; i < kDrafterStateLengthBytes; ++i) length |= static_cast<uint64_t>(static_cast<unsigned char>(content[i])) << 8 * i;
  return length;
}

Json split_header(std::string_view content, const std::string& where, const std::string& what, const std::string& hint, std::string_view& data) {
  const uint64_t length = header_bytes(content);
  if (!length || length > std::min(static_cast<size_t>(kDrafterStateLongest), content.size() - kDrafterStateLengthBytes))
    throw Error(Kind::kUsage, where + ": not " + what + ", or a truncated one: " + std::to_string(content.size()) + " bytes", hint);
  data = content.substr(kDrafterStateLengthBytes + length);
  try {
    const std::string_view text = content.substr(kDrafterStateLengthBytes, length);
    Json header = Json::parse(text);
    const bool has_halves = text.find("\\u") != std::string_view::npos && !is_utf8(header.dump());  // of surrogate pairs
    if (header.is_object() && !has_halves) return header;
  } catch (const JsonError&) {
  }
  throw Error(Kind::kUsage, where + ": not " + what + ": its header is no JSON object", hint);
}

}  // namespace spc
