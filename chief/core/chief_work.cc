// Which worker computes what: leases, joins and parks, the common start under bsp, evaluation tasks, reports.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "chief/core/chief_machine.h"

namespace lagrange {
namespace {

// One that is computed and one asked for ahead.
constexpr int64_t kMaxLeasesHeld = 2;
// A worker without batches to compute reports the last ones within a fraction of a second; a lease whose batches are
// still todo after this was granted in an answer that never arrived, or dropped.
constexpr absl::Duration kUnreportedGrace = absl::Seconds(2);
// Each is a whole pass of a worker; a fork that is gone stays gone.
constexpr int64_t kMaxFailedEvaluations = 100;

}  // namespace

AcquireWorkResponse ChiefMachine::AcquireWork(const AcquireWorkRequest& request, absl::Time now,
                                              ChiefEffects* effects) {
  const Turn turn{now, effects};
  AcquireWorkResponse response;
  HandleAcquire(request, turn, &response);
  Advance(turn);
  if (response.work_case() == AcquireWorkResponse::WORK_NOT_SET) {
    // Until training begins there is nothing to be in a hurry for.
    const int64_t nanoseconds =
        absl::ToInt64Nanoseconds(phase_ == Phase::kTraining ? options_.retry_after : 10 * options_.retry_after);
    response.mutable_retry_after()->set_seconds(nanoseconds / 1'000'000'000);
    response.mutable_retry_after()->set_nanos(static_cast<int32_t>(nanoseconds % 1'000'000'000));
  }
  response.set_term(Counter("term"));
  response.set_generation(Counter("generation"));
  if (map_.version() > request.map_version()) *response.mutable_shard_map() = map_;
  return response;
}

void ChiefMachine::HandleAcquire(const AcquireWorkRequest& request, Turn turn, AcquireWorkResponse* response) {
  if (ended_) {
    membership_.Heard(request.incarnation(), turn.now);
    response->set_directive(CurrentDirective());
    response->set_message(std::string(end_status_.message()));
    return;
  }
  Member* worker = membership_.Find(request.incarnation());
  if (worker == nullptr || worker->record.role != WORKER || request.generation() != Counter("generation")) {
    response->set_directive(REGISTER_AGAIN);
    response->set_message(worker == nullptr ? "the incarnation is unknown or evicted" : "of another generation");
    return;
  }
  membership_.Heard(request.incarnation(), turn.now);
  if (phase_ != Phase::kTraining || stopped_) return;
  Work& work = work_[request.incarnation()];
  // Late: an answer to it would be thrown away, and a lease with it.
  if (request.sequence() < work.sequence) return;
  if (request.sequence() == work.sequence && work.answer != Answer::kNone) {
    RepeatAnswer(request.incarnation(), work, response);
    return;
  }
  work.sequence = request.sequence();
  work.ahead = request.ahead();
  work.answer = Answer::kNone;
  FindWork(worker, &work, turn, response);
}

bool ChiefMachine::RepeatAnswer(uint64_t incarnation, const Work& work, AcquireWorkResponse* response) const {
  if (work.answer == Answer::kLease) {
    const auto grant = ledger_->GrantOf(incarnation, work.sequence);
    if (grant.has_value()) *response->mutable_lease() = *grant;
    return grant.has_value();
  }
  const auto task = evaluation_.has_value() ? evaluation_->TaskOf(incarnation) : std::nullopt;
  if (task.has_value()) *response->mutable_evaluation() = *task;
  return task.has_value();
}

void ChiefMachine::FindWork(Member* worker, Work* work, Turn turn, AcquireWorkResponse* response) {
  const uint64_t incarnation = worker->record.incarnation;
  const TableState state = tables_->StateOf(incarnation);
  const int64_t held = ledger_->HeldBy(incarnation);
  const bool may_lease = epoch_is_open_ && ledger_->FreeCount() > 0 && held < kMaxLeasesHeld;
  if (!work->ahead && evaluation_.has_value()) {
    if (const auto task = evaluation_->Give(incarnation)) {
      // It has no step in flight; in the tables it would hold up the others for as long as it evaluates.
      if (state != TableState::kOut) ParkWorker(worker, turn);
      work->answer = Answer::kEvaluation;
      work->idle_since = absl::InfiniteFuture();
      *response->mutable_evaluation() = *task;
      return;
    }
  }
  if (may_lease && state == TableState::kJoined && gate_.count(incarnation) == 0) {
    Grant(incarnation, work->tell_start_clock ? tables_->StartClockOf(incarnation) : -1, turn);
    RepeatAnswer(incarnation, *work, response);
    return;
  }
  if (work->ahead) return;
  if (may_lease && state == TableState::kOut && !AtGate()) JoinAll({incarnation}, turn);
  if (may_lease || gate_.count(incarnation) > 0) return;
  if (state != TableState::kOut) ParkWorker(worker, turn);
  TakeBackUnreported(incarnation, work, turn);
}

void ChiefMachine::Grant(uint64_t incarnation, int64_t start_clock, Turn turn) {
  Work& work = work_[incarnation];
  ledger_->Give({incarnation, work.sequence, start_clock}, &turn.effects->records);
  work.answer = Answer::kLease;
  work.tell_start_clock = false;
  work.idle_since = absl::InfiniteFuture();
}

void ChiefMachine::TakeBackUnreported(uint64_t incarnation, Work* work, Turn turn) {
  if (ledger_->HeldBy(incarnation) == 0) {
    work->idle_since = absl::InfiniteFuture();
  } else if (work->idle_since == absl::InfiniteFuture()) {
    work->idle_since = turn.now;
  } else if (turn.now - work->idle_since >= kUnreportedGrace) {
    ledger_->FreeLeasesOf(incarnation, &turn.effects->records);
    work->idle_since = absl::InfiniteFuture();
  }
}

void ChiefMachine::JoinAll(const std::vector<uint64_t>& incarnations, Turn turn) {
  SetMembership command;
  for (const uint64_t incarnation : incarnations) {
    *command.add_changes() = tables_->Join(membership_.Find(incarnation), &turn.effects->records);
    work_[incarnation].tell_start_clock = true;
  }
  TellTables(command, turn);
}

void ChiefMachine::ParkWorker(Member* worker, Turn turn) {
  SetMembership command;
  *command.add_changes() = tables_->Park(worker, &turn.effects->records);
  TellTables(command, turn);
}

void ChiefMachine::TellTables(const SetMembership& command, Turn turn) {
  PsCommand message;
  *message.mutable_set_membership() = command;
  SendToAll(message, turn);
}

void ChiefMachine::OnJoined(int32_t ps_index, const SetMembership& command, const PsCommandResult& result, Turn turn) {
  std::map<uint64_t, int64_t> clocks;
  for (const JoinedClock& joined : result.joined()) clocks[joined.incarnation()] = joined.clock();
  for (const MemberChange& change : command.changes()) {
    if (change.state() != MemberChange::JOINED || !tables_->Awaits(ps_index, change)) continue;
    const auto clock = clocks.find(change.incarnation());
    // Without it the worker would wait for ever.
    if (clock == clocks.end() || clock->second < 0) {
      return Fail(absl::InternalError(absl::StrCat("ps ", ps_index, " answered the join of incarnation ",
                                                   change.incarnation(), " without a clock")),
                  turn);
    }
    tables_->Answered(ps_index, change, clock->second);
  }
}

void ChiefMachine::AdvanceGate(Turn turn) {
  if (!gate_.empty()) {
    int64_t start_clock = 0;
    for (const uint64_t incarnation : gate_) {
      if (tables_->StateOf(incarnation) != TableState::kJoined) return;
      start_clock = std::max(start_clock, tables_->StartClockOf(incarnation));
    }
    const std::set<uint64_t> gate = std::move(gate_);
    gate_.clear();
    for (const uint64_t incarnation : membership_.ByIndex(WORKER)) {
      if (gate.count(incarnation) > 0 && ledger_->FreeCount() > 0) Grant(incarnation, start_clock, turn);
    }
    return;
  }
  if (!epoch_is_open_ || ledger_->FreeCount() == 0 || !AtGate()) return;
  if (evaluation_.has_value() && evaluation_->HasTask()) return;
  std::vector<uint64_t> joining;
  for (const uint64_t incarnation : membership_.ByIndex(WORKER)) {
    const auto work = work_.find(incarnation);
    const bool asks =
        work != work_.end() && work->second.sequence > 0 && work->second.answer == Answer::kNone && !work->second.ahead;
    if (!asks) return;
    if (static_cast<int64_t>(joining.size()) < ledger_->FreeCount()) joining.push_back(incarnation);
  }
  if (joining.empty()) return;
  gate_.insert(joining.begin(), joining.end());
  JoinAll(joining, turn);
}

ReportBatchesResponse ChiefMachine::ReportBatches(const ReportBatchesRequest& request, absl::Time now,
                                                  ChiefEffects* effects) {
  const Turn turn{now, effects};
  ReportBatchesResponse response;
  const Member* worker = membership_.Find(request.incarnation());
  const bool known = worker != nullptr && worker->record.role == WORKER;
  if (known) membership_.Heard(request.incarnation(), now);
  const bool open = phase_ == Phase::kTraining && !(ended_ && !end_status_.ok());
  const bool current = request.generation() == Counter("generation");
  const uint64_t reporter = known ? request.incarnation() : 0;
  for (const BatchDone& done : request.done()) {
    response.add_verdicts(!current ? OLD_GENERATION
                          : open   ? ledger_->Done(reporter, done, Counter("cut"), &effects->records)
                                   : UNKNOWN_BATCH);
  }
  std::string bad;
  for (const BatchSkipped& skipped : request.skipped()) {
    const BatchVerdict verdict = !current ? OLD_GENERATION
                                 : open   ? ledger_->Skipped(reporter, skipped, &effects->records)
                                          : UNKNOWN_BATCH;
    response.add_verdicts(verdict);
    if (verdict == ACCEPTED) CountBadPush(skipped.reason(), turn);
  }
  Advance(turn);
  response.set_directive(CurrentDirective());
  if (!ended_ && (!known || !current)) response.set_directive(REGISTER_AGAIN);
  if (ended_) response.set_message(std::string(end_status_.message()));
  response.set_term(Counter("term"));
  response.set_generation(Counter("generation"));
  return response;
}

void ChiefMachine::CountBadPush(const std::string& reason, Turn turn) {
  SetCounter("bad_pushes", Counter("bad_pushes") + 1, turn);
  const int64_t count = static_cast<int64_t>(Counter("bad_pushes"));
  Progress(absl::StrCat("batch skipped: ", reason.substr(0, 1024)), turn);
  if (count <= job_.max_bad_pushes()) return;
  Fail(absl::AbortedError(absl::StrCat(reason.substr(0, 1024), " (bad pushes: ", count,
                                       ", max_bad_pushes: ", job_.max_bad_pushes(), ")")),
       turn);
}

ReportEvaluationResponse ChiefMachine::ReportEvaluation(const ReportEvaluationRequest& request, absl::Time now,
                                                        ChiefEffects* effects) {
  const Turn turn{now, effects};
  ReportEvaluationResponse response;
  const Member* worker = membership_.Find(request.incarnation());
  const bool known = worker != nullptr && worker->record.role == WORKER;
  const bool current = request.generation() == Counter("generation");
  if (known) membership_.Heard(request.incarnation(), now);
  if (known && current && evaluation_.has_value() && !ended_ && evaluation_->IsOpen(request.task().epoch()) &&
      !evaluation_->Report(request.incarnation(), request, &effects->records) &&
      ++failed_evaluations_ > kMaxFailedEvaluations) {
    Fail(absl::InternalError(absl::StrCat("evaluation of epoch ", request.task().epoch() + 1, " at cut ",
                                          request.task().cut(), " got no result in ", kMaxFailedEvaluations,
                                          " tries: the fork is gone")),
         turn);
  }
  Advance(turn);
  response.set_directive(CurrentDirective());
  if (!ended_ && (!known || !current)) response.set_directive(REGISTER_AGAIN);
  response.set_term(Counter("term"));
  response.set_generation(Counter("generation"));
  return response;
}

}  // namespace lagrange
