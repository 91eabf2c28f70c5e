// Unicode's normal forms and lower case, of the versions that tokenizers has (unicode_forms.h, unicode_compatible.h).
#pragma once

#include "pieces.h"

namespace spc {

enum class Form { kNfc, kNfd, kNfkc, kNfkd };

Line normal_form(const Line& line, Form form);
Line lowercase(const Line& line);

}  // namespace spc
