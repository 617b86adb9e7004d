#include "ps/core/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lagrange {
namespace {

using Floats = std::vector<float>;

Floats Values(const BufferRef& buffer) { return Floats(buffer.values().begin(), buffer.values().end()); }

// Rows [2, 5) of a variable of 10 rows of 2, at zero; SGD with learning rate 1 unless said otherwise.
class ShardTest : public testing::Test {
 protected:
  ShardTest() {
    spec_.mutable_sgd()->set_learning_rate(1.0f);
    Make();
  }

  void Make() {
    optimizer_ = MakeOptimizer(spec_).value();
    options_.placement.set_shard(3);
    options_.placement.set_row_begin(2);
    options_.placement.set_row_end(5);
    options_.placement.set_element_begin(4);
    options_.placement.set_element_end(10);
    options_.variable.set_name("w");
    options_.variable.clear_shape();
    options_.variable.add_shape(10);
    options_.variable.add_shape(2);
    options_.variable.mutable_initializer()->mutable_zeros();
    options_.optimizer = optimizer_.get();
    options_.batches_per_lease = 10;
    options_.cut = 5;
    shard_ = Shard::Create(options_).value();
  }

  ShardPart Part(int32_t batch, const Floats& gradient) {
    gradients_.push_back(std::make_unique<Floats>(gradient));
    ShardPart part;
    part.lease_number = 1;
    part.batch = batch;
    part.pulled_version = 0;
    part.incarnation = 100 + batch;
    part.example_count = 1;
    part.gradient = *gradients_.back();
    return part;
  }
  // All six elements.
  ShardPart Part(int32_t batch, float gradient) { return Part(batch, Floats(6, gradient)); }
  Floats Now() const { return Values(shard_->parameters()); }

