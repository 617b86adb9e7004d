#include "tests/benchmarks/transport_raw.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "common/check.h"

namespace lagrange {
namespace {

enum class Operation : int64_t { kPull = 1, kPush = 2 };

struct RawRequest {
  Operation operation = Operation::kPull;
  int64_t bytes = 0;
};

// False at the peer's end.
bool ReceiveAll(int socket, void* memory, int64_t bytes) {
  char* next = static_cast<char*>(memory);
  while (bytes > 0) {
    const ssize_t received = recv(socket, next, static_cast<size_t>(bytes), MSG_WAITALL);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    next += received;
    bytes -= received;
  }
  return true;
}

void SendAll(int socket, const void* memory, int64_t bytes, int flags = 0) {
  const char* next = static_cast<const char*>(memory);
  while (bytes > 0) {
    const ssize_t sent = send(socket, next, static_cast<size_t>(bytes), MSG_NOSIGNAL | flags);
    if (sent < 0 && errno == EINTR) continue;
    CHECK(sent > 0);
    next += sent;
    bytes -= sent;
  }
}

void SetNoDelay(int socket) {
  const int on = 1;
  CHECK(setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
}

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

int ListenOnLoopback(int* port) {
  const int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(listening >= 0);
  sockaddr_in address = Loopback(0);
  CHECK(bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  CHECK(listen(listening, 1) == 0);
  socklen_t length = sizeof(address);
  CHECK(getsockname(listening, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  *port = ntohs(address.sin_port);
  return listening;
}

void ServeRawConnection(int listening_socket, int64_t max_bytes) {
  const int connection = accept(listening_socket, nullptr, nullptr);
  CHECK(connection >= 0);
  SetNoDelay(connection);
  std::vector<char> memory(static_cast<size_t>(max_bytes), 1);
  RawRequest request;
  while (ReceiveAll(connection, &request, sizeof(request))) {
    const int64_t bytes = std::min(request.bytes, max_bytes);
    if (request.operation == Operation::kPull) {
      SendAll(connection, memory.data(), bytes);
    } else {
      if (!ReceiveAll(connection, memory.data(), bytes)) break;
      SendAll(connection, &request, sizeof(request));
    }
  }
  close(connection);
}

RawClient::RawClient(int port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  CHECK(socket_ >= 0);
  const sockaddr_in address = Loopback(port);
  CHECK(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  SetNoDelay(socket_);
}

RawClient::~RawClient() { close(socket_); }

void RawClient::Pull(int64_t count, int depth, char* memory, int64_t bytes) {
  const RawRequest request{Operation::kPull, bytes};
  for (int64_t sent = 0, received = 0; received < count; ++received) {
    for (; sent < count && sent < received + depth; ++sent) SendAll(socket_, &request, sizeof(request));
    CHECK(ReceiveAll(socket_, memory, bytes));
  }
}

void RawClient::Push(int64_t count, int depth, const char* memory, int64_t bytes) {
  const RawRequest request{Operation::kPush, bytes};
  RawRequest answer;
  for (int64_t sent = 0, received = 0; received < count; ++received) {
    for (; sent < count && sent < received + depth; ++sent) {
      SendAll(socket_, &request, sizeof(request), MSG_MORE);
      SendAll(socket_, memory, bytes);
    }
    CHECK(ReceiveAll(socket_, &answer, sizeof(answer)));
  }
}

std::string RawClient::CongestionControl() const {
  char name[16] = {};
  socklen_t length = sizeof(name) - 1;
  CHECK(getsockopt(socket_, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0);
  return name;
}

}  // namespace lagrange
