// Push and pull between two processes beside raw TCP loopback and memcpy, all in one run: bazel run -c opt
// //tests/benchmarks:transport [-- ROUNDS [CELL_MS [KIB]]] (KIB: this size alone)
//
// Every round measures every cell once, so that the machine's drift meets all alike; figures are medians of the rounds,
// ratios those of neighbouring medians. A push's gradient is received, checked whole and handed to an engine that does
// nothing with it.

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "common/memory.h"
#include "gnu/libc-version.h"
#include "proto/channel_arguments.h"
#include "ps/array_engine_testing.h"
#include "ps/data_plane_server.h"
#include "tests/benchmarks/transport_raw.h"
#include "worker/ps_client.h"

namespace lagrange {
namespace {

constexpr int64_t kMaxShardBytes = int64_t{4} << 20;
constexpr double kGiga = 1e9;

struct Size {
  int64_t bytes;
  const char* name;
  // How many are under way in the second row.
  int depth;
};
constexpr std::array<Size, 5> kSizes = {{{int64_t{1} << 10, "1 KiB", 16},
                                         {int64_t{64} << 10, "64 KiB", 16},
                                         {int64_t{1} << 20, "1 MiB", 4},
                                         {int64_t{4} << 20, "4 MiB", 2},
                                         {int64_t{16} << 20, "16 MiB", 2}}};

// Elements of the shards that a partition would make of so many bytes.
std::vector<int64_t> ShardCounts(int64_t bytes) {
  std::vector<int64_t> counts;
  for (int64_t left = bytes; left > 0; left -= kMaxShardBytes) {
    counts.push_back(std::min(left, kMaxShardBytes) / static_cast<int64_t>(sizeof(float)));
  }
  return counts;
}

struct Ports {
  int raw = 0;
  std::array<int, kSizes.size()> ps = {};
};

// ---- the server's process ------------------------------------------------------------------------------------------

struct BenchmarkPs {
  explicit BenchmarkPs(int64_t bytes)
      : engine(ShardCounts(bytes), ArrayEngine::OnPart::kIgnore), data_plane(&engine, DataPlaneServerOptions()) {
    grpc::ServerBuilder builder;
    ApplyServerArguments(&builder);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(data_plane.service());
    server = builder.BuildAndStart();
    CHECK(server != nullptr);
  }
  ~BenchmarkPs() {
    data_plane.CloseStreams();
    server->Shutdown();
    server->Wait();
  }

  ArrayEngine engine;
  DataPlaneServer data_plane;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

// Serves until the raw connection ends.
void Serve(int ports_pipe) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Ports ports;
  const int listening = ListenOnLoopback(&ports.raw);
  std::vector<std::unique_ptr<BenchmarkPs>> ps;
  for (size_t i = 0; i < kSizes.size(); ++i) {
    ps.push_back(std::make_unique<BenchmarkPs>(kSizes[i].bytes));
    ports.ps[i] = ps.back()->port;
  }
  CHECK(write(ports_pipe, &ports, sizeof(ports)) == static_cast<ssize_t>(sizeof(ports)));
  ServeRawConnection(listening, kSizes.back().bytes);
}

// ---- the client's process ------------------------------------------------------------------------------------------

ShardMap MapOf(int64_t bytes, int port) {
  ShardMap map;
  map.set_version(1);
  int64_t begin = 0;
  for (int64_t count : ShardCounts(bytes)) {
    ShardPlacement* placement = map.add_shards();
    placement->set_shard(static_cast<uint32_t>(map.shards_size() - 1));
    placement->set_row_begin(begin);
    placement->set_element_begin(begin);
    begin += count;
    placement->set_row_end(begin);
    placement->set_element_end(begin);
  }
  map.add_variables()->set_name("w");
  map.mutable_variables(0)->add_shape(begin);
  map.add_ps()->set_address("127.0.0.1:" + std::to_string(port));
  return map;
}

// Runs exchanges with one ps, `depth` of them under way, each with memory of its own.
class Driver {
 public:
  Driver(int64_t bytes, int port, int max_depth)
      : versions_(ShardCounts(bytes).size(), 0),
        memory_(static_cast<size_t>(max_depth), std::vector<float>(static_cast<size_t>(bytes) / sizeof(float), 1.0f)) {
    client_ = NewPsClient(
        PsClientOptions(),
        [this](int32_t, uint64_t request_id, FrameKind, const ReplyHeader& reply) { OnReply(request_id, reply); },
        [](int32_t) {});
    CHECK(client_->UseShardMap(MapOf(bytes, port)).ok());
  }

