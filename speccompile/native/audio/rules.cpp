#include "rules.h"

#include <algorithm>

namespace spc::audio {

std::shared_ptr<const TokenRules> TokenRules::of(const Manifest& manifest) {
  if (!manifest.source || !manifest.source->audio) return nullptr;
  auto made = std::make_shared<TokenRules>();
  made->later_.assign(static_cast<size_t>(manifest.vocabulary_size), 1);  // tokens of the section are of the vocabulary
  for (const int64_t token : manifest.source->audio->suppressed) made->later_[static_cast<size_t>(token)] = 0;
  made->first_ = made->later_;
  for (const int64_t token : manifest.source->audio->begin_suppressed) made->first_[static_cast<size_t>(token)] = 0;
  return made;
}

void TokenRules::write(uint8_t* allowed, int64_t rows, bool is_empty) const {
  for (int64_t row = 0; row < rows; ++row) {
    const std::vector<uint8_t>& mask = row == 0 && is_empty ? first_ : later_;
    std::copy(mask.begin(), mask.end(), allowed + row * static_cast<int64_t>(mask.size()));
  }
}

}  // namespace spc::audio
