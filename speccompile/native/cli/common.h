// What the commands share: their functions, options of sampling, and how they open a bundle.
#pragma once

#include <memory>
#include <vector>

#include "../runtime/bundle.h"
#include "options.h"

namespace spc::cli {

// A command: what it takes, and what it does with what was given.
struct Subcommand {
  const char *name, *summary;
  Command command;
  void (*run)(const Arguments& given);
};
Subcommand generate_command();
Subcommand bench_command();
Subcommand inspect_command();
Subcommand serve_command();
Subcommand transcribe_command();

// The options of sampling with others before and behind them, as --help lists them.
std::vector<Option> with_sampling(std::vector<Option> before, const std::vector<Option>& behind);
// The options of sampling that were given, by the names that requests have for them: "top_k", ..
std::vector<std::pair<std::string, Value>> sampling_of(const Arguments& given);
// The same with what else requests have: the number of new tokens, and whether rounds have all their drafts.
Request request_of(const Arguments& given);

constexpr const char* kOnnxruntimeHelp =
    "ONNX Runtime's shared library; by default $SPECCOMPILE_ONNXRUNTIME, or what the loader finds.";
constexpr Option kRequireSignature = {"--require-signature", "FILE", Takes::kPath,
                                      "Refuse a bundle that this public key has not signed: see `speccompile sign`."};
// Return what stdin holds. Throws FileError.
std::string read_stdin();
// The file that --require-signature names, "" without it.
std::string signer_of(const Arguments& given);
std::shared_ptr<const Bundle> bundle_of(const Arguments& given, bool verify);

}  // namespace spc::cli