  OptimizerSpec spec_;
  std::unique_ptr<Optimizer> optimizer_;
  Shard::Options options_;
  std::unique_ptr<Shard> shard_;
  std::vector<std::unique_ptr<Floats>> gradients_;
};

TEST_F(ShardTest, AppliesAPartAndCountsAVersion) {
  EXPECT_EQ(shard_->Apply(Part(0, {1, 2, 3, 4, 5, 6})).value(), APPLIED);
  EXPECT_EQ(Now(), Floats({-1, -2, -3, -4, -5, -6}));
  EXPECT_EQ(shard_->version(), 1);
}

TEST_F(ShardTest, ARepeatIsADuplicateAndChangesNothing) {
  ASSERT_EQ(shard_->Apply(Part(0, 1)).value(), APPLIED);
  EXPECT_EQ(shard_->Apply(Part(0, 1)).value(), DUPLICATE);
  EXPECT_EQ(Now(), Floats(6, -1));
  EXPECT_EQ(shard_->version(), 1);
}

TEST_F(ShardTest, APartOfARetiredLeaseIsADuplicate) {
  ASSERT_TRUE(shard_->Retire(1).ok());
  EXPECT_EQ(shard_->Apply(Part(0, 1)).value(), DUPLICATE);
  EXPECT_EQ(Now(), Floats(6, 0));
}

TEST_F(ShardTest, AGradientOfTheFutureIsRefused) {
  ShardPart part = Part(0, 1);
  part.pulled_version = 1;
  const auto outcome = shard_->Apply(part);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(outcome.status().message(), "shard 3 of w: the gradient is of version 1, the shard is at 0");
  EXPECT_EQ(Now(), Floats(6, 0));
}

TEST_F(ShardTest, AViewKeepsItsVersionWhileTheShardGoesOn) {
  ASSERT_TRUE(shard_->Apply(Part(0, 1)).ok());
  const BufferRef view = shard_->parameters();
  for (int32_t batch = 1; batch < 6; ++batch) ASSERT_TRUE(shard_->Apply(Part(batch, 1)).ok());
  EXPECT_EQ(Values(view), Floats(6, -1));
  EXPECT_EQ(Now(), Floats(6, -6));
}

TEST_F(ShardTest, WithoutReadersItWritesInPlace) {
  const float* const address = shard_->parameters().values().data();
  ASSERT_TRUE(shard_->Apply(Part(0, 1)).ok());
  EXPECT_EQ(shard_->parameters().values().data(), address);
}

TEST_F(ShardTest, StalenessIsTheVersionAtApplyMinusTheVersionPulled) {
  for (int32_t batch = 0; batch < 3; ++batch) ASSERT_TRUE(shard_->Apply(Part(batch, 1)).ok());
  StalenessStatistics statistics;
  shard_->staleness().MergeTotalInto(&statistics);
  EXPECT_THAT(std::vector<int64_t>(statistics.version_counts().begin(), statistics.version_counts().begin() + 4),
              testing::ElementsAre(1, 1, 1, 0));
  EXPECT_EQ(statistics.version_sum(), 3);
}

// ---- forks
// -----------------------------------------------------------------------------------------------------------

TEST_F(ShardTest, AForkHoldsWhatWasAppliedBeforeItsCut) {
  ASSERT_TRUE(shard_->Apply(Part(0, 1)).ok());
  shard_->RaiseCut(6);
  ASSERT_TRUE(shard_->Apply(Part(1, 1)).ok());
  const auto fork = shard_->ForkOf(6);
  ASSERT_TRUE(fork.has_value());
  EXPECT_EQ(Values(fork->parameters), Floats(6, -1));
  EXPECT_EQ(fork->version, 1);
  ASSERT_EQ(fork->dedupe.open_size(), 1);
  EXPECT_THAT(fork->dedupe.open(0).applied_batches(), testing::ElementsAre(0));
}

TEST_F(ShardTest, AForkHoldsTheSlotsOfItsInstant) {
  spec_.mutable_adam()->set_learning_rate(0.1f);
  spec_.mutable_adam()->set_beta1(0.5f);
  spec_.mutable_adam()->set_beta2(0.75f);
  Make();
  ASSERT_TRUE(shard_->Apply(Part(0, 2)).ok());
  shard_->RaiseCut(6);
  ASSERT_TRUE(shard_->Apply(Part(1, 2)).ok());
  const auto fork = shard_->ForkOf(6);
  EXPECT_THAT(fork->slot_names, testing::ElementsAre("m", "v"));
  EXPECT_EQ(Values(fork->slots[0]), Floats(6, 1));
  EXPECT_EQ(Values(fork->slots[1]), Floats(6, 1));
}

TEST_F(ShardTest, ACutThatWasSkippedIsTheForkOfTheNextOne) {
  ASSERT_TRUE(shard_->Apply(Part(0, 1)).ok());
  shard_->RaiseCut(8);
  ASSERT_TRUE(shard_->Apply(Part(1, 1)).ok());
  for (const uint64_t cut : {6, 7, 8}) EXPECT_EQ(Values(shard_->ForkOf(cut)->parameters), Floats(6, -1)) << cut;
  EXPECT_FALSE(shard_->ForkOf(5).has_value());
  EXPECT_FALSE(shard_->ForkOf(9).has_value());
}

TEST_F(ShardTest, AReleasedForkIsGoneAndLaterOnesStay) {
  shard_->RaiseCut(6);
  shard_->RaiseCut(7);
  shard_->ReleaseForks(6);
  EXPECT_FALSE(shard_->ForkOf(6).has_value());
  EXPECT_TRUE(shard_->ForkOf(7).has_value());
}

TEST_F(ShardTest, AForkThatAlsoServesALaterCutSurvivesARelease) {
  shard_->RaiseCut(8);
  shard_->ReleaseForks(6);
  EXPECT_TRUE(shard_->ForkOf(8).has_value());
}

TEST_F(ShardTest, TheOldestForkGoesWhenThereAreTooMany) {
  for (uint64_t cut = 6; cut < 6 + Shard::kMaxForks + 1; ++cut) shard_->RaiseCut(cut);
  EXPECT_FALSE(shard_->ForkOf(6).has_value());
  EXPECT_TRUE(shard_->ForkOf(7).has_value());
}

TEST_F(ShardTest, ASnapshotRestoresBitForBitAndGoesOn) {
  spec_.mutable_adam()->set_learning_rate(0.1f);
  spec_.mutable_adam()->set_beta1(0.5f);
  spec_.mutable_adam()->set_beta2(0.75f);
  Make();
  for (int32_t batch = 0; batch < 3; ++batch) ASSERT_TRUE(shard_->Apply(Part(batch, {1, -2, 3, -4, 5, 0.1f})).ok());
  auto restored = Shard::Restore(options_, shard_->Snapshot());
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ((*restored)->version(), 3);
  EXPECT_EQ((*restored)->Apply(Part(2, 9)).value(), DUPLICATE);
  ASSERT_TRUE(shard_->Apply(Part(3, {1, 1, 1, 1, 1, 1})).ok());
  ASSERT_TRUE((*restored)->Apply(Part(3, {1, 1, 1, 1, 1, 1})).ok());
  EXPECT_EQ(Values((*restored)->parameters()), Now());
}

TEST_F(ShardTest, ASnapshotThatDoesNotFitIsRefused) {
  struct Damage {
    void (*apply)(ShardSnapshot*);
    const char* message;
  };
  const Damage damages[] = {
      {[](ShardSnapshot* s) { s->variable = "v"; }, "the checkpoint has v there"},
      {[](ShardSnapshot* s) { s->row_end = 6; }, "expected rows [2, 5), the checkpoint has [2, 6)"},
      {[](ShardSnapshot* s) { s->parameters = BufferRef::Allocate(5); },
       "elements in the checkpoint: expected 6, got 5"},
      {[](ShardSnapshot* s) { s->slots.clear(); }, "slots in the checkpoint: expected 1, got 0"},
      {[](ShardSnapshot* s) { s->slot_names[0] = "m"; }, "expected the slot momentum, the checkpoint has m"},
      {[](ShardSnapshot* s) { s->slots[0] = BufferRef(); }, "elements of the slot momentum: expected 6, got 0"},
      {[](ShardSnapshot* s) { s->dedupe.add_open()->add_applied_batches(10); }, "dedupe state"},
  };
  spec_.mutable_momentum()->set_learning_rate(1.0f);
  Make();
  for (const Damage& damage : damages) {
    ShardSnapshot snapshot = shard_->Snapshot();
    damage.apply(&snapshot);
    const auto restored = Shard::Restore(options_, std::move(snapshot));
    EXPECT_EQ(restored.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(restored.status().message()), testing::HasSubstr(damage.message));
  }
}

TEST_F(ShardTest, APlacementThatDoesNotFitTheVariableIsRefused) {
  options_.placement.set_row_end(11);
  EXPECT_EQ(Shard::Create(options_).status().code(), absl::StatusCode::kInvalidArgument);
  options_.placement.set_row_end(5);
  options_.placement.set_element_end(11);
  EXPECT_EQ(Shard::Create(options_).status().code(), absl::StatusCode::kInvalidArgument);
  options_.placement.set_element_end(10);
  options_.placement.set_row_begin(-1);
  EXPECT_EQ(Shard::Create(options_).status().code(), absl::StatusCode::kInvalidArgument);
}

// ---- rounds
// ----------------------------------------------------------------------------------------------------------

TEST_F(ShardTest, ARoundIsTheMeanByExamplesAppliedOnce) {
  ShardPart three = Part(0, 4);
  three.example_count = 3;
  ASSERT_EQ(shard_->Contribute(three).value(), APPLIED);
  ASSERT_EQ(shard_->Contribute(Part(1, 8)).value(), APPLIED);
  EXPECT_EQ(Now(), Floats(6, 0));
  EXPECT_EQ(shard_->version(), 0);
  ASSERT_TRUE(shard_->CloseRounds(0).ok());
  EXPECT_EQ(Now(), Floats(6, -5));
  EXPECT_EQ(shard_->version(), 1);
}

TEST_F(ShardTest, ARoundOfOneIsItsGradientBitForBit) {
  ASSERT_TRUE(shard_->Contribute(Part(0, 0.1f)).ok());
  ASSERT_TRUE(shard_->CloseRounds(0).ok());
  EXPECT_EQ(Now(), Floats(6, -0.1f));
}

TEST_F(ShardTest, ABitIsSetWhenTheRoundCloses) {
  ASSERT_TRUE(shard_->Contribute(Part(0, 1)).ok());
  EXPECT_EQ(shard_->Snapshot().dedupe.open_size(), 0);
  ASSERT_TRUE(shard_->CloseRounds(0).ok());
  ASSERT_EQ(shard_->Snapshot().dedupe.open_size(), 1);
  EXPECT_EQ(shard_->Contribute(Part(0, 1)).value(), DUPLICATE);
}

TEST_F(ShardTest, ARepeatInAnOpenRoundAddsNothing) {
  ASSERT_EQ(shard_->Contribute(Part(0, 1)).value(), APPLIED);
  EXPECT_EQ(shard_->Contribute(Part(0, 1)).value(), APPLIED);
  ASSERT_EQ(shard_->Contribute(Part(1, 3)).value(), APPLIED);
  ASSERT_TRUE(shard_->CloseRounds(0).ok());
  EXPECT_EQ(Now(), Floats(6, -2));
}

TEST_F(ShardTest, AKeyPendingThroughSomeoneElseIsAnEmptyContribution) {
  ASSERT_TRUE(shard_->Contribute(Part(0, 1)).ok());
  for (const int64_t round : {0, 1}) {
    ShardPart again = Part(0, 1);
    again.incarnation = 999;
    again.round = round;
    EXPECT_EQ(shard_->Contribute(again).value(), DUPLICATE);
  }
  ASSERT_TRUE(shard_->CloseRounds(1).ok());
  EXPECT_EQ(Now(), Floats(6, -1));
  EXPECT_EQ(shard_->version(), 1);
}

TEST_F(ShardTest, APartForAClosedRoundIsLateUnlessItWasApplied) {
  ASSERT_TRUE(shard_->Contribute(Part(0, 1)).ok());
  ASSERT_TRUE(shard_->CloseRounds(0).ok());
  EXPECT_EQ(shard_->Contribute(Part(1, 1)).value(), LATE);
  EXPECT_EQ(shard_->Contribute(Part(0, 1)).value(), DUPLICATE);
  EXPECT_EQ(Now(), Floats(6, -1));
}

TEST_F(ShardTest, AKeyPendingInALaterRoundIsNotAcknowledgedByAClosedOne) {
  ShardPart pending = Part(0, 1);
  pending.round = 2;
  ASSERT_TRUE(shard_->CloseRounds(1).ok());
  ASSERT_TRUE(shard_->Contribute(pending).ok());
  pending.round = 1;
  EXPECT_EQ(shard_->Contribute(pending).value(), LATE);
}

TEST_F(ShardTest, AForkLeavesOutThePendingContributions) {
  ASSERT_TRUE(shard_->Contribute(Part(0, 1)).ok());
  shard_->RaiseCut(6);
  ASSERT_TRUE(shard_->CloseRounds(0).ok());
  EXPECT_EQ(Values(shard_->ForkOf(6)->parameters), Floats(6, 0));
  EXPECT_EQ(shard_->ForkOf(6)->dedupe.open_size(), 0);
  EXPECT_EQ(Now(), Floats(6, -1));
}

TEST_F(ShardTest, TwoRoundsMayBeOpenAndNoThird) {
  for (const int64_t round : {0, 1, 2}) {
    ShardPart part = Part(static_cast<int32_t>(round), 1);
    part.round = round;
    EXPECT_EQ(shard_->Contribute(part).ok(), round < 2) << round;
  }
}

TEST_F(ShardTest, AnEmptyRoundChangesNothing) {
  ASSERT_TRUE(shard_->CloseRounds(0).ok());
  EXPECT_EQ(shard_->version(), 0);
}

}  // namespace
}  // namespace lagrange
