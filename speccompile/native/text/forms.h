// Unicode's normal forms and lower case, of the versions that tokenizers has (unicode_forms.h, unicode_compatible.h).
#pragma once

#include "pieces.h"

namespace spc {

enum class Form { kNfc, kNfd, kNfkc, kNfkd };

NormalizedString normal_form(const NormalizedString& line, Form form);
NormalizedString lowercase(const NormalizedString& line);

}  // namespace spc
