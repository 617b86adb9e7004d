// lagrange-worker: the worker daemon with the house's own layers and data formats.

#include "worker/worker_main.h"

int main(int argc, char** argv) { return lagrange::WorkerMain(argc, argv); }
