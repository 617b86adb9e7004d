#include "worker/data/reader.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lagrange {

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetSpec& spec, const DatasetExpectations& expectations) {
  const auto* oneof = DatasetSpec::descriptor()->FindOneofByName("format");
  const auto* field = DatasetSpec::GetReflection()->GetOneofFieldDescriptor(spec, oneof);
  if (field == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data set: expected a format, one of ", absl::StrJoin(Registry<DatasetFactory>::Names(), ", "), "; got none"));
  }
  const DatasetFactory* factory = Registry<DatasetFactory>::Find(field->name());
  if (factory == nullptr) {
    return absl::UnimplementedError(absl::StrCat("this program can't read the data format \"", field->name(),
                                                 "\"; it reads ",
                                                 absl::StrJoin(Registry<DatasetFactory>::Names(), ", ")));
  }
  return (*factory)(spec, expectations);
}

}  // namespace lagrange
