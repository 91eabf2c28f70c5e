/* The C ABI of speccompile's runtime: a bundle that `speccompile build` wrote, opened and run without Python.
 *
 *   spc_bundle *bundle;    spc_bundle_open("build/demo", NULL, &bundle);
 *   spc_request *request;  spc_request_create(&request);  spc_request_add_text(request, "def main(", 9);
 *   spc_session *session;  spc_session_create(bundle, &session);  spc_session_start(session, request);
 *   for (int done = 0; !done;) { spc_session_step(session, &done);  spc_session_new_text(session, 0, &text, &size); .. }
 *
 * Every function that can fail returns an error, NULL for success; what it would have written is then untouched. Texts are
 * UTF-8 with their size, so that a prompt may hold a NUL; names are closed by one. No function prints, ends the process or
 * throws. Functions are only ever added: a program that was linked with one SPC_ABI runs with every later library of it.
 */
#ifndef SPECCOMPILE_H
#define SPECCOMPILE_H

#include <stddef.h>
#include <stdint.h>

#define SPC_ABI 1

#if defined(SPC_BUILDING) && (defined(__GNUC__) || defined(__clang__))
#define SPC_API __attribute__((visibility("default")))
#else
#define SPC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct spc_error spc_error;     /* what went wrong; the caller's, to free */
typedef struct spc_bundle spc_bundle;   /* manifest, weights, tokenizer: never changes, for any thread */
typedef struct spc_session spc_session; /* buffers and a generation, for one thread at a time */
typedef struct spc_request spc_request; /* prompts and options, for one thread at a time */
typedef struct spc_result spc_result;   /* what came out of a row: never changes */
typedef struct spc_scheduler spc_scheduler;   /* a thread that decodes many requests at once, for any thread */
typedef struct spc_submission spc_submission; /* a request that a scheduler has taken, for any thread */
typedef struct spc_delta spc_delta;           /* what a sequence has got of late: never changes */

/* Kinds of errors, and the exit code that a program should end with. */
enum {
  SPC_FAILED = 1,     /* 1: failed for a named reason */
  SPC_USAGE = 2,      /* 2: an option or an argument is wrong */
  SPC_BUNDLE = 10,    /* 1: not a bundle, or not the one that was built */
  SPC_ENGINE = 11,    /* 1: an engine library that is missing or refuses a graph */
  SPC_PROMPT = 12,    /* 2: a prompt that this bundle cannot take */
  SPC_CANCELLED = 13, /* 1: spc_session_cancel was called */
  SPC_MEMORY = 14,    /* 1: out of memory */
  SPC_TOO_SMALL = 15, /* 1: the caller's buffer is too small; the size that is needed was written */
  SPC_OVERLOADED = 16, /* 1: a scheduler that cannot take a request now */
  SPC_DEFECT = 70     /* 70: a defect of speccompile */
};

/* SPC_ABI of the library, and its version as text. */
SPC_API uint32_t spc_abi(void);
SPC_API const char *spc_version(void);

SPC_API int spc_error_kind(const spc_error *error);
SPC_API int spc_error_exit_code(const spc_error *error);
SPC_API const char *spc_error_message(const spc_error *error);
SPC_API const char *spc_error_hint(const spc_error *error); /* "" where there is none */
SPC_API void spc_error_free(spc_error *error);

/* Warnings and progress, a line each, from any thread; level: 20 progress, 30 a warning. NULL, the default: nowhere. A call
 * on another thread may still be in the sink that was there before. */
SPC_API void spc_log_to(void (*sink)(void *user, int level, const char *line), void *user);

/* options: names and values in turn, closed by NULL; NULL for none. "engine": its name, by default the first that can run
 * here. "threads": of the processor, by default one for each core that this process may use. "verify": "true" (the default)
 * compares every file with its recorded hash, "false" does not. "signed_by": a file of a public key of minisign, which must
 * have signed the bundle (`speccompile sign`); needs OpenSSL's libcrypto. "image_cache": MiB of rows of encoded pictures that are
 * kept for those that come again, by default 256. "onnxruntime": the path of ONNX Runtime's library, by
 * default $SPECCOMPILE_ONNXRUNTIME, then what the loader finds as libonnxruntime.so.1. */
SPC_API spc_error *spc_bundle_open(const char *folder, const char *const *options, spc_bundle **bundle);
SPC_API void spc_bundle_free(spc_bundle *bundle); /* sessions keep what they need */
/* manifest.json, and a JSON object of what was opened: engine, exact, exactness, kernels, speculative, load_seconds, .. */
SPC_API const char *spc_bundle_manifest(const spc_bundle *bundle);
SPC_API const char *spc_bundle_description(const spc_bundle *bundle);
/* Text to token ids and back. count, size: the room at `ids`, `text`; then what was or would be written. special_tokens: 1
 * adds those that the tokenizer puts around a prompt. Decoded text has no special tokens. */
