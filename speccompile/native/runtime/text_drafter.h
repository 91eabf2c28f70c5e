// Drafts over texts, by a bundle with another tokenizer inside that of the target (runtime/text_proposer.py).
#pragma once

#include <memory>

#include "host_drafts.h"

namespace spc {

class Bundle;

// Return a proposer whose drafts `writer` writes, in buffers of its own: it reads the text with its tokenizer, goes on from what
// it has read, and its text becomes the target's tokens. tokens: of the drafter a round. Both bundles have tokenizers.
Proposer text_proposer(std::shared_ptr<const Bundle> writer, std::shared_ptr<const Text> target, int64_t tokens);

}  // namespace spc
