// What a server has to know of the machine's network before it listens: whether it may, and how others reach it.
//
// System part of common. Thread-safe; both functions may wait for the resolver of names.

#ifndef COMMON_LISTENING_H_
#define COMMON_LISTENING_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/address.h"

namespace lagrange {

// Whether the address can be listened on now, on every interface that it names: gRPC doesn't say why it couldn't, and
// is content when a name of two addresses (localhost) lends it one. FailedPrecondition (another process listens there),
// NotFound (the name has no address), InvalidArgument (not an address of this machine), PermissionDenied. Each names
// the address and the system's reason.
absl::Status CheckCanListen(const Address& address);

// "0.0.0.0" and "::": every interface.
bool IsWildcard(const Address& address);

// This machine's own address on the way to a peer, which is how the peer's neighbours reach it. Nothing is sent.
// NotFound (the name isn't resolved) or Unavailable (no way there).
absl::StatusOr<std::string> LocalHostTowards(const Address& peer);

}  // namespace lagrange

#endif  // COMMON_LISTENING_H_