SPC_API spc_error *spc_bundle_encode(const spc_bundle *bundle, const char *text, size_t size, int special_tokens, int64_t *ids, size_t *count);
SPC_API spc_error *spc_bundle_decode(const spc_bundle *bundle, const int64_t *ids, size_t count, char *text, size_t *size);

SPC_API spc_error *spc_request_create(spc_request **request);
SPC_API void spc_request_free(spc_request *request);
/* Prompts side by side, up to the bundle's batch_size; the text or the ids are copied. */
SPC_API spc_error *spc_request_add_text(spc_request *request, const char *text, size_t size);
SPC_API spc_error *spc_request_add_tokens(spc_request *request, const int64_t *ids, size_t count);
SPC_API spc_error *spc_request_add_stop(spc_request *request, const char *text, size_t size);
/* A token that ends a sequence, which keeps it, like an end token of the target's. */
SPC_API spc_error *spc_request_add_stop_token(spc_request *request, int64_t id);
/* Options by the names and with the defaults of Python's `Bundle.generate_batch`.
 * numbers:  options of sampling such as temperature 0 and top_p 1
 * integers: such as top_k 0 and seed; max_new_tokens 128, num_return_sequences 1, top_logprobs 0; and 0 or 1:
 *           autoregressive 0, adaptive 1, logprobs 0, ignore_eos 0, chat 0, truncate 0 (1 drops the first tokens of a prompt
 *           that leaves no room for max_new_tokens, which is otherwise refused where it is beyond the bundle's max_length)
 * prompt: the option of that prompt alone (0 is the first), SPC_ALL for all. */
#define SPC_ALL ((size_t)-1)
SPC_API spc_error *spc_request_set_number(spc_request *request, size_t prompt, const char *name, double value);
SPC_API spc_error *spc_request_set_integer(spc_request *request, size_t prompt, const char *name, uint64_t value);

/* What is added to the logit of a token, from -100 to 100, of a prompt or of all (SPC_ALL): one call for each of up to 1024 tokens. A
 * prompt with tokens of its own has these alone. Checked by spc_session_start and spc_scheduler_submit. */
SPC_API spc_error *spc_request_set_logit_bias(spc_request *request, size_t prompt, int64_t token, double bias);

/* The adapter of a prompt, or of all (SPC_ALL), by its name in the session; NULL or "" for the target without one. */
SPC_API spc_error *spc_request_set_adapter(spc_request *request, size_t prompt, const char *name);

/* What a target with an encoder reads (translation, correction, summaries): a text, or token ids, of a prompt or of all (SPC_ALL). A
 * prompt is then the beginning of the answer, and may be left out; without any prompt each source has its answer. */
SPC_API spc_error *spc_request_set_source(spc_request *request, size_t prompt, const char *text, size_t size);
SPC_API spc_error *spc_request_set_source_tokens(spc_request *request, size_t prompt, const int64_t *ids, size_t count);
/* What a target that hears (Whisper) hears, up to the length of its encoder: samples in [-1, 1] at its own rate (16000 a second), or the
 * bytes of a WAV file of any rate. */
SPC_API spc_error *spc_request_set_audio(spc_request *request, size_t prompt, const float *samples, size_t count);
SPC_API spc_error *spc_request_set_audio_file(spc_request *request, size_t prompt, const void *data, size_t size);
/* Options that are texts, of all prompts: source_language and target_language, of a target for several languages, and task, of one that
 * hears: transcribe, the default, or translate. */
SPC_API spc_error *spc_request_set_text(spc_request *request, const char *name, const char *value);
/* What the new text of every prompt has to be, for bundles that were built with constraints; kind, and text in UTF-8:
 * json_object (no text): a JSON object. json_schema: JSON that this schema allows. regex: the whole text matches. grammar: in the Lark
 * form of llguidance. choice: one of the texts of a JSON list. Tokens stay those of the target among the allowed ones. kind: NULL takes
 * the constraint away. SPC_USAGE for another kind, and for a text that is no UTF-8 or no list; spc_session_start and
 * spc_scheduler_submit return SPC_USAGE for what the bundle or this runtime does not take, above 65536 bytes, and for one that takes
 * more work than one may have: nothing of a constraint is ignored. */
SPC_API spc_error *spc_request_set_constraint(spc_request *request, const char *kind, const char *text, size_t size);

