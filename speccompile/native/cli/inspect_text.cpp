#include <algorithm>
#include <map>
#include <set>

#include "../contract.h"
#include "../contract_table.h"
#include "../words.h"
#include "inspect.h"
#include "text_table.h"

namespace spc::cli {
namespace {

constexpr int64_t kMany = 10'000;  // bytes that are shown one by one
constexpr size_t kFew = 8;         // entries of a list that are shown

// str() of Python.
std::string plain(const Json& value) { return value.is_text() ? value.text() : value.repr(); }

std::vector<std::string> plain_all(const Json::List& list) {
  std::vector<std::string> parts;
  for (const Json& each : list) parts.push_back(plain(each));
  return parts;
}

std::string size_text(const Json& size) {
  if (size.is_text() || size.integer() < kMany) return plain(size) + " bytes";
  return number("%.2f MB", size.number() / 1e6);
}

std::string short_text(const Json& data) {
  if (!data.is_list()) return data.is_text() ? data.text() : data.dump();
  const Json::List& list = data.list();
  const bool is_plain =
      list.size() <= kFew && std::none_of(list.begin(), list.end(), [](const Json& each) { return each.is_object(); });
  if (!is_plain) return std::to_string(list.size()) + " entries";
  return list.empty() ? "none" : joined(plain_all(list), ", ");
}

// Nested objects as rows of dotted key and value.
void flatten(const Json& data, const std::string& path, std::vector<Cells>& rows) {
  if (data.object().empty()) {
    rows.push_back({path.empty() ? "empty" : path, short_text(data)});
    return;
  }
  for (const auto& [key, value] : data.object()) flatten(value, path.empty() ? key : path + "." + key, rows);
}

std::vector<Cells> flat(const Json& data, const std::string& path = "") {
  std::vector<Cells> rows;
  flatten(data, path, rows);
  return rows;
}

std::string texts(const Json& values) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : values.object()) parts.push_back(key + "=" + value.text());
  return joined(parts, " ");
}

std::string method(const Json& manifest) {
  std::vector<std::string> parameters;
  for (const auto& [name, value] : manifest["plan"]["verify"]["parameters"].object())
    parameters.push_back(name + " " + plain(value));
  const std::string& name = manifest["method"].text();
  return parameters.empty() ? name : name + " (" + joined(parameters, ", ") + ")";
}

// Describe the lookups of a drafter: those after its drafts, and those instead of them.
std::string looked_up(const Json& drafter) {
  std::string found;
  if (const Json& inner = drafter["inner"]; !inner.is_null())
    found += "; " + inner["kind"].text() + " drafts " + inner["tokens"].dump() + " for each of the drafter's " +
             inner["passes"].dump() + " passes";
  if (const Json& then = drafter["cascade"]["then"]; !then.is_null())
    found += "; " + then["kind"].text() + " drafts " + then["tokens"].dump() + " behind the drafter's";
  if (const Json& gate = drafter["cascade"]["gate"]; !gate.is_null())
    found += "; " + gate["kind"].text() + " drafts " + gate["tokens"].dump() + " in their place where it matches " +
             gate["match"].dump() + " tokens or more";
  return found;
}

std::string drafts(const Json& manifest) {
  if (!manifest["tokens"].integer()) return "none";
  const std::string& tree = manifest["tree"].text();
  const std::string shape = tree == tree::kChain ? "a chain" : "a " + tree + " tree of depth " + manifest["depth"].dump();
  return manifest["tokens"].dump() + " a round, " + shape + ", " + (manifest["sample"].boolean() ? "drawn" : "the best") +
         looked_up(manifest["plan"]["drafter"]);
}

// The slots for adapters, with their bytes in the first engine.
std::string adapters(const Json& manifest) {
  const Json& slots = manifest["plan"]["adapters"];
  std::map<std::string, int64_t> sizes;
  for (const Json& graph : manifest["engines"].list().front()["graphs"].list())
    for (const Json& tensor : graph["inputs"].list()) {
      if (!starts_with(tensor["name"].text(), kAdapterPrefix)) continue;
      int64_t bytes = static_cast<int64_t>(item_size(tensor["dtype"].text()));
      for (const Json& size : tensor["shape"].list()) bytes *= size.integer();
      sizes[tensor["name"].text()] = bytes;
    }
  int64_t bytes = 0;
  for (const auto& [name, size] : sizes) bytes += size;
  return slots["slots"].dump() + " slots of rank " + slots["rank"].dump() + " for " +
         joined(plain_all(slots["modules"].list()), ", ") + ", " + size_text(Json(bytes));
}

