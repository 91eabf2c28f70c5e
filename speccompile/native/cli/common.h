// Shared by the commands: their functions, options of sampling, and the opening of a bundle.
#pragma once

#include <memory>
#include <vector>

#include "../runtime/bundle.h"
#include "options.h"

namespace spc::cli {

// The commands, by parsed arguments that have passed Arguments::check.
void generate(const Arguments& given);
void bench(const Arguments& given);
void inspect(const Arguments& given);
void serve(const Arguments& given);
void transcribe(const Arguments& given);

// Return the name that requests have for an option: "top_k" of "--top-k".
std::string setting_of(std::string_view option);
// The options of sampling that were given, by the names that requests have for them: "top_k", ..
std::vector<std::pair<std::string, Value>> sampling_of(const Arguments& given);
// Return the values of --logit-bias, by token. Throws Error(kUsage).
LogitBias logit_bias_of(const Arguments& given);
// The same with what else requests have: the number of new tokens, and whether rounds have all their drafts.
Request request_of(const Arguments& given);

// Return what stdin holds. Throws FileError.
std::string read_stdin();
// The file that --require-signature names, "" without it.
std::string signer_of(const Arguments& given);
std::shared_ptr<const Bundle> bundle_of(const Arguments& given, bool verify);

}  // namespace spc::cli
