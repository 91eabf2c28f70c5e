// Prompts and sources of a command line: texts, files, or token ids.
#pragma once

#include <optional>

#include "options.h"

namespace spc::cli {

// Return whether a prompt is given.
bool has_prompt(const Arguments& given);
// Return the prompt from the one option that gives it. Throws Error(kUsage) for none and for several, Error(kPrompt) for one that is
// empty or cannot be read.
Prompt prompt_of(const Arguments& given);
// Return the source that a target with an encoder reads, none where none is given. Throws as `prompt_of`.
std::optional<Prompt> source_of(const Arguments& given);

}  // namespace spc::cli