/* A picture of a prompt (0 is the first) of a bundle whose target sees them: rgb has 3 bytes for each of width * height pixels, row by row,
 * and is copied. A text has the target's placeholder once for each picture of its prompt, in their order, or none at all: then they come
 * first. Placeholders in a text with the option chat are plain text. SPC_PROMPT beyond 64 000 000 pixels or a side of 16384. */
SPC_API spc_error *spc_request_add_image(spc_request *request, size_t prompt, const uint8_t *rgb, size_t width, size_t height);
/* The same from the bytes of a file: PPM, and PNG or JPEG where libpng or libjpeg is there; SPC_ENGINE names the one that is missing,
 * SPC_PROMPT a file that cannot be decoded or has more than 32 MiB. */
SPC_API spc_error *spc_request_add_image_file(spc_request *request, size_t prompt, const void *data, size_t size);
/* How the picture of a prompt that was added last is read: "low" with fewer tokens, "auto" and "high" as the target does itself. SPC_USAGE
 * for another word, and for a prompt without pictures. */
SPC_API spc_error *spc_request_set_image_detail(spc_request *request, size_t prompt, const char *detail);

/* A session has buffers of its own and shares the bundle's weights. */
SPC_API spc_error *spc_session_create(const spc_bundle *bundle, spc_session **session);
SPC_API void spc_session_free(spc_session *session);
/* Drafts of the host, for bundles of drafter.kind or drafter.gate.kind retrieval, in the place of the bundle's own index (behind a
 * gate its drafts are taken wherever there are any); a generation under way is dropped. propose: called by step on its thread, for a row at a time, with the tokens of the row's whole text. It writes at most
 * `room` drafts, the best first, and of each its parent: the number of an earlier draft, from 0 on, or -1 where it follows the
 * text; and returns how many, 0 for none. A number below 0: step returns SPC_FAILED. It must not throw, nor call the session.
 * NULL: the bundle's index again. */
SPC_API spc_error *spc_session_propose(spc_session *session, int64_t (*propose)(void *user, const int64_t *tokens, size_t count, int64_t *drafts, int64_t *parents, size_t room), void *user);
/* What the drafter has learned, and keeps from one generation of the session to the next (drafter.kind token_recycling, ..); no
 * token depends on it. Between two steps, at any time. reset: nothing, as in a new session. save, load: a file, which serves
 * every bundle of such a drafter and vocabulary, and Python's runtime; SPC_USAGE for one that does not fit, and where the
 * bundle keeps nothing. What could not be loaded has changed nothing. */
SPC_API spc_error *spc_session_reset_kept(spc_session *session);
SPC_API spc_error *spc_session_save_kept(const spc_session *session, const char *path);
SPC_API spc_error *spc_session_load_kept(spc_session *session, const char *path);
/* The text of the latest generation of one prompt, which ends if it is under way, and the states that it left: into a file that
 * Python's save_session might have written, with mode 0600, since it holds the text. */
SPC_API spc_error *spc_session_save(spc_session *session, const char *path);
/* Restores such a file of either runtime: the next generation, of one prompt, goes on from the tokens with which both begin, and
 * has the tokens that it has without. A generation under way is dropped. ids: the file's tokens, until the next call of load or
 * free. SPC_USAGE, with nothing changed, for a file that is damaged, or of another bundle, version or machine. */
SPC_API spc_error *spc_session_load(spc_session *session, const char *path, const int64_t **ids, size_t *count);
/* Adapters of the target, for bundles with slots for them (the recipe's section adapters): a folder that PEFT wrote, into a free
 * slot, under a name for spc_request_set_adapter; and out of it. A generation under way is dropped. SPC_USAGE for a name that
 * is taken or unknown, and where no slot is free; SPC_FAILED for an adapter that does not fit. Nothing has changed then. */
SPC_API spc_error *spc_session_load_adapter(spc_session *session, const char *name, const char *folder);
SPC_API spc_error *spc_session_unload_adapter(spc_session *session, const char *name);
/* Checks the request and copies it; runs nothing. A generation under way is dropped. */
SPC_API spc_error *spc_session_start(spc_session *session, const spc_request *request);
/* The prefill, then one round a call, on the caller's thread. done: 1 when every row has ended. */
SPC_API spc_error *spc_session_step(spc_session *session, int *done);
/* Rows of the generation: the sequences of the first prompt, of the second, .. */
SPC_API size_t spc_session_rows(const spc_session *session);
/* What the last step has added to a row, and steps before it after which nobody asked; it stays until the next call of step,
 * start or free. No text without a tokenizer. */
