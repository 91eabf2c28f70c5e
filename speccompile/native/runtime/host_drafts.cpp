#include "host_drafts.h"

#include <string>

#include "../errors.h"

namespace spc {
namespace {

[[noreturn]] void refuse(const std::string& received, const std::string& expected, const char* hint = "see spc_session_propose") {
  throw Error(Kind::kUsage, "proposer: received " + received + ", expected " + expected, hint);
}

}  // namespace

bool needs_proposer(const Manifest& manifest) {
  if (!manifest.tokens) return false;
  for (const Graph& graph : manifest.graphs)
    if (graph.name == graph::kDraft || graph.name == graph::kStep) return false;
  return true;
}

const Json& gate_config(const Manifest& manifest) {
  static const Json none;
  const Json& gate = manifest.json["plan"]["drafter"]["cascade"]["gate"];
  return gate["kind"].text() == kRetrievalGate ? gate : none;
}

HostDrafts::HostDrafts(Proposer proposer, const Manifest& manifest)
    : proposer_(std::move(proposer)), vocabulary_(manifest.vocabulary_size), depth_(manifest.depth), is_chain_(manifest.is_chain()) {}

int64_t HostDrafts::write(const TokenIds& text, int64_t* window, int64_t* parents, int64_t most) const {
  window[0] = text.back();
  if (!proposer_) return 0;
  const Drafts drafts = proposer_(text);
  check(drafts);
  int64_t kept = 0;
  std::vector<int64_t> depths, nodes;  // of every draft; a node is a place in the window, 0 for the text's last token
  for (size_t draft = 0; draft < drafts.tokens.size() && kept < most; ++draft) {
    const bool is_root = drafts.parents[draft] == kBehindText;
    const auto parent = static_cast<size_t>(drafts.parents[draft]);
    depths.push_back(is_root ? 1 : depths[parent] + 1);
    nodes.push_back(kept + 1);
    if (depths.back() > depth_) continue;
    window[++kept] = drafts.tokens[draft];
    if (parents) parents[kept] = is_root ? 0 : nodes[parent];
  }
  return kept;
}

void HostDrafts::check(const Drafts& drafts) const {
  const size_t count = drafts.tokens.size();
  if (count != drafts.parents.size())
    refuse(std::to_string(count) + " tokens and " + std::to_string(drafts.parents.size()) + " parents", "one parent for each token");
  for (size_t i = 0; i < count; ++i) {
    const int64_t token = drafts.tokens[i], parent = drafts.parents[i], draft = static_cast<int64_t>(i);
    const std::string number = std::to_string(i), received = "parent " + std::to_string(parent) + " of draft " + number;
    if (token < 0 || token >= vocabulary_)
      refuse("token " + std::to_string(token) + " as draft " + number, "tokens from 0 to " + std::to_string(vocabulary_ - 1));
    if (parent < kBehindText || parent >= draft) refuse(received, "a draft before it, or " + std::to_string(kBehindText) + " for the text");
    if (is_chain_ && parent != draft - 1)
      refuse(received, "parent " + std::to_string(draft - 1) + ": this bundle judges a chain",
             "propose a chain, or build with a tree, as in `tree: {depth: 8, nodes: 16}`");
  }
}

}  // namespace spc
