// Signatures of bundles, in the format of minisign (bundle/signature.py): who built one, which hashes cannot say.
#pragma once

#include <string>
#include <string_view>

namespace spc {

// A public key. number: 8 bytes that name it; key: 32 bytes of Ed25519.
struct PublicKey {
  std::string number, key;

  // The number as minisign prints it.
  std::string name() const;
  // The key in a file of minisign. Throws Error(kUsage) where it has none.
  static PublicKey read(const std::string& path);
};

// Return the comment that was signed. content: bytes of hashes.json in `folder`. Throws Error(kBundle) when the bundle has no
// signature or not that of this key, and Error(kEngine) without OpenSSL.
std::string check_signature(const std::string& folder, std::string_view content, const PublicKey& key);

}  // namespace spc
