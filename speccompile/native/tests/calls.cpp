// Wrong calls of the C ABI: each is an error, and nothing is written or freed.
//
//   test_calls BUNDLE LIBRARY_OF_ONNXRUNTIME
#include "asked.h"

namespace speccompile {
namespace {

void refused(int kind, spc_error* error, const char* what) {
  CHECK(spc_error_kind(error) == kind, "%s: kind %d, expected %d: %s", what, spc_error_kind(error), kind, spc_error_message(error));
  CHECK(*spc_error_message(error), "%s: no message", what);
  spc_error_free(error);
}

#define REFUSED(call) refused(SPC_USAGE, call, #call)

void test_null_bundle(const Bundle& bundle) {
  size_t size = 0;
  spc_bundle* opened = nullptr;
  REFUSED(spc_bundle_open(nullptr, nullptr, &opened));
  REFUSED(spc_bundle_open("x", nullptr, nullptr));
  REFUSED(spc_bundle_encode(nullptr, "x", 1, 1, nullptr, &size));
  REFUSED(spc_bundle_encode(bundle.get(), "x", 1, 1, nullptr, nullptr));
  REFUSED(spc_bundle_encode(bundle.get(), nullptr, 1, 1, nullptr, &size));
  REFUSED(spc_bundle_decode(nullptr, nullptr, 0, nullptr, &size));
  REFUSED(spc_bundle_decode(bundle.get(), nullptr, 1, nullptr, &size));
  CHECK(!opened && !size, "a refused call has written something");
}

void test_null_request(const Request& request) {
  REFUSED(spc_request_create(nullptr));
  REFUSED(spc_request_add_text(nullptr, "x", 1));
  REFUSED(spc_request_add_text(request.get(), nullptr, 1));
  REFUSED(spc_request_add_tokens(request.get(), nullptr, 1));
  REFUSED(spc_request_add_stop(request.get(), nullptr, 1));
  REFUSED(spc_request_set_number(request.get(), SPC_ALL, nullptr, 1));
}

void test_null_session(const Bundle& bundle, const Session& session) {
  size_t size = 0;
  const int64_t* ids = nullptr;
  REFUSED(spc_session_create(nullptr, nullptr));
  REFUSED(spc_session_create(bundle.get(), nullptr));
  REFUSED(spc_session_propose(nullptr, nullptr, nullptr));
  REFUSED(spc_session_reset_kept(nullptr));
  REFUSED(spc_session_save_kept(nullptr, "x"));
  REFUSED(spc_session_save_kept(session.get(), nullptr));
  REFUSED(spc_session_load_kept(nullptr, "x"));
  REFUSED(spc_session_load_kept(session.get(), nullptr));
  REFUSED(spc_session_save(nullptr, "x"));
  REFUSED(spc_session_save(session.get(), nullptr));
  REFUSED(spc_session_load(nullptr, "x", &ids, &size));
  REFUSED(spc_session_load(session.get(), nullptr, &ids, &size));
  REFUSED(spc_session_load(session.get(), "x", nullptr, &size));
  REFUSED(spc_session_load(session.get(), "x", &ids, nullptr));
  CHECK(!ids && !size, "a refused call has written something");
}

void test_null_round(const Session& session, const Request& request) {
  size_t size = 0;
  int done = 0;
  const char* text = nullptr;
  const int64_t* ids = nullptr;
  spc_result* result = nullptr;
  REFUSED(spc_session_start(nullptr, request.get()));
  REFUSED(spc_session_start(session.get(), nullptr));
  REFUSED(spc_session_step(nullptr, &done));
  REFUSED(spc_session_step(session.get(), nullptr));
  REFUSED(spc_session_new_text(session.get(), 0, nullptr, &size));
  REFUSED(spc_session_new_text(nullptr, 0, &text, &size));
  REFUSED(spc_session_new_tokens(session.get(), 0, &ids, nullptr));
  REFUSED(spc_session_result(session.get(), 0, nullptr));
  REFUSED(spc_session_result(nullptr, 0, &result));
  CHECK(!result && !text && !ids && !size && !done, "a refused call has written something");
}

// Functions that cannot report an error return nothing, and free nothing.
void test_nothing() {
  size_t count = 1;
  const int64_t* ids = nullptr;
  CHECK(spc_session_rows(nullptr) == 0 && !*spc_bundle_manifest(nullptr) && !*spc_bundle_description(nullptr), "of NULL");
  CHECK(!*spc_result_json(nullptr) && !spc_error_kind(nullptr), "of NULL");
  CHECK(!*spc_error_message(nullptr) && !*spc_error_hint(nullptr), "of NULL");
  spc_result_tokens(nullptr, &ids, &count);
  CHECK(!ids && !count, "tokens of NULL");
  spc_result_tokens(nullptr, nullptr, nullptr);
  spc_session_cancel(nullptr);
  spc_session_free(nullptr);
  spc_bundle_free(nullptr);
  spc_request_free(nullptr);
  spc_result_free(nullptr);
  spc_error_free(nullptr);
  CHECK(spc_abi() == SPC_ABI && *spc_version(), "version");
}

void test_wrong_calls(const Arguments& arguments) {
  const Bundle bundle = arguments.open();
  const Session session(bundle);
  const Request request;
  test_nothing();
  test_null_bundle(bundle);
  test_null_request(request);
  test_null_session(bundle, session);
  test_null_round(session, request);
  int done = 0;
  spc_bundle* opened = nullptr;
  const int64_t* ids = nullptr;
  size_t count = 0;
  spc_result* result = nullptr;
  constexpr const char* kWrong[][3] = {{"engin", "x"}, {"engine"}, {"threads", "0"}, {"threads", "99999999999"}, {"verify", "yes"}};
  for (const char* const* options : kWrong) REFUSED(spc_bundle_open(arguments.folder.c_str(), options, &opened));
  REFUSED(spc_session_step(session.get(), &done));  // before it was started
  REFUSED(spc_request_set_integer(request.get(), 0, "temprature", 1));
  REFUSED(spc_request_set_integer(request.get(), 0, "max_new_tokens", 1));      // one for all
  REFUSED(spc_request_set_number(request.get(), SPC_ALL - 1, "temperature", 1));  // no such prompt
  for (const size_t row : {size_t{0}, size_t{1}, SPC_ALL}) {
    REFUSED(spc_session_new_tokens(session.get(), row, &ids, &count));
    REFUSED(spc_session_result(session.get(), row, &result));
  }
  refused(SPC_PROMPT, spc_session_start(session.get(), request.get()), "no prompts");
  check(spc_request_add_tokens(request.get(), nullptr, 0));
  refused(SPC_PROMPT, spc_session_start(session.get(), request.get()), "an empty prompt");
  refused(SPC_USAGE, spc_request_add_text(request.get(), "x", static_cast<size_t>(-1)), "a text of a size below zero");
  CHECK(spc_session_rows(session.get()) == 0 && !opened && !ids && !result && !done, "a refused call has written something");
}

}  // namespace
}  // namespace speccompile

int main(int count, char** words) {
  speccompile::test_wrong_calls(speccompile::arguments_of(count, words));
  return 0;
}
