// Constraints of untrusted clients: schemas, regular expressions and grammars.
#pragma once

#include <string>

#include "../constraints/constraint.h"
#include "../errors.h"
#include "../files.h"
#include "../text/bytes.h"
#include "check.h"

// A tokenizer of single bytes.
inline spc::Json byte_tokenizer() {
  spc::Json vocabulary{spc::Json::Object{}};
  for (int byte = 0; byte < 256; ++byte) vocabulary.set(spc::letter_of_byte(static_cast<char>(byte)), byte);
  spc::Json found = spc::Json::parse(R"({"version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
    "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}})");
  const spc::Json::Object model = {{"type", "BPE"}, {"dropout", {}}, {"unk_token", {}}, {"vocab", vocabulary}, {"merges", spc::Json::List()}};
  found.set("model", model);
  return found;
}

// A kind, a blank, and a constraint of it. What is compiled is followed for some tokens, each the first that is allowed.
inline void impose_any(const std::string& folder, const std::string& input) {
  static const spc::constraints::Compiler compiler = [&] {
    static spc::Manifest manifest;
    manifest.vocabulary_size = 257;
    manifest.eos_token_ids = {256};
    manifest.graphs.emplace_back();
    manifest.graphs[0].inputs.emplace_back();
    manifest.graphs[0].inputs[0].name = spc::names::kAllowed;
    spc::write_file(folder + "/bytes.json", byte_tokenizer().dump());
    return spc::constraints::Compiler(manifest, folder + "/bytes.json");
  }();
  const size_t blank = std::min(input.find(' '), input.size());
  spc::constraints::Matcher matcher = compiler.compile(input.substr(0, blank), input.substr(std::min(blank + 1, input.size())))->matcher({256});
  for (int round = 0; round < 40 && matcher.end().empty(); ++round) {
    uint8_t allowed[257];
    matcher.write(allowed, 1, nullptr, 0, {-1});
    int64_t token = round % 2 ? 256 : 0;  // from the first or the last on
    while (!allowed[token]) token += round % 2 ? -1 : 1;
    CHECK(matcher.accept_tokens(&token, 1) == 1, "a token that is allowed was not read");
    if (token == 256) return;
  }
}

constexpr const char* kConstraintExamples[] = {
    R"(json_schema {"type": "object", "properties": {"a": {"type": "integer", "minimum": -3, "maximum": 120, "multipleOf": 3}, "b": {"enum": ["x", null, 1.5]}},
"required": ["a"], "additionalProperties": {"anyOf": [{"type": "string", "pattern": "^[a-z]+", "maxLength": 9}, {"$ref": "#/$defs/t"}]},
"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}, "minItems": 1, "maxItems": 4}}})",
    R"(regex (?i)[a-f\d&&[^b]]{2,5}|\p{Lu}+(x|y)*\x41.$)",
    "grammar start: (\"a\" | item~1..3) NUMBER? // x\nitem: \"<\" WORD \">\" [start]\nWORD: /[a-z]+/ & ~\"if\"\nNUMBER: \"0\"..\"9\"\n%import common.WS\n%ignore WS",
};
