// Text and Stream for tests in Python: one JSON object a line is one request, answered by one line.
//
//   {"open": "tokenizer.json"}                        {"opened": true}
//   {"encode": "text", "special": true}               {"ids": [1, 2]}
//   {"decode": [1, 2]}                                {"text": "text"}
//   {"shown": [1, 2]}                                 {"ids": [1, 2], "bytes": [false, true]}
//   {"stream": {"prompt": [1], "stop": ["x"], "groups": [[2], [3]]}}
//                                                     {"pieces": ["a", "b", "rest"], "stopped": false, "kept": 2}
// and {"kind": 10, "message": "..", "hint": ".."} where an Error is thrown.
#include <iostream>
#include <string>

#include "../errors.h"
#include "../json.h"
#include "../text/text.h"

namespace {

using spc::Json;
using spc::list_of;

spc::TokenIds ids_of(const Json& list) {
  spc::TokenIds ids;
  for (const Json& id : list.list()) ids.push_back(id.integer());
  return ids;
}

Json streamed(std::shared_ptr<const spc::Text> text, const Json& request) {
  std::vector<std::string> stop;
  for (const Json& each : request["stop"].list()) stop.push_back(each.text());
  spc::IncrementalDetokenizer stream(std::move(text), ids_of(request["prompt"]), stop);
  Json::List pieces;
  for (const Json& group : request["groups"].list()) pieces.emplace_back(stream.push(ids_of(group)));
  pieces.emplace_back(stream.finish());
  if (const std::string again = stream.finish(); !again.empty()) pieces.emplace_back(again);  // it comes once
  return Json(Json::Object{
      {"pieces", Json(std::move(pieces))}, {"stopped", stream.stopped()}, {"kept", static_cast<uint64_t>(stream.kept())}});
}

Json answer(std::shared_ptr<const spc::Text>& text, const Json& request) {
  if (const Json* path = request.find("open")) {
    text = spc::Text::open(path->text());
    return Json(Json::Object{{"opened", true}});
  }
  if (!text) throw spc::Error(spc::Kind::kUsage, "no tokenizer is open");
  if (const Json* source = request.find("encode"))
    return Json(Json::Object{{"ids", list_of(text->encode(source->text(), request["special"].boolean()))}});
  if (const Json* ids = request.find("decode")) return Json(Json::Object{{"text", text->decode(ids_of(*ids))}});
  if (const Json* ids = request.find("shown")) {
    Json::List bytes;
    for (const int64_t id : ids_of(*ids)) bytes.emplace_back(text->is_byte(id));
    return Json(Json::Object{{"ids", list_of(text->shown(ids_of(*ids)))}, {"bytes", Json(std::move(bytes))}});
  }
  return streamed(text, request["stream"]);
}

}  // namespace

int main() {
  std::shared_ptr<const spc::Text> text;
  for (std::string line; std::getline(std::cin, line);) {
    Json answered;
    try {
      answered = answer(text, Json::parse(line));
    } catch (const spc::Error& error) {
      const int kind = static_cast<int>(error.kind);
      answered = Json(Json::Object{{"kind", kind}, {"message", error.message}, {"hint", error.hint}});
    }
    std::cout << answered.dump() << std::endl;
  }
}
