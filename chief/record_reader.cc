#include "chief/record_reader.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "chief/record_names.h"
#include "common/status.h"

namespace lagrange {
namespace {

absl::Status UnreadableRow(const Database& database, absl::string_view table, absl::string_view row) {
  return absl::DataLossError(absl::StrCat(database.path(), ": table ", table, ", ", row, ": cannot be read"));
}

// Calls `take` with the statement at each row.
template <typename Take>
absl::Status ForEachRow(Database* database, absl::string_view sql, Take take) {
  ASSIGN_OR_RETURN(Statement rows, database->Prepare(sql));
  while (true) {
    ASSIGN_OR_RETURN(const bool has_row, rows.Next());
    if (!has_row) return absl::OkStatus();
    RETURN_IF_ERROR(take(rows));
  }
}

absl::Status ReadCounters(Database* database, Durable* durable) {
  return ForEachRow(database, "SELECT name, value FROM counters", [durable](const Statement& row) {
    durable->counters[row.Bytes(0)] = row.Unsigned(1);
    return absl::OkStatus();
  });
}

absl::Status ReadMembers(Database* database, Durable* durable) {
  return ForEachRow(
      database,
      "SELECT incarnation, role, task_index, process_id, address, host, state, membership_sequence_reserved "
      "FROM members",
      [=](const Statement& row) {
        MemberRecord member;
        member.incarnation = row.Unsigned(0);
        if (!Role_IsValid(static_cast<int>(row.Int(1)))) {
          return UnreadableRow(*database, "members", absl::StrCat("incarnation ", member.incarnation));
        }
        member.role = static_cast<Role>(row.Int(1));
        member.task_index = static_cast<int32_t>(row.Int(2));
        member.process_id = row.Unsigned(3);
        member.address = row.Bytes(4);
        member.host = row.Bytes(5);
        for (const MemberState state : {MemberState::kLive, MemberState::kLeft, MemberState::kEvicted}) {
          if (row.Bytes(6) == NameOf(state)) member.state = state;
        }
        member.membership_sequence_reserved = row.Unsigned(7);
        durable->members[member.incarnation] = std::move(member);
        return absl::OkStatus();
      });
}

absl::Status ReadLeases(Database* database, Durable* durable) {
  return ForEachRow(database, "SELECT epoch, lease, holder, retired, grant_sequence, start_clock FROM leases",
                    [durable](const Statement& row) {
                      LeaseRecord lease;
                      lease.epoch = row.Int(0);
                      lease.lease = row.Int(1);
                      lease.holder = row.Unsigned(2);
                      lease.retired = row.Int(3) != 0;
                      lease.grant_sequence = row.Unsigned(4);
                      lease.start_clock = row.Int(5);
                      durable->leases[{lease.epoch, lease.lease}] = lease;
                      return absl::OkStatus();
                    });
}

absl::Status ReadBatches(Database* database, Durable* durable) {
  return ForEachRow(database,
                    "SELECT epoch, lease, batch, state, cut, incarnation, example_count, loss_sum, reason FROM batches "
                    "WHERE epoch NOT IN (SELECT epoch FROM epochs)",
                    [durable](const Statement& row) {
                      BatchRecord batch;
                      batch.epoch = row.Int(0);
                      batch.lease = row.Int(1);
                      batch.batch = static_cast<int32_t>(row.Int(2));
                      batch.state =
                          row.Bytes(3) == NameOf(BatchState::kDone) ? BatchState::kDone : BatchState::kSkipped;
                      batch.cut = row.Unsigned(4);
                      batch.incarnation = row.Unsigned(5);
                      batch.example_count = row.Int(6);
                      batch.loss_sum = row.Real(7);
                      batch.reason = row.Bytes(8);
                      durable->batches[{batch.epoch, batch.lease, batch.batch}] = std::move(batch);
                      return absl::OkStatus();
                    });
}

absl::Status ReadEvaluations(Database* database, Durable* durable) {
  return ForEachRow(database,
                    "SELECT epoch, first_record, example_count, correct_count, loss_sum FROM evaluations "
                    "WHERE epoch NOT IN (SELECT epoch FROM epochs WHERE evaluated = 1)",
                    [durable](const Statement& row) {
                      EvaluationRecord evaluation;
                      evaluation.epoch = row.Int(0);
                      evaluation.first_record = row.Int(1);
                      evaluation.example_count = row.Int(2);
                      evaluation.correct_count = row.Int(3);
                      evaluation.loss_sum = row.Real(4);
                      durable->evaluations[{evaluation.epoch, evaluation.first_record}] = evaluation;
                      return absl::OkStatus();
                    });
}

absl::Status ReadEpochs(Database* database, Durable* durable) {
  return ForEachRow(database,
                    "SELECT epoch, cut, evaluated, checkpointed, examples_done, examples_skipped, training_loss, "
                    "test_loss, test_accuracy, examples_per_second, staleness_mean, staleness_p99, "
                    "staleness_clocks_max, seconds, number FROM epochs",
                    [durable](const Statement& row) {
                      EpochRecord epoch;
                      epoch.epoch = row.Int(0);
                      epoch.cut = row.Unsigned(1);
                      epoch.evaluated = row.Int(2) != 0;
                      epoch.checkpointed = row.Int(3) != 0;
                      epoch.report.set_examples_done(row.Int(4));
                      epoch.report.set_examples_skipped(row.Int(5));
                      epoch.report.set_training_loss(row.Real(6));
                      epoch.report.set_test_loss(row.Real(7));
                      epoch.report.set_test_accuracy(row.Real(8));
                      epoch.report.set_examples_per_second(row.Real(9));
                      epoch.report.set_staleness_mean(row.Real(10));
                      epoch.report.set_staleness_p99(row.Real(11));
                      epoch.report.set_staleness_clocks_max(static_cast<int32_t>(row.Int(12)));
                      epoch.report.set_seconds(row.Real(13));
                      epoch.report.set_epoch(static_cast<int32_t>(row.Int(14)));
                      durable->epochs[epoch.epoch] = std::move(epoch);
                      return absl::OkStatus();
                    });
}

absl::Status ReadCheckpoints(Database* database, Durable* durable) {
  return ForEachRow(database, "SELECT cut, epoch, directory, state FROM checkpoints", [durable](const Statement& row) {
    CheckpointRecord checkpoint;
    checkpoint.cut = row.Unsigned(0);
    checkpoint.epoch = row.Int(1);
    checkpoint.directory = row.Bytes(2);
    checkpoint.state =
        row.Bytes(3) == NameOf(CheckpointState::kListed) ? CheckpointState::kListed : CheckpointState::kDeleted;
    durable->checkpoints[checkpoint.cut] = std::move(checkpoint);
    return absl::OkStatus();
  });
}

absl::Status ReadModel(Database* database, Durable* durable) {
  RETURN_IF_ERROR(ForEachRow(database, "SELECT map FROM shard_map", [=](const Statement& row) {
    return durable->map.ParseFromString(row.Bytes(0)) ? absl::OkStatus()
                                                      : UnreadableRow(*database, "shard_map", "column map");
  }));
  RETURN_IF_ERROR(
      ForEachRow(database, "SELECT train_records, test_records FROM model", [durable](const Statement& row) {
        durable->has_model = true;
        durable->model.train_records = row.Int(0);
        durable->model.test_records = row.Int(1);
        return absl::OkStatus();
      }));
  return ForEachRow(database, "SELECT spec, name FROM variables ORDER BY position", [=](const Statement& row) {
    VariableSpec variable;
    if (!variable.ParseFromString(row.Bytes(0))) return UnreadableRow(*database, "variables", row.Bytes(1));
    durable->model.variables.push_back(std::move(variable));
    return absl::OkStatus();
  });
}

absl::Status ReadEnd(Database* database, Durable* durable) {
  return ForEachRow(database, "SELECT code, reason FROM job_end", [durable](const Statement& row) {
    durable->ended = true;
    durable->end.code = static_cast<absl::StatusCode>(row.Int(0));
    durable->end.reason = row.Bytes(1);
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<Durable> ReadRecords(Database* database) {
  Durable durable;
  for (const auto read : {ReadCounters, ReadMembers, ReadLeases, ReadBatches, ReadEvaluations, ReadEpochs,
                          ReadCheckpoints, ReadModel, ReadEnd}) {
    RETURN_IF_ERROR(read(database, &durable));
  }
  return durable;
}

}  // namespace lagrange
