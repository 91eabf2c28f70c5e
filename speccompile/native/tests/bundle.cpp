// Commands of tests for native/bundle and its neighbours: one JSON object a line, and an answer for each.
//
//   {"blake3": path, "threads": 2}     {"sha256": text}         {"parse": text}        {"plain_path": text}
//   {"open": folder, "verify": true}   {"manifest": path}       {"path": [folder, name]}
//   {"processor": root}                {"cores": root}          {"memory": null}       {"number": [variable, zero]}
//   {"external_data": file}            {"with_carriers": file, "folder": text, "carriers": {location: text}}
//   {"packed_key": [folder, file, version]}        {"weights_of": graph}
//   {"store": [folder, file, version], "saved": folder}        as if ONNX Runtime had saved the graph as those files
//   {"open_packed": [folder, file, version], "verify": true}   the digest of the model that it would open
//   {"open_mapped": [folder, file, version], "verify": true, "saved": folder, "refuse": ""}
//   {"keep": key, "found": value}      {"known": key}
//   {"propose": [tokens, ..], "index": folder, "drafts": 8, "depth": 4}   [tokens, parents] of each
//
// The answer is {"answer": .., "told": [lines of the log]} or {"error": {"kind": .., "message": .., "hint": ..}, "told": ..}.
#include <filesystem>
#include <iostream>

#include "../bundle/blake3.h"
#include "../bundle/reader.h"
#include "../bundle/result_cache.h"
#include "../bundle/sha256.h"
#include "../errors.h"
#include "../files.h"
#include "../index/retrieval.h"
#include "../progress.h"
#include "../runtime/onnx_file.h"
#include "../runtime/prepacked.h"
#include "../system.h"

