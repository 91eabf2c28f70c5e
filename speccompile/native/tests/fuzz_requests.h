// Untrusted input of clients and checkpoints: chat templates, and requests as they come.
#pragma once

#include <string>
#include <vector>

#include "../audio/wav.h"
#include "../errors.h"
#include "../json.h"
#include "../serving/http/audio.h"
#include "../serving/http/channel.h"
#include "../serving/http/conversation.h"
#include "../serving/http/errors.h"
#include "../serving/http/fields.h"
#include "../serving/http/requests.h"
#include "../serving/http/tables.h"
#include "../serving/http/tools.h"
#include "../text/jinja/render.h"
#include "check.h"

// Up to a byte that no UTF-8 has, a template; behind it its variables as JSON, if they are.
inline void render_any(const std::string& input) {
  const size_t end = std::min(input.find('\xff'), input.size());
  const std::string source = input.substr(0, end);
  if (!spc::is_utf8(source)) return;  // templates come out of JSON, which refuses other texts
  try {
    spc::jinja::Dict variables;
    try {
      const spc::Json given = spc::Json::parse(input.substr(std::min(end + 1, input.size())));
      for (const auto& [name, value] : given.object()) variables.set(name, spc::jinja::Value::of(value));
    } catch (const spc::JsonError&) {  // without any
    }
    spc::jinja::render(source, variables);
  } catch (const spc::jinja::TemplateError& error) {
    throw spc::Error(spc::Kind::kPrompt, error.message.empty() ? "a template was refused without a word" : error.message, "");
  }
}

// A request: its head in lines, an empty line, and its body. What is wrong has a status below 500 and words.
inline void read_any(const std::string& input) {
  try {
    std::vector<std::string> lines;
    size_t at = 0;
    for (size_t end; (end = input.find("\r\n", at)) != std::string::npos && end > at; at = end + 2) lines.push_back(input.substr(at, end - at));
    if (lines.empty()) lines.emplace_back();
    const spc::http::ConnectionLimits limits;
    const spc::http::RequestHead head = spc::http::parse_head(lines, limits);
    CHECK(!head.length || *head.length >= 0, "a body of a length below 0");
    const std::string rest = input.substr(std::min(at + 2, input.size()));
    if (const std::string* const type = head.find("content-type"); type && head.target == spc::http::kTranscriptionsUrl) {
      const std::string form = "\r\n" + rest;
      spc::audio::parse_wav(spc::http::audio_request(form, *type, "transcribe").sound, "audio");
      return;
    }
    const spc::Json body = spc::http::parse_body(rest);
    const bool is_chat = head.target == "/v1/chat/completions";
    const spc::Json fields = is_chat ? spc::http::validate_chat(body) : spc::http::validate_completion(body);
    if (is_chat) spc::http::chat_text(fields, spc::ChatTemplates(spc::Json::parse(R"({"template": "{% for m in messages %}{{ m }}{% endfor %}", "special_tokens": {}})"), "chat.json"), fields["tools"]);
  } catch (const spc::http::RequestError& error) {
    CHECK(error.status >= 400 && (error.status < 500 || error.status == 501) && !error.message.empty(), "%d: %s", error.status, error.what());
    throw spc::Error(spc::Kind::kUsage, error.message, error.hint);
  }
}

// Text that a model wrote where it may call a tool.
inline void read_calls(const std::string& input) {
  for (const spc::http::ToolCallFormat& format : spc::http::kToolCallFormats) {
    const spc::http::Tools tools{&format, {spc::Json::Object{{"name", "f"}}}, {}, false, input.size() % 2 == 0};
    for (const auto& call : tools.read(input).second) {
      CHECK(call.name == "f" && spc::Json::parse(call.arguments).is_object(), "%s", call.arguments.c_str());
      CHECK(call.to_json()["id"].text().size() > 20, "a call without a number of its own");
    }
  }
}

constexpr const char* kCallExamples[] = {"So <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1.5, \"}\"]}}\n</tool_call>\n<tool_call>\n{}</tool_call>",
                                         "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}]", "{\"name\": \"f\", \"parameters\": {\"a\": \"\\\"\"}}{}"};
constexpr const char* kRequestExample =
    "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\nConnection: keep-alive\r\n\r\n"
    R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "assistant", "content": null, "tool_calls": )"
    R"([{"type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]}], "max_tokens": 5, "stop": ["a"], "stream": true, )"
    R"("stream_options": {"include_usage": true}, "chat_template_kwargs": {"x": [1, 2.5]}, "tool_choice": "none", "seed": -1, "n": 1, )"
    R"("logit_bias": {"5": -100, "17": 2.5}, "frequency_penalty": 0.5, "presence_penalty": -2, "logprobs": true, "top_logprobs": 2})";

constexpr const char* kFormExample =
    "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=\"XX\"\r\n\r\n"
    "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a \\\"b\\\".wav\"\r\n\r\nRIFFabcdWAVEfmt \r\n"
    "--XX\r\nContent-Disposition: form-data; name=\"response_format\"\r\n\r\nverbose_json\r\n--XX\r\nContent-Disposition: form-data; "
    "name=\"temperature\"\r\n\r\n0.5\r\n--XX--\r\n";
