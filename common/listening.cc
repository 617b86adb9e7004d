#include "common/listening.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace lagrange {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> Resolve(const Address& address, int socket_type, int flags) {
  addrinfo hints{};
  hints.ai_socktype = socket_type;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const std::string port = absl::StrCat(address.port);
  const int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return absl::NotFoundError(absl::StrCat(FormatAddress(address), ": name not resolved: ", gai_strerror(error)));
  }
  return AddressList(found, &freeaddrinfo);
}

absl::Status CannotListen(const Address& address, int error) {
  const std::string message = absl::StrCat("cannot listen on ", FormatAddress(address), ": ", std::strerror(error));
  switch (error) {
    case EADDRINUSE:
      return absl::FailedPreconditionError(message);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(message);
    default:
      return absl::InvalidArgumentError(message);
  }
}

// 0, or the errno of what a server would do to one address.
int TryToListen(const addrinfo& where) {
  const int fd = socket(where.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const absl::Cleanup close_it = [fd] { close(fd); };
  // As gRPC does: an address whose last connections are still closing is free.
  const int on = 1;
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) return errno;
  if (bind(fd, where.ai_addr, where.ai_addrlen) != 0) return errno;
  return listen(fd, 1) == 0 ? 0 : errno;
}

}  // namespace

bool IsWildcard(const Address& address) { return address.host == "0.0.0.0" || address.host == "::"; }

absl::Status CheckCanListen(const Address& address) {
  ASSIGN_OR_RETURN(const AddressList addresses, Resolve(address, SOCK_STREAM, AI_PASSIVE));
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    const int error = TryToListen(*each);
    // A machine without IPv6 can still listen on all that it has.
    if (error == EAFNOSUPPORT && (IsWildcard(address) || each->ai_next != nullptr || each != addresses.get())) continue;
    if (error != 0) return CannotListen(address, error);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalHostTowards(const Address& peer) {
  ASSIGN_OR_RETURN(const AddressList addresses, Resolve(peer, SOCK_DGRAM, 0));
  int error = 0;
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    const int fd = socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
      error = errno;
      continue;
    }
    const absl::Cleanup close_it = [fd] { close(fd); };
    sockaddr_storage local{};
    socklen_t length = sizeof(local);
    char host[NI_MAXHOST];
    // A datagram socket is connected by choosing a route, no packet leaves.
    if (connect(fd, each->ai_addr, each->ai_addrlen) != 0 ||
        getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) != 0) {
      error = errno;
      continue;
    }
    if (getnameinfo(reinterpret_cast<sockaddr*>(&local), length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) == 0) {
      return std::string(host);
    }
  }
  return absl::UnavailableError(absl::StrCat(FormatAddress(peer), ": no way there: ", std::strerror(error)));
}

}  // namespace lagrange