namespace spc {
namespace {

Json object_of(const std::vector<std::pair<std::string, std::string>>& pairs) {
  return Json::Object(pairs.begin(), pairs.end());
}

Json opened(const OpenedBundle& bundle) {
  Json::List engines;
  for (const EngineEntry& engine : bundle.manifest.engines) {
    Json::List graphs;
    for (const Graph& graph : engine.graphs) graphs.push_back(graph.name);
    engines.push_back(Json::Object{{"name", engine.name}, {"files", object_of(engine.files)}, {"graphs", graphs}});
  }
  return Json::Object{{"digest", bundle.hashes.digest}, {"name", bundle.manifest.name}, {"manifest", bundle.manifest.json},
                      {"lock", bundle.lock}, {"proof", bundle.proof}, {"engines", engines}};
}

PrepackedKey key_of(const Json& asked) {
  return packed_key(asked.list().at(0).text(), asked.list().at(1).text(), asked.list().at(2).text());
}

std::string graph_of(const Json& asked) { return join_path(asked.list().at(0).text(), asked.list().at(1).text()); }

SaveGraph copy_from(const std::string& saved) {
  return [saved](const std::string&, const std::string& output) {
    for (const auto& each : std::filesystem::directory_iterator(saved))
      write_file(join_path(parent_path(output), each.path().filename().native()), read_file(each.path().native()));
  };
}

Json store(const Json& asked, const std::string& saved) {
  PrepackedWeights().store(key_of(asked), graph_of(asked), copy_from(saved));
  return key_of(asked).digest();
}

Json mapped(const Json& asked) {
  Json model;
  const Json::List& of = asked["open_mapped"].list();
  const auto open = [&](const std::string& text) {
    if (!asked["refuse"].text().empty()) throw Error(Kind::kEngine, asked["refuse"].text());
    model = sha256(text);
  };
  const bool is_mapped = open_with_prepacked(of.at(0).text(), of.at(1).text(), of.at(2).text(), asked["verify"].boolean(),
                                     copy_from(asked["saved"].text()), open);
  return is_mapped ? model : Json(false);
}

Json open_packed(const Json& asked, bool verify) {
  Json model;
  PrepackedWeights().open(key_of(asked), graph_of(asked), [&](const std::string& text) { model = sha256(text); }, verify);
  return model;
}

Json carried(const Json& asked) {
  std::vector<PlaceholderInitializer> carriers;
  for (const auto& [location, text] : asked["carriers"].object()) carriers.push_back({location, {{"prepacked_0", text.text()}}});
  const auto locate = [&](std::string_view location) { return asked["folder"].text() + std::string(location); };
  return sha256(with_carriers(read_file(asked["with_carriers"].text()), locate, carriers));
}

Json of_files(const std::string& name, const Json& value, const Json& asked) {
  const std::string& text = value.text();
  if (name == "blake3") return hex(blake3(MappedFile(text).bytes(), static_cast<int>(asked["threads"].integer())));
  if (name == "sha256") return sha256(text);
  if (name == "parse") return Json::parse(text).canonical();
  if (name == "plain_path") return plain_path(text);
  if (name == "open") return opened(
        open_bundle(text, asked["verify"].boolean(), asked["signed_by"].text(), asked["skip_verified"].boolean()));
  if (name == "manifest") return Manifest::from_json(read_json(text), "manifest.json").name;
  if (name == "path") return open_bundle(value.list().at(0).text()).path(value.list().at(1).text());
  if (name == "external_data") {
    Json::List found;
    for (const Entries& each : external_data(read_file(text))) found.push_back(object_of(each));
    return found;
  }
  if (name == "with_carriers") return carried(asked);
  throw Error(Kind::kUsage, "unknown question " + name);
}

Json proposed(const Json& asked) {
  const auto size = [&](const char* name) { return static_cast<size_t>(asked[name].integer()); };
  const RetrievalProposer retrieval(asked["index"].text(), size("drafts"), size("depth"));
  Json::List found;
  for (const Json& text : asked["propose"].list()) {
    std::vector<int64_t> tokens;
    for (const Json& token : text.list()) tokens.push_back(token.integer());
    const Drafts drafts = retrieval.propose(tokens);
    found.push_back(Json::List{list_of(drafts.tokens), list_of(drafts.parents)});
  }
  return found;
}

Json answer(const Json& asked) {
  const auto& [name, value] = asked.object().at(0);
  if (name == "processor") return processor(value.text());
  if (name == "cores") return available_cores(value.text());
  if (name == "memory") {
    Json found{Json::Object{}};
    for (const auto& [what, size] : process_memory()) found.set(what, size);
    return found;
  }
  if (name == "number") return read_number(value.list().at(0).text().c_str(), 7, value.list().at(1).boolean());
  if (name == "packed_key") {
    const PrepackedKey key = key_of(value);
    return Json::Object{{"key", key.to_json()}, {"digest", key.digest()}, {"size", key.size}};
  }
  if (name == "weights_of") return list_of(weights_of(value.text()));
  if (name == "store") return store(value, asked["saved"].text());
  if (name == "open_mapped") return mapped(asked);
  if (name == "open_packed") return open_packed(value, asked["verify"].boolean());
  if (name == "propose") return proposed(asked);
  if (name == "keep") {
    ResultCache(kInvarianceFolder).store(value, asked["found"]);
    return {};
  }
  if (name == "known") return ResultCache(kInvarianceFolder).read(value).value_or(Json());
  return of_files(name, value, asked);
}

Json error(const char* kind, const std::string& message, const std::string& hint = "") {
  return Json::Object{{"kind", kind}, {"message", message}, {"hint", hint}};
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kBundle: return "BundleError";
    case Kind::kEngine: return "EngineError";
    case Kind::kUsage: return "UsageError";
    default: return "SpeccompileError";
  }
}

Json answer_or_error(const std::string& line) {
  try {
    return Json::Object{{"answer", answer(Json::parse(line))}};
  } catch (const Error& found) {
    return Json::Object{{"error", error(name_of(found.kind), found.message, found.hint)}};
  } catch (const JsonError& found) {
    return Json::Object{{"error", error("JSONDecodeError", found.what())}};
  } catch (const FileError& found) {
    return Json::Object{{"error", error("OSError", found.reason)}};
  }
}

}  // namespace
}  // namespace spc

int main() {
  std::vector<std::string> told;
  spc::log_to([&](spc::Level level, const std::string& line) {
    if (level >= spc::Level::kInfo) told.push_back(line);
  });
  for (std::string line; std::getline(std::cin, line); told.clear()) {
    spc::Json found = spc::answer_or_error(line);
    found.set("told", spc::list_of(told));
    std::cout << found.dump() << std::endl;
  }
  return 0;
}
