// Bound on the text that one token can hold, from a tokenizer's definition (runtime/text/token_bytes.py).
#pragma once

#include "../json.h"

namespace spc {

// Return the most bytes of text, in UTF-8, for which one token can stand; 0 where there is no bound. definition: content of a
// tokenizer.json. There is a bound for byte-level BPE without unknown tokens: all bytes of a text are in its tokens. Names of
// tokens are as long as their bytes, or longer.
int64_t longest_token_bytes(const Json& definition);

}  // namespace spc
