// A worker process around its step loop: the threads, the memory, the calls.
//
// For worker_main and tests. Run and the destructor belong to one thread; RequestStop is thread-safe. Three kinds of
// threads: Run's decides (worker/core/step_loop.h), one computes, the clients' own ones only post events. Owns the
// clients, the parameters (two buffers) and the gradients (one), which are allocated once, when the map is known.
//
// No lock is held while another object is called; the locks of EventQueue, SerialThread and the clients are leaves.

#ifndef WORKER_WORKER_H_
#define WORKER_WORKER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/serial_thread.h"
#include "proto/control_plane.pb.h"
#include "worker/batch_computer.h"
#include "worker/chief_client.h"
#include "worker/core/step_loop.h"
#include "worker/event_queue.h"
#include "worker/parameter_memory.h"
#include "worker/ps_client.h"
#include "worker/rate_meter.h"

namespace lagrange {

struct WorkerOptions {
  // prefetch and acquire_ahead are the job's to say.
  StepLoopOptions loop;
  // What each registration says of this process: task index, expected counts, process id, host.
  RegisterRequest identity;
  // See kernels/matmul.h.
  int compute_threads = 1;
  // Pause after each computation, to make a slow worker: a debugging aid.
  absl::Duration step_delay;
  WorkerParts parts;
};

class Worker {
 public:
  using PsClientFactory =
      std::function<std::unique_ptr<PsClient>(PsClient::ReplyCallback, PsClient::ReconnectedCallback)>;

  // clock outlives the worker.
  Worker(const WorkerOptions& options, const Clock* clock, std::unique_ptr<ChiefClient> chief,
         const PsClientFactory& make_ps_client);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();

  // Works until the job is complete, has failed, or RequestStop; once. OK: the process may exit with 0. Unavailable:
  // the chief stayed away; Aborted: the job failed; FailedPrecondition: registration refused; errors of data and model
  // as BatchComputer::Create gives them; Internal, ...: this worker broke.
  absl::Status Run();

  // Finish the step, hand back the lease, and let Run return. Any thread.
  void RequestStop();

 private:
  struct PushedRequest {
    int32_t ps_index;
    uint64_t request_id;
  };

  // ---- worker.cc: effects
  template <typename Call>
  void Deliver(Call call);
  void Do(const SendPull& effect);
  void Do(const SendPush& effect);
  void Do(const StartCompute& effect);
  void Do(const StartEvaluation& effect);
  void Do(const UseShardMap& effect);
  void Do(const WorkerExit& effect) { exit_status_ = effect.status; }
  absl::Status TakeMap(const ShardMap& map);
  void OnPsReply(int32_t ps_index, uint64_t request_id, FrameKind kind, const ReplyHeader& reply);
  void ForgetPulls(int buffer);
  void ForgetPushes();
  void FailNow(const absl::Status& status, bool fatal_for_job);

  // ---- worker_chief.cc: calls to the chief
  void Do(const CallRegister& effect);
  void Do(const CallHeartbeat& effect);
  void Do(const CallAcquireWork& effect);
  void Do(const CallReportBatches& effect);
  void Do(const CallReportEvaluation& effect);
  void Do(const CallLeave& effect);
  template <typename Response>
  ChiefClient::Callback<Response> Answer(uint64_t call_id, void (StepLoop::*deliver)(uint64_t, const Response&,
                                                                                     absl::Time, WorkerEffects*));
  void Register();
  void OnRegistered(const absl::StatusOr<RegisterResponse>& response);
  void OpenJob(const JobSpec& job);
  void OnJobOpened(absl::StatusOr<std::unique_ptr<BatchComputer>> computer);
  void OnHeartbeatAnswer(const HeartbeatResponse& response);
  void OnChiefCallFailed(uint64_t call_id, const absl::Status& status);

  const WorkerOptions options_;
  const Clock* const clock_;
  const std::unique_ptr<StepLoop> loop_;
  EventQueue events_;
  std::optional<absl::Status> exit_status_;
  // FailNow was called: only its farewell counts.
  bool failing_ = false;

  std::optional<uint64_t> registration_;
  std::unique_ptr<BatchComputer> computer_;
  int32_t task_index_ = 0;
  RateMeter examples_;
  absl::Time next_chief_message_ = absl::InfinitePast();
  absl::Time next_waiting_message_ = absl::InfinitePast();

  // Valid once a map has come.
  std::vector<ParameterMemory> parameters_;
  std::optional<ParameterMemory> gradients_;
  std::vector<uint64_t> versions_[2];
  // By ps: requests whose answers may still write into a buffer, or that still read the gradients.
  std::map<int32_t, uint64_t> open_pulls_[2];
  std::vector<PushedRequest> open_pushes_;

  // Last, so that their threads end before what they use goes.
  std::unique_ptr<SerialThread> compute_;
  std::unique_ptr<ChiefClient> chief_;
  std::unique_ptr<PsClient> ps_client_;
};

// The status that a process exits with: 0 for OK, 2 for bad input (job, data, flags, a refused registration), else 1.
int ExitStatusFor(const absl::Status& status);

}  // namespace lagrange

#endif  // WORKER_WORKER_H_