// Describe the pictures that a target sees.
std::string pictures(const Json& seen) {
  std::vector<std::string> sides = plain_all(seen["tile"].list());  // height, width
  std::reverse(sides.begin(), sides.end());
  const std::string& precision = seen["precision"].text();
  return seen["family"].text() + ", " + plain(seen["tile_rows"]) + " tokens for a tile of " + joined(sides, " x ") + " pixels" +
         (precision.empty() || precision == dtype::kFloat32 ? "" : ", encoded in " + precision);
}

std::vector<Cells> facts(const Json& object, double gigabytes) {
  const Json& manifest = object["manifest"];
  const auto word = [&](const char* name) { return plain(manifest[name]); };
  std::vector<Cells> rows = {
      {"name", word("name")},
      {"decoding", word("decoding")},
      {"method", method(manifest)},
      {"exact", manifest["exact"].boolean() ? "yes" : "no: approximate, speculation may change the output"},
      {"drafts", drafts(manifest)},
      {"batch size", word("batch_size")},
      {"max length", word("max_length") + " tokens, prefilled " + word("prefill_chunk") + " at a time"},
      {"caches", describe_caches(manifest, gigabytes)},
  };
  if (!manifest["plan"]["adapters"].is_null()) rows.push_back({"adapters", adapters(manifest)});
  if (const Json& seen = manifest["plan"]["images"]; !seen.is_null()) rows.push_back({"pictures", pictures(seen)});
  const std::vector<Cells> rest = {
      {"vocabulary", word("vocabulary_size") + ", end tokens " + short_text(manifest["eos_token_ids"])},
      {"tokenizer", manifest["tokenizer"].boolean() ? "yes" : "no: token ids only"},
      {"versions", "format " + word("format") + ", contract " + word("contract") + ", speccompile " + word("speccompile")},
      {"digest", object["digest"].text() + (object["verified"].boolean() ? " (verified)" : " (not verified)")},
  };
  rows.insert(rows.end(), rest.begin(), rest.end());
  return rows;
}

Cells engine_row(const Json& engine) {
  const Json& capability = engine["compute_capability"];
  const std::string& deferred = engine["build"]["deferred"].text();
  return {engine["name"].text(), engine["backend"].text(),
          capability.text().empty() ? engine["provider"].text() : "compute capability " + capability.text(),
          texts(engine["precision"]), deferred.empty() ? texts(engine["files"]) : "deferred: " + deferred};
}

Cells here_row(const std::string& engine, const Json& found) {
  if (found.is_null())
    return {engine, "not tried yet", "whether windows of several tokens give the same logits: `speccompile doctor BUNDLE`"};
  return {engine, found["exact"].boolean() ? "exact" : "NOT EXACT, speculation may change tokens", found["reason"].text()};
}

Cells tensor_cells(const Json& tensor) {
  return {tensor["name"].text(), tensor["dtype"].text(), "[" + joined(plain_all(tensor["shape"].list()), ", ") + "]"};
}

std::vector<Cells> tensor_rows(const Json& graph) {
  std::vector<Cells> rows;
  const auto add = [&](const char* direction, const Json& tensor, const std::string& role) {
    Cells& row = rows.emplace_back(tensor_cells(tensor));
    row.insert(row.begin(), direction);
    row.push_back(role);
  };
  for (const Json& tensor : graph["inputs"].list()) add("in", tensor, tensor["role"].text());
  for (const Json& tensor : graph["outputs"].list()) {
    const std::string& read = graph["aliases"][tensor["name"].text()].text();
    add("out", tensor, read.empty() ? tensor["role"].text() : "updates " + read + " in place");
  }
  return rows;
}

