#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job_config.h"
#include "google/protobuf/descriptor.h"

namespace lagrange {
namespace {

constexpr int32_t kDefaultStaleness = 3;
constexpr int64_t kDefaultLeaseSeconds = 10;

void FillLayer(LayerSpec* layer) {
  if (!layer->has_dense()) return;
  DenseLayer* dense = layer->mutable_dense();
  if (!dense->has_use_bias()) dense->set_use_bias(true);
  if (dense->kernel_initializer().kind_case() == InitializerSpec::KIND_NOT_SET) {
    dense->mutable_kernel_initializer()->mutable_glorot_uniform();
  }
  if (dense->bias_initializer().kind_case() == InitializerSpec::KIND_NOT_SET) {
    dense->mutable_bias_initializer()->mutable_zeros();
  }
}

void FillModel(ModelSpec* model) {
  std::map<std::string, int> count_of_kind;
  for (LayerSpec& layer : *model->mutable_layers()) {
    FillLayer(&layer);
    // A layer without a kind is the validation's to refuse.
    if (layer.kind_case() == LayerSpec::KIND_NOT_SET) continue;
    const std::string& kind = LayerSpec::descriptor()->FindFieldByNumber(layer.kind_case())->name();
    const int number = count_of_kind[kind]++;
    if (layer.name().empty()) layer.set_name(absl::StrCat(kind, "_", number));
  }
  if (model->loss().kind_case() == LossSpec::KIND_NOT_SET) model->mutable_loss()->mutable_softmax_cross_entropy();
}

void FillDataset(DatasetSpec* dataset) {
  if (!dataset->has_idx()) return;
  IdxFormat* idx = dataset->mutable_idx();
  if (!idx->has_scale()) idx->set_scale(1.0f / 255.0f);
  if (!idx->has_offset()) idx->set_offset(0);
}

void FillOptimizer(OptimizerSpec* optimizer) {
  if (optimizer->has_momentum() && !optimizer->momentum().has_momentum()) {
    optimizer->mutable_momentum()->set_momentum(0.9f);
  }
  if (!optimizer->has_adam()) return;
  AdamOptimizer* adam = optimizer->mutable_adam();
  if (!adam->has_learning_rate()) adam->set_learning_rate(0.001f);
  if (!adam->has_beta1()) adam->set_beta1(0.9f);
  if (!adam->has_beta2()) adam->set_beta2(0.999f);
  if (!adam->has_epsilon()) adam->set_epsilon(1e-7f);
}

void FillConsistency(ConsistencySpec* consistency) {
  if (consistency->kind_case() == ConsistencySpec::KIND_NOT_SET) consistency->mutable_asp();
  if (consistency->has_ssp() && !consistency->ssp().has_staleness()) {
    consistency->mutable_ssp()->set_staleness(kDefaultStaleness);
  }
}

void FillCluster(ClusterSpec* cluster) {
  if (cluster->ps_count() == 0) cluster->set_ps_count(1);
  if (cluster->worker_count() == 0) cluster->set_worker_count(1);
  if (!cluster->has_worker_lease()) cluster->mutable_worker_lease()->set_seconds(kDefaultLeaseSeconds);
  if (!cluster->has_ps_lease()) cluster->mutable_ps_lease()->set_seconds(kDefaultLeaseSeconds);
  if (cluster->shard_bytes() == 0) cluster->set_shard_bytes(4194304);
}

}  // namespace

void FillDefaults(JobSpec* job) {
  if (job->has_model()) FillModel(job->mutable_model());
  if (job->data().has_train()) FillDataset(job->mutable_data()->mutable_train());
  if (job->data().has_test()) FillDataset(job->mutable_data()->mutable_test());
  if (job->has_optimizer()) FillOptimizer(job->mutable_optimizer());
  FillConsistency(job->mutable_consistency());
  CheckpointSpec* checkpoint = job->mutable_checkpoint();
  if (checkpoint->max_to_keep() == 0) checkpoint->set_max_to_keep(3);
  if (checkpoint->every_epochs() == 0) checkpoint->set_every_epochs(1);
  EvaluationSpec* evaluation = job->mutable_evaluation();
  if (evaluation->every_epochs() == 0) evaluation->set_every_epochs(1);
  if (evaluation->examples_per_task() == 0) evaluation->set_examples_per_task(2048);
  FillCluster(job->mutable_cluster());
  if (!job->has_prefetch()) job->set_prefetch(true);
}

}  // namespace lagrange
