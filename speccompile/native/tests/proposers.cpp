// Proposers and persistent drafter states over speccompile.hpp, and the errors of a bundle that takes neither.
//
//   test_proposers BUNDLE LIBRARY_OF_ONNXRUNTIME
#include <cstdio>
#include <stdexcept>
#include <unistd.h>

#include "asked.h"

namespace speccompile {
namespace {

struct Thrown : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Runs `f`, which must throw an Error of this kind.
template <class F>
void check_refused(int kind, F f) {
  try {
    f();
  } catch (const Error& error) {
    CHECK(error.kind == kind, "kind %d, expected %d: %s", error.kind, kind, error.what());
    return;
  }
  CHECK(false, "nothing was refused");
}

const Tokens kPrompt = {5, 6, 7};

// Return the tokens of a generation whose rounds have all drafts or none. rounds: receives their number.
Tokens tokens_of(Session& session, bool drafts = true, size_t* rounds = nullptr) {
  Request request;
  request.prompt(kPrompt).set("max_new_tokens", kNewTokens);
  session.start(drafts ? request.set("adaptive", 0) : request.set("autoregressive", 1));
  size_t steps = 1;
  while (session.step()) ++steps;
  if (rounds) *rounds = steps - 1;  // the first is the prefill
  return session.result().tokens();
}

// A proposer that knows the continuation drafts all of it: rounds are few, and tokens the same. Drafts beyond the capacity are
// left out.
void test_what_is_known(const Bundle& bundle) {
  Session session(bundle);
  const Tokens expected = tokens_of(session, false);
  CHECK(expected.size() == kNewTokens, "%zu tokens", expected.size());
  size_t calls = 0, rounds = 0;
  session.propose_with([&](const Tokens& text) {
    CHECK(text.size() > kPrompt.size() && text.back() == expected[text.size() - kPrompt.size() - 1], "another text than was generated");
    ++calls;
    Drafts drafts;
    for (size_t at = text.size() - kPrompt.size(); at < expected.size() + 40; ++at) {
      drafts.tokens.push_back(at < expected.size() ? expected[at] : 0);
      drafts.parents.push_back(static_cast<int64_t>(drafts.tokens.size()) - 2);
    }
    return drafts;
  });
  const auto deepest = static_cast<size_t>(number_of(bundle, "depth"));
  CHECK(tokens_of(session, true, &rounds) == expected, "other tokens");
  CHECK(rounds == (kNewTokens - 1 + deepest) / (deepest + 1) && calls == rounds, "%zu rounds, %zu calls", rounds, calls);
  session.propose_with({});
  CHECK(tokens_of(session) == expected, "other tokens of the bundle's own index");
  CHECK(calls == rounds, "who was taken away was asked");
}

void test_what_is_thrown(const Bundle& bundle) {
  Session session(bundle);
  int calls = 0;
  session.propose_with([&](const Tokens&) -> Drafts {
    if (++calls == 2) throw Thrown("of its own");
    return {};
  });
  bool is_thrown = false;
  try {
    tokens_of(session);
  } catch (const Thrown& error) {
    is_thrown = error.what() == std::string("of its own");
  }
  CHECK(is_thrown && calls == 2, "what a proposer throws does not leave step");
  const Tokens expected = tokens_of(session);
  session.propose_with([](const Tokens&) { return Drafts{{1, 2}, {-1}}; });
  try {
    tokens_of(session);
    CHECK(false, "a parent that is missing");
  } catch (const std::invalid_argument&) {
  }
  session.propose_with([](const Tokens&) { return Drafts{{-1}, {-1}}; });
  check_refused(SPC_USAGE, [&] { tokens_of(session); });
  Session moved = std::move(session);  // with who is asked
  check_refused(SPC_USAGE, [&] { tokens_of(moved); });
  moved.propose_with({});
  CHECK(tokens_of(moved) == expected, "other tokens after errors");
}

// A bundle whose drafter learns nothing has no state to save.
void test_nothing_is_kept(Session& session) {
  const std::string path = "/tmp/speccompile-proposers-" + std::to_string(getpid());
  session.reset_kept();
  check_refused(SPC_USAGE, [&] { session.save_kept(path); });
  check_refused(SPC_USAGE, [&] { session.load_kept(path); });
  CHECK(access(path.c_str(), F_OK) != 0, "%s was written", path.c_str());
}

}  // namespace
}  // namespace speccompile

int main(int count, char** words) {
  using namespace speccompile;
  const Bundle bundle = arguments_of(count, words).open();
  Session session(bundle);
  test_nothing_is_kept(session);
  const std::string manifest(bundle.manifest());
  if (manifest.find("\"name\": \"draft\"") != std::string::npos) {
    check_refused(SPC_USAGE, [&] { session.propose_with([](const Tokens&) { return Drafts(); }); });
    return 0;
  }
  test_what_is_known(bundle);
  test_what_is_thrown(bundle);
  return 0;
}
