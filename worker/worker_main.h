// The whole worker daemon as a function, for programs with a model or data format of their own:
//
//   int main(int argc, char** argv) {
//     lagrange::WorkerParts parts;
//     parts.make_model = MakeMyModel;
//     return lagrange::WorkerMain(argc, argv, parts);
//   }
//
// Such a program links //worker:worker_main; layers and readers that register themselves are in it.

#ifndef WORKER_WORKER_MAIN_H_
#define WORKER_WORKER_MAIN_H_

#include "worker/batch_computer.h"

namespace lagrange {

// REQUIRES: called from main before any thread is started. Returns the exit status: 0 the job is complete or SIGTERM
// asked to stop, 1 failed, 2 bad flags, job, model or data; the reason is on stderr.
int WorkerMain(int argc, char** argv, const WorkerParts& parts = {});

}  // namespace lagrange

#endif  // WORKER_WORKER_MAIN_H_