// Bytes of an engine's buffers of fixed size, each shape once.
int64_t fixed_bytes(const Json& graphs, int64_t rows) {
  std::set<std::string> known;
  int64_t bytes = 0;
  for (const Json& graph : graphs.list()) {
    for (const char* side : {"inputs", "outputs"}) {
      for (const Json& tensor : graph[side].list()) {
        const bool is_new = known.insert(Json(Json::List{tensor["buffer"], tensor["dtype"], tensor["shape"]}).dump()).second;
        if (is_new) bytes += size_in_bytes(tensor, rows).integer();
      }
    }
  }
  return bytes;
}

std::vector<Cells> buffer_rows(const Json& object) {
  std::vector<Cells> rows;
  for (const Json& buffer : object["buffers"].list()) {
    rows.push_back(tensor_cells(buffer));
    rows.back().push_back(size_text(buffer["bytes"]));
  }
  const int64_t batch = object["manifest"]["batch_size"].integer();
  for (const Json& engine : object["manifest"]["engines"].list())
    rows.push_back({"fixed sizes, " + engine["name"].text(), "", "", size_text(Json(fixed_bytes(engine["graphs"], batch)))});
  return rows;
}

std::string quality_title(const Json& quality) {
  const std::string title = "quality of the target on " + plain(quality["file"]) + ": " + plain(quality["texts"]) +
                            " texts, " + plain(quality["tokens"]) + " tokens";
  const bool is_part = quality["kl_tokens"].number() < quality["tokens"].number();
  return is_part ? title + ", KL divergence over " + plain(quality["kl_tokens"]) : title;
}

std::vector<Cells> quality_rows(const Json& quality) {
  std::vector<Cells> rows = {{"engines", "precision", "perplexity", "same best token", "KL divergence"},
                             {"transformers", "float32", number("%.4f", quality["perplexity"].number())}};
  if (const Json& cache = quality["cache"]; !cache.is_null()) {
    const std::string& dtype = cache["dtype"].text();
    rows.push_back({"transformers with " + (dtype == kInt4Values ? "caches of " + dtype : dtype + " caches"), "float32",
                    number("%.4f", cache["perplexity"].number()), number("%.2f %%", 100 * cache["same_argmax"].number()),
                    number("%.6f nats", cache["kl_divergence"].number())});
  }
  for (const Json& found : quality["engines"].list()) {
    const std::string block = found["block_size"].is_null() ? "" : ", " + plain(found["block_size"]) + " weights a scale";
    rows.push_back({joined(plain_all(found["engines"].list()), ", "), found["precision"].text() + block,
                    number("%.4f", found["perplexity"].number()), number("%.2f %%", 100 * found["same_argmax"].number()),
                    number("%.6f nats", found["kl_divergence"].number())});
  }
  return rows;
}

// Return rows of the mean acceptance length and the rate at each depth; none without quantized caches.
std::vector<Cells> acceptance_rows(const Json& quality) {
  std::vector<Cells> rows;
  for (const Json& found : quality["cache_acceptance"].list()) {
    for (const char* caches : {"quantized", "float"}) {
      const Json::List &tried = found[caches]["tried"].list(), &accepted = found[caches]["accepted"].list();
      if (rows.empty()) {
        rows.push_back({"engines", "caches", "tokens a round"});
        for (size_t depth = 1; depth <= tried.size(); ++depth) rows[0].push_back("depth " + std::to_string(depth));
      }
      double sum = 0;
      for (const Json& count : accepted) sum += count.number();
      const double length = 1 + sum / std::max(1.0, found[caches]["rounds"].number());
      Cells& row = rows.emplace_back(Cells{joined(plain_all(found["engines"].list()), ", "), caches, number("%.3f", length)});
      for (size_t at = 0; at < std::min(tried.size(), accepted.size()); ++at)
        row.push_back(tried[at].number() > 0 ? number("%.1f %%", 100 * accepted[at].number() / tried[at].number()) : "-");
    }
  }
  return rows;
}

Cells hit_row(const std::string& words, const Json& rates) {
  Cells row = {words};
  for (const Json& rate : rates.list()) row.push_back(number("%.0f %%", 100 * rate.number()));
  return row;
}