  void Run(FrameKind kind, int64_t count, int depth) {
    {
      absl::MutexLock lock(&mutex_);
      kind_ = kind;
      to_start_ = count;
      to_finish_ = count;
      depth_ = static_cast<uint64_t>(depth);
    }
    for (int slot = 0; slot < depth; ++slot) StartNext(static_cast<uint64_t>(slot));
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](int64_t* left) { return *left == 0; }, &to_finish_));
  }

 private:
  void OnReply(uint64_t request_id, const ReplyHeader& reply) {
    CHECK(reply.code() == OK);
    StartNext(request_id % kSlots);
    absl::MutexLock lock(&mutex_);
    --to_finish_;
  }

  void StartNext(uint64_t slot) {
    uint64_t request_id;
    {
      absl::MutexLock lock(&mutex_);
      if (to_start_ == 0) return;
      --to_start_;
      request_id = ++requests_ * kSlots + slot;
    }
    const ParameterLayout layout{{memory_[slot].data()}, &versions_};
    if (kind_ == PULL) {
      client_->Pull(0, request_id, RequestHeader(), layout);
    } else {
      client_->Push(0, request_id, RequestHeader(), layout, {});
    }
  }

  static constexpr uint64_t kSlots = 64;

  std::vector<uint64_t> versions_;
  std::vector<std::vector<float>> memory_;
  absl::Mutex mutex_;
  FrameKind kind_ = PULL;
  uint64_t depth_ = 0;
  int64_t to_start_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t to_finish_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t requests_ ABSL_GUARDED_BY(mutex_) = 0;
  // First to go: its callbacks use the rest.
  std::unique_ptr<PsClient> client_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double CpuSeconds(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / kGiga;
}

// One kind of exchange at one size and depth: a row's cell.
struct Cell {
  std::function<void(int64_t count)> run;
  int64_t bytes = 0;
  int64_t count = 1;
  std::vector<double> seconds;
  // Of both processes, for each exchange.
  std::vector<double> cpu_seconds;

  double PerSecond() const { return 1 / Median(seconds); }
  double GigabytesPerSecond() const { return static_cast<double>(bytes) / Median(seconds) / kGiga; }
  double CpuPerGigabyte() const { return Median(cpu_seconds) / static_cast<double>(bytes) * kGiga; }
};

class Benchmark {
 public:
  // only_kib: 0 for all sizes.
  Benchmark(const Ports& ports, pid_t server, absl::Duration cell_time, int64_t only_kib)
      : raw_(ports.raw),
        memory_(static_cast<size_t>(kSizes.back().bytes), 1),
        copy_(memory_.size() + kCopyOffset, 1),
        cell_time_(cell_time) {
    CHECK(clock_getcpuclockid(server, &server_clock_) == 0);
    for (size_t i = 0; i < kSizes.size(); ++i) {
      const Size& size = kSizes[i];
      if (only_kib != 0 && size.bytes != only_kib << 10) continue;
      sizes_.push_back(size);
      drivers_.push_back(std::make_unique<Driver>(size.bytes, ports.ps[i], size.depth));
      Driver* const driver = drivers_.back().get();
      AddCell(size.bytes, [this, size](int64_t count) { Copy(count, size.bytes); });
      for (int depth : {1, size.depth}) {
        AddCell(size.bytes, [=](int64_t count) { raw_.Pull(count, depth, memory_.data(), size.bytes); });
        AddCell(size.bytes, [=](int64_t count) { raw_.Push(count, depth, memory_.data(), size.bytes); });
        AddCell(size.bytes, [=](int64_t count) { driver->Run(PULL, count, depth); });
        AddCell(size.bytes, [=](int64_t count) { driver->Run(PUSH, count, depth); });
      }
    }
  }

  void Run(int rounds) {
    for (Cell& cell : cells_) Calibrate(&cell);
    for (int round = 0; round < rounds; ++round) {
      for (Cell& cell : cells_) Measure(&cell);
    }
  }

  void Print() const {
    std::printf("congestion control %s; both processes glibc %s malloc, large blocks kept (common/memory.h)\n\n",
                raw_.CongestionControl().c_str(), gnu_get_libc_version());
    std::printf("%-7s %5s | %6s | %8s %8s | %8s %8s | %9s %9s | %5s %5s | %5s %5s | %5s %5s\n", "", "", "memcpy",
                "tcp pull", "tcp push", "pull", "push", "pull", "push", "pull/", "push/", "pull", "push", "tcp", "tcp");
    std::printf("%-7s %5s | %6s | %8s %8s | %8s %8s | %9s %9s | %5s %5s | %5s %5s | %5s %5s\n", "size", "depth", "GB/s",
                "GB/s", "GB/s", "GB/s", "GB/s", "1/s", "1/s", "tcp", "tcp", "s/GB", "s/GB", "pull", "push");
    for (size_t i = 0; i < sizes_.size(); ++i) {
      const Cell* const cells = &cells_[i * kCellsPerSize];
      PrintRow(sizes_[i], 1, cells[0], cells + 1);
      PrintRow(sizes_[i], sizes_[i].depth, cells[0], cells + 5);
    }
    std::printf("\ns/GB: CPU seconds of both processes; raw tcp's beside it.\n");
  }

