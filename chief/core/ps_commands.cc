#include "chief/core/ps_commands.h"

#include <algorithm>
#include <utility>

namespace lagrange {
namespace {

// A refused connection fails at once; without a pause a ps that restarts would be asked thousands of times a second.
constexpr int kPausesPerTimeout = 4;
// With the default pause 5 s: longer than a repeated registration takes.
constexpr int kMaxRefusals = 10;

}  // namespace

PsCommands::PsCommands(const Options& options)
    // Ids of different chief processes must not meet: an answer to the last one's command may still be on its way.
    : options_(options), next_id_((options.term << 32) + 1) {}

void PsCommands::Send(const PsAddress& ps, PsCommand command, absl::Time now, ChiefEffects* effects) {
  command.set_term(options_.term);
  command.set_generation(options_.generation);
  command.set_incarnation(ps.incarnation());
  Outstanding entry;
  entry.outgoing.ps_index = ps.ps_index();
  entry.outgoing.address = ps.address();
  entry.outgoing.command_id = next_id_++;
  entry.outgoing.deadline = command.has_write_checkpoint() || command.has_install_shards()
                                ? options_.disk_command_timeout
                                : options_.command_timeout;
  entry.outgoing.command = std::move(command);
  // The shell answers at the deadline; the margin keeps its answer from crossing a resend.
  entry.resend_at = now + entry.outgoing.deadline + options_.command_timeout / kPausesPerTimeout;
  effects->ps_commands.push_back(entry.outgoing);
  outstanding_.emplace(entry.outgoing.command_id, std::move(entry));
}

const OutgoingPsCommand* PsCommands::Find(uint64_t command_id) const {
  const auto found = outstanding_.find(command_id);
  return found == outstanding_.end() ? nullptr : &found->second.outgoing;
}

void PsCommands::Take(uint64_t command_id) { outstanding_.erase(command_id); }

void PsCommands::RetryLater(uint64_t command_id, absl::Time now) {
  const auto found = outstanding_.find(command_id);
  if (found == outstanding_.end()) return;
  found->second.resend_at = now + options_.command_timeout / kPausesPerTimeout;
  ++found->second.failures;
}

void PsCommands::Resend(absl::Time now, ChiefEffects* effects) {
  for (auto& [id, entry] : outstanding_) {
    if (entry.resend_at > now) continue;
    entry.resend_at = now + entry.outgoing.deadline + options_.command_timeout / kPausesPerTimeout;
    effects->ps_commands.push_back(entry.outgoing);
  }
}

absl::Time PsCommands::next_resend() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [id, entry] : outstanding_) next = std::min(next, entry.resend_at);
  return next;
}

void PsCommands::Drop() { outstanding_.clear(); }

int64_t PsCommands::OutstandingOf(int32_t ps_index) const {
  return std::count_if(outstanding_.begin(), outstanding_.end(),
                       [ps_index](const auto& item) { return item.second.outgoing.ps_index == ps_index; });
}

bool PsCommands::MayPass(uint64_t command_id, const absl::Status& status) const {
  const Outstanding& entry = outstanding_.at(command_id);
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
      return true;
    case absl::StatusCode::kResourceExhausted:
      // All of a ps's command threads are busy. Of a disk command it may be a full disk.
      return !entry.outgoing.command.has_write_checkpoint() && !entry.outgoing.command.has_install_shards();
    case absl::StatusCode::kFailedPrecondition:
      // A process that doesn't know its incarnation yet, for the answer to its registration is under way, or one that
      // has just replaced the ps: its registration or its lapse decides. But of a disk command it may be what the ps
      // says of the checkpoint, which stays true.
      return (!entry.outgoing.command.has_write_checkpoint() && !entry.outgoing.command.has_install_shards()) ||
             entry.failures < kMaxRefusals;
    default:
      return false;
  }
}

}  // namespace lagrange
