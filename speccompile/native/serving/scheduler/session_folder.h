// Folder of sessions: the texts of a service, kept in files, so that their prefixes serve it after a restart
// (serving/scheduler/session_folder.py).
//
// Several processes, of both runtimes, may use one folder: a file is whole or not there, the folder is looked through for each
// prompt, and whoever writes removes what exceeds the limit. No token depends on a file, so whatever is wrong with one costs a
// line in the log.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "../../runtime/saved_sessions.h"

namespace spc {

// Sessions of one bundle in a folder. Only the thread that owns the bundle calls it; reading and writing are left to threads of
// their own.
class KeptSessions {
 public:
  // Make the folder, for its owner alone, if it is not there. limit_gb: size of all files together; those that were used least
  // recently are removed. Throws Error(kUsage) for a folder that cannot be made or written to.
  KeptSessions(const std::string& folder, double limit_gb, SavedSessions& sessions, const DecodeLoop& loop);
  // Waits until all texts are written.
  ~KeptSessions();
  KeptSessions(const KeptSessions&) = delete;
  KeptSessions& operator=(const KeptSessions&) = delete;

  // Texts that share: those with one salt and one adapter.
  struct Sharing {
    std::string salt, adapter;
  };
  // Restore the file with the longest prefix of a prompt into a free slot, if that pays. Return what the slot holds then;
  // nullopt, with the slot unchanged, if it was not restored. held: tokens of the prompt that need no file.
  std::optional<SlotContent> restore(const TokenIds& prompt, const Sharing& sharing, int64_t slot, int64_t held);
  // Begin to read the file that `restore` would, on a thread of its own: other slots decode meanwhile.
  void read_ahead(const TokenIds& prompt, const Sharing& sharing, int64_t held);
  // Return whether no file is being read. waits: until then.
  bool has_read(bool waits) const;
  // Keep the text of a slot, unless most of it is in a file, or recurrent states are beyond it.
  void keep(const Sharing& sharing, const std::optional<SlotContent>& left);

 private:
  // File that may be used. salt: hash of the salt that it is for, nullopt for all. own: whether it has the states of this
  // bundle's drafter.
  struct Known {
    TokenIds tokens;
    std::optional<std::string> salt;
    bool own;
    std::string adapter;
    int64_t written;
  };
  // Name, inode and size: a file that is still being copied into the folder is looked at again when it is whole.
  using Key = std::tuple<std::string, uint64_t, int64_t>;
  struct Waiting {
    std::string name;
    SessionFile file;
    std::vector<std::string> replaced;
    size_t bytes;
  };

  std::string path_of(const Key& key) const;
  void look();
  void pass_over(const Key& key, const std::string& message);
  const Key* longest(const TokenIds& prompt, const std::string& salted, const std::string& adapter, int64_t held) const;
  std::string name_of_text(const TokenIds& tokens, const std::string& salted, const std::string& adapter) const;
  void write_all();
  void write(const Waiting& waiting);
  void trim() const;

  const std::string folder_;
  const size_t limit_;
  SavedSessions& sessions_;
  const DecodeLoop& loop_;
  std::map<Key, std::optional<Known>> known_;  // nullopt for a file that is passed over
  std::optional<std::pair<Key, std::future<SessionFile>>> ahead_;
  std::mutex mutex_;                           // of what follows
  std::condition_variable changed_;
  std::map<std::string, Known> pending_;
  std::deque<Waiting> queue_;
  bool closing_ = false;
  std::thread writer_;
};

}  // namespace spc