// A line for the head as it was read, for the control and for every other reading: the share at depth 1, 2, ..
std::vector<Cells> hit_rows(const Json& hits) {
  const Json& control = hits["control"];
  std::vector<Cells> rows = {hit_row("as its files say", hits["hit_rate"]),
                             hit_row(control["reading"].text(), control["hit_rate"])};
  const Json::List& better = hits["better"].list();
  for (const auto& [words, rates] : hits["readings"].object()) {
    rows.push_back(hit_row(words, rates));
    if (std::find(better.begin(), better.end(), Json(words)) != better.end())
      rows.back().push_back("clearly better: set drafter.taps or drafter.switches");
  }
  return rows;
}

// A line for each graph and each engine that was compared.
std::vector<Cells> proof_rows(const Json& proof) {
  std::vector<Cells> rows;
  for (const auto& [key, found] : proof.object()) {
    if (key == "quality" || key == "drafter") continue;
    const Json::List& list = found.list();
    if (!found.is_list() || !std::all_of(list.begin(), list.end(), [](const Json& each) { return each.is_object(); })) {
      flatten(found, key, rows);
      continue;
    }
    for (const Json& each : list) {
      std::vector<std::string> parts;
      for (const Cells& row : flat(each)) parts.push_back(row[0] + " " + row[1]);
      rows.push_back({key, joined(parts, ", ")});
    }
  }
  return rows;
}

Cells prefix_row(const Json& prefix) {
  const int64_t continuations = prefix["continuations"].integer();
  return {prefix["name"].text(), prefix["engine"].text(), prefix["tokens"].dump() + " tokens",
          continuations ? std::to_string(continuations) + " continuations equal those without it" : "unproven"};
}

// Lines, section by section.
class Page {
 public:
  void add(const std::vector<Cells>& rows, const char* indent = "") {
    for (const std::string& line : columns(rows)) text += indent + line + "\n";
  }
  void section(const std::string& title, const std::vector<Cells>& rows) {
    text += "\n" + title + "\n";
    add(rows, "  ");
  }

  std::string text;
};

}  // namespace

std::string describe(const Json& object, double gigabytes) {
  const Json &manifest = object["manifest"], &proof = object["proof"];
  Page page;
  page.add(facts(object, gigabytes));
  std::vector<Cells> engines, here, files;
  for (const Json& engine : manifest["engines"].list()) engines.push_back(engine_row(engine));
  for (const auto& [engine, found] : object["here"].object()) here.push_back(here_row(engine, found));
  for (const auto& [path, file] : object["files"].object())
    files.push_back({path, size_text(file["bytes"]), file["blake3"].text()});
  page.section("engines", engines);
  page.section("on this processor", here);
  for (const Json& engine : manifest["engines"].list()) {
    const Json& build = engine["build"];
    const bool is_deferred = !build["deferred"].text().empty();
    if (build.is_null()) continue;
    page.section("engine " + engine["name"].text() + (is_deferred ? ", to be built with" : ", as built"),
                 flat(build[is_deferred ? "settings" : "reports"]));
  }
  if (const Json& prefixes = proof["prefixes"]; !prefixes.is_null() && !prefixes.list().empty()) {
    std::vector<Cells> rows;
    for (const Json& prefix : prefixes.list()) rows.push_back(prefix_row(prefix));
    page.section("prefixes", rows);
  }
  for (const Json& graph : manifest["graphs"].list()) page.section("graph " + graph["name"].text(), tensor_rows(graph));
  page.section("buffers, before an engine's precision", buffer_rows(object));
  page.section("files, with BLAKE3", files);
  page.section("built from (lock.json)", flat(object["lock"]));
  if (const Json& quality = proof["quality"]; !quality.object().empty()) {
    page.section(quality_title(quality), quality_rows(quality));
    if (const std::vector<Cells> rows = acceptance_rows(quality); !rows.empty())
      page.section("drafts accepted with quantized caches, and with float caches", rows);
  }
  if (const Json& hits = proof["drafter"]; !hits.object().empty())
    page.section(
        "hit rate of the head by depth, teacher-forced at " + plain(hits["positions"]) + " places of the target's own text",
        hit_rows(hits));
  page.section("proof (proof.json)", proof_rows(proof));
  return page.text;
}

}  // namespace spc::cli
