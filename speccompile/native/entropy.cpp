#include "entropy.h"

#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace spc {

uint32_t random_bits() {
  uint32_t bits;
  if (getentropy(&bits, sizeof bits) != 0)
    throw std::system_error(errno, std::generic_category(), "getentropy");
  return bits;
}

}  // namespace spc
