// What this build calls itself, and which protocol it speaks.

#ifndef COMMON_VERSION_H_
#define COMMON_VERSION_H_

#include <cstdint>

namespace lagrange {

// Processes of unequal protocol versions refuse one another. Raise it when a message changes its meaning.
inline constexpr uint32_t kProtocolVersion = 1;

// For people: shown by --version, written into checkpoints.
inline constexpr char kBuildVersion[] = "0.1.0";

// Layout of checkpoint directories (proto/checkpoint.proto).
inline constexpr int32_t kCheckpointFormatVersion = 1;

}  // namespace lagrange

#endif  // COMMON_VERSION_H_
