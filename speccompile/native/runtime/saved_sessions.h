// Saved sessions: what the first batch slot has read, saved to a file and restored from one (runtime/sessions.py).
//
// Restored states are those that the same tokens leave, bit for bit, so that no token depends on a session. A file is refused
// where that could not be so: its key has every fact on which states depend, and the differing one is named. The drafter's part
// has a key of its own: that of another drafter is dropped, and the drafter reads the text again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bundle.h"
#include "decode_loop.h"
#include "session_file.h"

namespace spc {

// Facts on which states depend. target: those of all states, by name; drafter: those of the drafter's own.
struct SessionKey {
  using Facts = std::vector<std::pair<std::string, std::string>>;

  static SessionKey of(const Bundle& bundle);
  // Return the facts for states of an adapter, by its key. A reader that knows no adapters refuses them.
  Facts of_adapter(const std::string& adapter) const;

  Facts target;
  std::string drafter;
};

// Throws Error(kUsage) for the file of a session in a folder that is not there or may not be written, and for several sequences.
void check_session(const std::string& path, int64_t sequences);

class SavedSessions {
 public:
  SavedSessions(DecodeLoop& loop, const Manifest& manifest, SessionKey key);

  // Write what a slot holds of the latest sequence. Throws Error(kUsage) if it holds nothing, or the file cannot be written.
  void save(const std::string& path);
  using Notes = std::map<std::string, std::string>;

  // Return what `save` writes of a slot, with notes, which `start` gives back.
  SessionFile content(const std::string& path, SlotContent left, const Notes& notes = {});
  // Beginning of a file. written: see Slot. same_drafter: whether this bundle's drafter wrote its part. adapter: key of that
  // with which its tokens were read, "" for the base.
  struct Start {
    TokenIds tokens;
    int64_t written;
    bool same_drafter;
    std::string adapter;
    Notes notes;
  };
  // Return all facts on which the states of a text depend, as one text. adapter: its key.
  std::string identity(const std::string& adapter) const;
  // Return the beginning of a file of the bundle. Throws Error(kUsage) for one that does not fit.
  Start start(const std::string& path) const;
  // Return the content of a file, on any thread. trusted: as for `read_session`. Throws as it does.
  SessionFile read(const std::string& path, bool trusted = false) const;
  // Write the states of a file into a free slot, and return what it holds then. file: its content. Throws as `load` does.
  SlotContent restore(const std::string& path, const SessionFile& file, int64_t slot, const std::optional<std::string>& adapter);
  // True if only the whole text of a file serves another one: recurrent states cannot be cut to a prefix.
  bool serves_whole() const { return target_moves_on_ || drafter_moves_on_; }
  // Return whether the target's states are those that a text leaves, so that nothing need be read again.
  bool is_at_end(const SlotContent& content) const {
    return !target_moves_on_ || content.target_position == static_cast<int64_t>(content.tokens.size());
  }
  // Restore the first slot for the next generation of one prompt. Return the tokens that it holds. adapter: key of that
  // generation's, "" for the base; none if it is not known yet. is_replaced: whether that generation writes the file. Throws
  // Error(kUsage), with nothing changed, for a file that is damaged, of another bundle or of another adapter, or with notes that
  // would be lost.
  TokenIds load(const std::string& path, const std::optional<std::string>& adapter = std::nullopt, bool is_replaced = false);

 private:
  SlotContent read_again(const SlotContent& content);
  Shape part_of(const SlotStates::State& state, int64_t tokens, int64_t drafter_length) const;
  void check_key(const SessionFile& file, const std::string& path) const;
  TokenIds tokens_of(const SessionFile& file, const std::string& path) const;
  int64_t drafter_length_of(const SessionFile& file, int64_t tokens, const std::string& path) const;
  int64_t written_of(const SessionFile& file, int64_t tokens, const std::string& path) const;
  std::string_view checked(const SessionFile& file, const SlotStates::State& state, const Shape& part, const std::string& path) const;

  DecodeLoop& loop_;
  const Manifest& manifest_;
  const SessionKey key_;
  const bool target_moves_on_, drafter_moves_on_;  // they have recurrent states
  int64_t ends_ = 0;  // entries of the state where the target's tokens end in the drafter's own; 0 without it
};

}  // namespace spc
