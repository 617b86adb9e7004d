// Data sets with random access, opened from a job's DatasetSpec; formats register themselves in this folder.
//
// Const-safe once opened. Owns its records in memory. Errors name the file, the byte or record, what was expected.

#ifndef WORKER_DATA_READER_H_
#define WORKER_DATA_READER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/registry.h"
#include "proto/job.pb.h"

namespace lagrange {

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t record_count() const = 0;
  // Shape of one example, [28, 28].
  virtual const std::vector<int32_t>& example_shape() const = 0;
  // Writes records' inputs [records.size(), elements] and labels. OutOfRange for a record number past the end.
  virtual absl::Status Read(absl::Span<const int64_t> records, absl::Span<float> inputs,
                            absl::Span<int32_t> labels) const = 0;
};

struct DatasetExpectations {
  // From the model; a data set of another shape, or a label >= class_count, is refused, naming both.
  std::vector<int32_t> example_shape;
  int32_t class_count = 0;
};

using DatasetFactory = std::function<absl::StatusOr<std::unique_ptr<Dataset>>(const DatasetSpec& spec,
                                                                              const DatasetExpectations& expectations)>;

// Under the name of the spec's oneof field ("idx").
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetSpec& spec, const DatasetExpectations& expectations);

}  // namespace lagrange

#endif  // WORKER_DATA_READER_H_
