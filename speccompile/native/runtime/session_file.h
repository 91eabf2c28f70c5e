// File of a session: the tokens that a batch slot has read, and the states that they left (runtime/session_file.py describes
// it).
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../contract.h"

namespace spc {

// Content of a file. metadata: texts by name, without format and hash.
struct SessionFile {
  // dtype: as safetensors names it. values: in the memory that the file keeps.
  struct Tensor {
    std::string name, dtype;
    Shape shape;
    std::string_view values;
  };

  // Add a tensor, whose values are then kept here.
  void add(const std::string& name, const std::string& dtype, const Shape& shape, std::string values);
  // Return a tensor; null for a name that the file does not have.
  const Tensor* find(const std::string& name) const;
  // Return a text of the metadata, null without it.
  const std::string* text(const std::string& name) const;

  std::map<std::string, std::string> metadata;
  std::vector<Tensor> tensors;
  std::vector<std::shared_ptr<const void>> memory;
};

// Write a file, for its owner alone. Readers find the old file or the new one, complete; of several writers the last one wins.
// Throws Error(kUsage), with the old file unchanged, if it cannot be written.
void write_session(const std::string& path, const SessionFile& file);
// Return the content of a file. most: largest number of bytes of its tensors together. trusted: map the file, and do not compare
// it with its hash, since it belongs to a bundle, which has hashes of its own. Throws Error(kUsage) for a file that cannot be
// read, is none of a session, of another version, or damaged.
SessionFile read_session(const std::string& path, size_t most, bool trusted = false);
// Return the metadata and the first tensor of a file, neither of them compared with its hash: enough to decide whether to read the
// file. Nothing is mapped, for others may write the file meanwhile. most: largest number of bytes of that tensor. Throws as
// `read_session` does.
SessionFile read_start(const std::string& path, size_t most);

}  // namespace spc
