#include "common/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace lagrange {

uint32_t Crc32c(absl::Span<const char> data, uint32_t running) {
  // The library counts bytes in an int, takes a pointer to what it only reads, and leaves the inversions to the caller.
  constexpr size_t kMostAtOnceBytes = size_t{1} << 30;
  uint32_t crc = ~running;
  while (!data.empty()) {
    const size_t count = std::min(data.size(), kMostAtOnceBytes);
    crc = crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<char*>(data.data())), static_cast<int>(count), crc);
    data.remove_prefix(count);
  }
  return ~crc;
}

}  // namespace lagrange
