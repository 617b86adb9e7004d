// Commands of a chief to a ps that holds one small variable, for the tests of the ps's shell.

#ifndef PS_PS_COMMANDS_TESTING_H_
#define PS_PS_COMMANDS_TESTING_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/file_system.h"
#include "common/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/control_plane.pb.h"

namespace lagrange {

inline constexpr uint64_t kIncarnation = 11;
inline constexpr uint64_t kTerm = 3;
inline constexpr uint64_t kGeneration = 2;

// A fresh directory for the running test.
inline std::string TestDirectory() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string path = JoinPath(testing::TempDir(), absl::StrCat(test->test_suite_name(), ".", test->name()));
  EXPECT_THAT(MakeDirectories(path), IsOk());
  return path;
}

inline PsCommand Command() {
  PsCommand command;
  command.set_term(kTerm);
  command.set_generation(kGeneration);
  command.set_incarnation(kIncarnation);
  return command;
}

// One variable "w" of 2 x 2, all of it on the ps, its initial values 1.5, trained by Adam.
inline PsCommand Install(uint64_t cut) {
  PsCommand command = Command();
  InstallShards* install = command.mutable_install_shards();
  install->set_cut(cut);
  install->set_leases_per_epoch(2);
  install->set_batches_per_lease(2);
  install->mutable_job()->mutable_optimizer()->mutable_adam()->set_learning_rate(0.5f);
  install->mutable_job()->mutable_optimizer()->mutable_adam()->set_beta1(0.9f);
  install->mutable_job()->mutable_optimizer()->mutable_adam()->set_beta2(0.999f);
  install->mutable_job()->mutable_optimizer()->mutable_adam()->set_epsilon(1e-7f);
  install->mutable_job()->mutable_consistency()->mutable_asp();
  ShardMap* map = install->mutable_map();
  map->set_version(1);
  PsAddress* ps = map->add_ps();
  ps->set_incarnation(kIncarnation);
  VariableSpec* variable = map->add_variables();
  variable->set_name("w");
  variable->add_shape(2);
  variable->add_shape(2);
  variable->mutable_initializer()->mutable_constant()->set_value(1.5f);
  ShardPlacement* shard = map->add_shards();
  shard->set_row_end(2);
  shard->set_element_end(4);
  return command;
}

inline PsCommand Announce(uint64_t cut) {
  PsCommand command = Command();
  command.mutable_announce_cut()->set_cut(cut);
  return command;
}

inline PsCommand ShutDownFor(const std::string& reason) {
  PsCommand command = Command();
  command.mutable_shut_down()->set_reason(reason);
  return command;
}

}  // namespace lagrange

#endif  // PS_PS_COMMANDS_TESTING_H_