 private:
  static constexpr size_t kCellsPerSize = 9;
  // Two blocks of malloc's otherwise lie as memcpy likes it least (see CopyBytes of proto/frame.cc).
  static constexpr size_t kCopyOffset = 128;

  static void PrintRow(const Size& size, int depth, const Cell& copy, const Cell* four) {
    const Cell &tcp_pull = four[0], &tcp_push = four[1], &pull = four[2], &push = four[3];
    std::printf(
        "%-7s %5d | %6.1f | %8.2f %8.2f | %8.2f %8.2f | %9.0f %9.0f | %5.2f %5.2f | %5.2f %5.2f | %5.2f %5.2f\n",
        size.name, depth, copy.GigabytesPerSecond(), tcp_pull.GigabytesPerSecond(), tcp_push.GigabytesPerSecond(),
        pull.GigabytesPerSecond(), push.GigabytesPerSecond(), pull.PerSecond(), push.PerSecond(),
        pull.GigabytesPerSecond() / tcp_pull.GigabytesPerSecond(),
        push.GigabytesPerSecond() / tcp_push.GigabytesPerSecond(), pull.CpuPerGigabyte(), push.CpuPerGigabyte(),
        tcp_pull.CpuPerGigabyte(), tcp_push.CpuPerGigabyte());
  }

  void AddCell(int64_t bytes, std::function<void(int64_t)> run) {
    Cell cell;
    cell.run = std::move(run);
    cell.bytes = bytes;
    cells_.push_back(std::move(cell));
  }

  void Copy(int64_t count, int64_t bytes) {
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(copy_.data() + kCopyOffset, memory_.data(), static_cast<size_t>(bytes));
      // The compiler may not leave out a copy whose result another could see.
      asm volatile("" : : "r"(copy_.data()) : "memory");
    }
  }

  // Warms up, and finds how many exchanges fill the cell's time.
  void Calibrate(Cell* cell) {
    for (int64_t count = 1;; count *= 2) {
      const absl::Time start = absl::Now();
      cell->run(count);
      const double share = (absl::Now() - start) / cell_time_;
      if (share < 0.25) continue;
      cell->count = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(count) / share));
      return;
    }
  }

  void Measure(Cell* cell) {
    const double cpu = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID) + CpuSeconds(server_clock_);
    const absl::Time start = absl::Now();
    cell->run(cell->count);
    const double count = static_cast<double>(cell->count);
    cell->seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start) / count);
    cell->cpu_seconds.push_back((CpuSeconds(CLOCK_PROCESS_CPUTIME_ID) + CpuSeconds(server_clock_) - cpu) / count);
  }

  RawClient raw_;
  std::vector<char> memory_;
  std::vector<char> copy_;
  const absl::Duration cell_time_;
  clockid_t server_clock_ = 0;
  std::vector<Size> sizes_;
  std::vector<std::unique_ptr<Driver>> drivers_;
  std::vector<Cell> cells_;
};

int Main(int argc, char** argv) {
  int rounds = 7;
  int cell_ms = 100;
  int only_kib = 0;
  if ((argc > 1 && !absl::SimpleAtoi(argv[1], &rounds)) || (argc > 2 && !absl::SimpleAtoi(argv[2], &cell_ms)) ||
      (argc > 3 && !absl::SimpleAtoi(argv[3], &only_kib)) || rounds < 1 || cell_ms < 1) {
    std::fprintf(stderr, "usage: transport [ROUNDS [CELL_MS [KIB]]], rounds and milliseconds at least 1\n");
    return 2;
  }
  CHECK(SetMallocForLargeMessages());
  int ports_pipe[2];
  CHECK(pipe(ports_pipe) == 0);
  // Before gRPC: its threads don't survive a fork.
  const pid_t server = fork();
  CHECK(server >= 0);
  if (server == 0) {
    Serve(ports_pipe[1]);
    return 0;
  }
  close(ports_pipe[1]);
  Ports ports;
  CHECK(read(ports_pipe[0], &ports, sizeof(ports)) == static_cast<ssize_t>(sizeof(ports)));
  {
    Benchmark benchmark(ports, server, absl::Milliseconds(cell_ms), only_kib);
    benchmark.Run(rounds);
    benchmark.Print();
  }
  int status = 0;
  CHECK(waitpid(server, &status, 0) == server);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace
}  // namespace lagrange

int main(int argc, char** argv) { return lagrange::Main(argc, argv); }
