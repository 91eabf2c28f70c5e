// A manifest in which something was changed, made consistent again: what it says twice it says twice as before. Otherwise
// hardly any would come further than to its reader.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "../json.h"

namespace mend {

inline void aliases(spc::Json& graph) {
  std::map<std::string, spc::Json> read;
  for (const spc::Json& tensor : graph["inputs"].list()) read[tensor["buffer"].text()] = tensor["name"];
  spc::Json found{spc::Json::Object{}};
  for (const spc::Json& tensor : graph["outputs"].list())
    if (tensor["role"] == spc::Json("state") && read.count(tensor["buffer"].text()))
      found.set(tensor["name"].text(), read[tensor["buffer"].text()]);
  graph.set("aliases", found);
}

inline spc::Json buffers(const spc::Json::List& graphs) {
  std::set<std::string> known;
  spc::Json::List found;
  for (const spc::Json& graph : graphs) {
    for (const char* name : {"inputs", "outputs"}) {
      for (const spc::Json& tensor : graph[name].list()) {
        spc::Json row = spc::Json::Object{{"name", tensor["buffer"]}};
        for (const char* field : {"dtype", "shape", "role"}) row.set(field, tensor[field]);
        if (known.insert(row["name"].dump() + row["dtype"].dump() + row["shape"].dump()).second) found.push_back(row);
      }
    }
  }
  std::stable_partition(found.begin(), found.end(), [](const spc::Json& row) { return row["role"] != spc::Json("state"); });
  return found;
}

// with_engines: the engines' graphs become the bundle's.
inline std::string manifest(const std::string& text, bool with_engines) {
  try {
    spc::Json data = spc::Json::parse(text);
    spc::Json graphs = data["graphs"];
    for (spc::Json& graph : graphs.list()) aliases(graph);
    spc::Json engines = data["engines"];
    for (spc::Json& engine : engines.list()) {
      if (with_engines && engine.is_object()) engine.set("graphs", graphs);
      spc::Json own = engine["graphs"];
      for (spc::Json& graph : own.list()) aliases(graph);
      if (engine.is_object()) engine.set("graphs", own);
    }
    data.set("graphs", graphs);
    data.set("engines", engines);
    data.set("buffers", buffers(graphs.list()));
    return data.canonical();
  } catch (const spc::JsonError&) {
    return text;
  }
}

}  // namespace mend
