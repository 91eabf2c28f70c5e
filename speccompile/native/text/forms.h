// Unicode's normal forms and lower case, of the versions that tokenizers has (unicode_forms.h, unicode_compatible.h).
//
// By hand, because each character keeps its place in the original text, which utf8proc does not tell. Figures:
// docs/explanation/decisions/0009-formats-by-hand.md.
#pragma once

#include "pieces.h"

namespace spc {

enum class Form { kNfc, kNfd, kNfkc, kNfkd };

NormalizedString normal_form(const NormalizedString& line, Form form);
NormalizedString lowercase(const NormalizedString& line);

}  // namespace spc