SPC_API spc_error *spc_session_new_text(spc_session *session, size_t row, const char **text, size_t *size);
SPC_API spc_error *spc_session_new_tokens(spc_session *session, size_t row, const int64_t **ids, size_t *count);
/* From any thread, but not from a signal handler: the step under way, or the next one, returns SPC_CANCELLED and has
 * committed nothing. The session may be started again. */
SPC_API void spc_session_cancel(spc_session *session);
/* What a row has until now; whole once every row has ended. */
SPC_API spc_error *spc_session_result(spc_session *session, size_t row, spc_result **result);

/* The object of `speccompile generate --json`, and beside it path_lengths, draft_lengths, prefill_seconds, verify_seconds,
 * draft_seconds and round_seconds. */
SPC_API const char *spc_result_json(const spc_result *result);
SPC_API void spc_result_tokens(const spc_result *result, const int64_t **ids, size_t *count);
SPC_API void spc_result_free(spc_result *result);

/* Continuous batching: requests of any threads share the bundle's batch slots, and each has the tokens that it has alone. What
 * one has read serves others with the same beginning.
 * options: names and values in turn, closed by NULL; NULL for none. "requests" (64) and "tokens" (65536) of prompts: that may wait
 * for a slot. "sequences" (16): of one request. "queue_seconds": until its first slot; "seconds": in all; by default for ever.
 * "client_rows": slots that one client may have at once. "reuse": "false" reads every prompt anew. "scheduling_policy": fcfs
 * (who came first is served next) or priority (of those with the lowest number, if need be in the slot of a running one with a
 * higher number, which goes on later with the same tokens). "adapter": NAME=FOLDER of an adapter of the target,
 * any number of times. */
SPC_API spc_error *spc_scheduler_create(const spc_bundle *bundle, const char *const *options, spc_scheduler **scheduler);
/* What is left ends as cancelled, after the round in progress; submissions keep what they need. */
SPC_API void spc_scheduler_free(spc_scheduler *scheduler);
/* Takes no more requests, and waits until the present ones have ended, for at most `seconds` (below 0: for ever); the rest end as
 * cancelled. From one thread at a time. */
SPC_API spc_error *spc_scheduler_close(spc_scheduler *scheduler, double seconds);
/* Checks a request with one prompt, copies it and puts it into the queue. terms: names and values as above. "client": its name, for
 * client_rows. "salt": only requests with the same one share what they have read. "reuse": "false" shares with none.
 * "priority" (0): requests with lower numbers are served earlier, by a scheduler with that policy.
 * SPC_OVERLOADED if the queue is full or the scheduler is closing, SPC_ENGINE after a failure of the engine. */
SPC_API spc_error *spc_scheduler_submit(spc_scheduler *scheduler, const spc_request *request, const char *const *terms, spc_submission **submission);
/* Numbers since the beginning, as a result whose JSON is an object: waiting, running, submitted, refused, finished, cancelled,
 * failed, prompt_tokens, cached_tokens, new_tokens, rounds, draft_tokens, accepted_tokens, preemptions. */
SPC_API spc_error *spc_scheduler_stats(const spc_scheduler *scheduler, spc_result **stats);

/* Its sequences: num_return_sequences. */
SPC_API size_t spc_submission_sequences(const spc_submission *submission);
/* The next delta of any sequence, for which it waits for at most `seconds` (0: not at all; below 0: for ever). delta: NULL where
 * none has come, and after the last one; then done is 1. An error of the request comes after the deltas before it. */
SPC_API spc_error *spc_submission_next(spc_submission *submission, double seconds, spc_delta **delta, int *done);
/* wake: called now, and on the scheduler's thread whenever there is something for spc_submission_next; it must not block or throw,
 * and may call it. NULL: nobody. Once this has returned, none that was there before is called any more. */
SPC_API spc_error *spc_submission_on_ready(spc_submission *submission, void (*wake)(void *user), void *user);
/* From any thread: its sequences end after the round in progress, as cancelled. */
SPC_API void spc_submission_cancel(spc_submission *submission);
SPC_API void spc_submission_free(spc_submission *submission); /* cancels what has not ended */

SPC_API size_t spc_delta_sequence(const spc_delta *delta); /* from 0 on */
/* New text that may be shown, and new tokens, possibly none. They stay until the delta is freed. */
SPC_API void spc_delta_text(const spc_delta *delta, const char **text, size_t *size);
SPC_API void spc_delta_tokens(const spc_delta *delta, const int64_t **ids, size_t *count);
/* The whole sequence, with its last delta; NULL with another one. */
SPC_API spc_error *spc_delta_result(const spc_delta *delta, spc_result **result);
SPC_API void spc_delta_free(spc_delta *delta);

#ifdef __cplusplus
}
#endif
#endif
