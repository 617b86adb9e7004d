// CRC-32C (Castagnoli), as iSCSI and checkpoint files use it.

#ifndef COMMON_CRC32C_H_
#define COMMON_CRC32C_H_

#include <cstdint>

#include "absl/types/span.h"

namespace lagrange {

// Of data, or, with the result for what stood before it, of both together. Thread-safe; never fails.
uint32_t Crc32c(absl::Span<const char> data, uint32_t running = 0);

}  // namespace lagrange

#endif  // COMMON_CRC32C_H_
