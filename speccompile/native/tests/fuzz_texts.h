// Readers of untrusted texts: tokenizers, chat templates, requests, constraints and answers. They need no engine, so that
// scripts/fuzz has a program of them alone, which takes a third of the time to compile.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "../errors.h"
#include "../files.h"
#include "../json.h"
#include "../text/text.h"
#include "fuzz_constraints.h"
#include "fuzz_requests.h"
#include "mutate.h"

inline std::string folder;  // of the files of ours

// Runs `work`, which may fail as the runtime does. Returns whether it did not.
template <class Work>
bool allowed(Work work) {
  try {
    work();
    return true;
  } catch (const spc::Error& error) {
    CHECK(error.kind != spc::Kind::kDefect && !error.message.empty(), "%s", error.what());
  } catch (const spc::JsonError&) {
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  return false;
}

// Up to a byte that no UTF-8 has, a tokenizer; behind it a text.
inline bool try_tokenizer(const std::string& input) {
  const size_t end = std::min(input.find('\xff'), input.size());
  return allowed([&] {
    spc::write_file(folder + "/tokenizer.json", std::string_view(input).substr(0, end));
    const std::shared_ptr<const spc::Text> text = spc::Text::open(folder + "/tokenizer.json");
    const std::string own(input, std::min(end + 1, input.size())), repeated = "def f(x): aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
                      mixed = " gr\xc3\xb6\xc3\x9f" "e \xe4\xbd\xa0 <s>\r\n\n\t1234567 don't";
    for (const std::string& each : {own, repeated, mixed}) {
      spc::TokenIds ids;
      allowed([&] { ids = text->encode(each, each.size() % 2); });
      ids.insert(ids.end(), {-1, 0, 1, 1 << 20});
      allowed([&] { CHECK(spc::is_utf8(text->decode(ids)), "decoded text that is not UTF-8"); });
      spc::IncrementalDetokenizer stream(text, ids, {"stop"});
      allowed([&] { stream.push(ids) += stream.finish(); });
    }
  });
}

inline bool try_jinja(const std::string& input) {
  return allowed([&] { render_any(input); });
}

inline bool try_request(const std::string& input) {
  return allowed([&] { read_any(input); });
}

inline bool try_constraint(const std::string& input) {
  return allowed([&] { impose_any(folder, input); });
}

inline bool try_answer(const std::string& input) {
  return allowed([&] { read_calls(input); });
}

inline std::vector<std::string> no_examples() { return {}; }

struct Target {
  const char* name;
  bool (*run)(const std::string& input);
  bool is_json;
  std::vector<std::string> (*examples)() = no_examples;  // in which nothing is wrong, of targets whose inputs no test writes
  std::string (*mend)(const std::string& document, Mutator& mutator) = nullptr;  // so that more of a changed one is read
};

inline const std::vector<Target> kTextTargets = {
    {"tokenizer", try_tokenizer, true},
    {"jinja", try_jinja, false},
    {"request", try_request, false, [] { return std::vector<std::string>{kRequestExample, kFormExample}; }},
    {"constraint", try_constraint, false, [] { return std::vector<std::string>(std::begin(kConstraintExamples), std::end(kConstraintExamples)); }},
    {"answer", try_answer, false, [] { return std::vector<std::string>(std::begin(kCallExamples), std::end(kCallExamples)); }},
};

// Another input, of which the target reads more than of bytes that change anywhere.
inline std::string changed(const Target& target, const std::string& input, Mutator& mutator) {
  if (!target.is_json || mutator.one_in(8)) return mutator.bytes(input);
  const std::string made = mutator.document(input);
  return target.mend ? target.mend(made, mutator) : made;
}
