#include <iostream>

#include "cli/chief_connection.h"
#include "cli/commands.h"
#include "cli/status_text.h"

namespace lagrange {

int RunStatus(const std::string& chief_address, absl::Duration timeout) {
  const absl::StatusOr<JobStatus> status = ChiefConnection(chief_address).GetStatus(timeout);
  if (!status.ok()) {
    std::cerr << "lagrange status: " << status.status().message() << "\n";
    return 1;
  }
  std::cout << StatusText(*status);
  return 0;
}

}  // namespace lagrange
