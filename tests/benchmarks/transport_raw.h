// The yardstick of the transport benchmark: the same exchanges over a bare TCP socket.
//
// A request is 16 bytes; a pull's answer is the bytes, a push's the bytes taken and 16 bytes back. One connection, one
// thread at each end, blocking calls, TCP_NODELAY. Caller synchronizes. A failed system call ends the process.

#ifndef TESTS_BENCHMARKS_TRANSPORT_RAW_H_
#define TESTS_BENCHMARKS_TRANSPORT_RAW_H_

#include <cstdint>
#include <string>

namespace lagrange {

// A listening socket on loopback; *port is what the kernel picked.
int ListenOnLoopback(int* port);

// Serves one connection until the peer closes it.
void ServeRawConnection(int listening_socket, int64_t max_bytes);

class RawClient {
 public:
  explicit RawClient(int port);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // `count` exchanges of `bytes` from or to memory, `depth` of them under way.
  void Pull(int64_t count, int depth, char* memory, int64_t bytes);
  void Push(int64_t count, int depth, const char* memory, int64_t bytes);
  // The kernel's congestion control of this connection.
  std::string CongestionControl() const;

 private:
  int socket_;
};

}  // namespace lagrange

#endif  // TESTS_BENCHMARKS_TRANSPORT_RAW_H_
