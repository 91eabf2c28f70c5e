// The functions of OpenSSL's libcrypto for signatures; it is opened when a signature is checked for the first time.
#pragma once

#include <string>
#include <string_view>

namespace spc {

// The 64 bytes of BLAKE2b-512. Throws Error(kEngine) without OpenSSL.
std::string blake2b(std::string_view bytes);
// Return whether an Ed25519 signature (64 bytes) of a message is by a public key (32 bytes). Throws as `blake2b`.
bool is_signed(std::string_view message, std::string_view signature, std::string_view key);

}  // namespace spc
