// Matrix products of the 784-256-128-10 network by oneDNN (what kernels/matmul.h runs on) and by OpenBLAS, in the same
// run and in turns, with their ratio.
//   bazel run -c opt //tests/benchmarks/compute:matmul

#include "kernels/matmul.h"

#include <cblas.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "common/prng.h"
#include "tests/benchmarks/compute/timing.h"

namespace lagrange {
namespace {

using kernels::MatMulOptions;
using kernels::Transpose;

struct Product {
  std::string name;
  MatMulOptions options;
};

Product MakeProduct(const char* name, int64_t rows, int64_t cols, int64_t depth, Transpose a, Transpose b) {
  Product product{name, {}};
  product.options.rows = rows;
  product.options.cols = cols;
  product.options.depth = depth;
  product.options.transpose_a = a;
  product.options.transpose_b = b;
  return product;
}

// Those of one step, forward and backward; nobody wants the gradient of the first layer's input.
std::vector<Product> ProductsOfAStep(int64_t batch) {
  const std::vector<int64_t> widths = {784, 256, 128, 10};
  std::vector<Product> products;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    const int64_t in = widths[i], out = widths[i + 1];
    products.push_back(MakeProduct("x W", batch, out, in, Transpose::kNo, Transpose::kNo));
    products.push_back(MakeProduct("x' dy", in, out, batch, Transpose::kYes, Transpose::kNo));
    if (i > 0) products.push_back(MakeProduct("dy W'", batch, in, out, Transpose::kNo, Transpose::kYes));
  }
  return products;
}

void OpenBlas(const MatMulOptions& options, const float* a, const float* b, float* c) {
  const bool transpose_a = options.transpose_a == Transpose::kYes;
  const bool transpose_b = options.transpose_b == Transpose::kYes;
  cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans, transpose_b ? CblasTrans : CblasNoTrans,
              options.rows, options.cols, options.depth, 1.0f, a, transpose_a ? options.rows : options.depth, b,
              transpose_b ? options.depth : options.cols, 0.0f, c, options.cols);
}

std::vector<float> Values(int64_t n) {
  std::vector<float> values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = RandomUnit(n, i) - 0.5f;
  return values;
}

struct Seconds {
  double openblas = std::numeric_limits<double>::infinity();
  double onednn = std::numeric_limits<double>::infinity();
};

Seconds Measure(const Product& product) {
  const MatMulOptions& options = product.options;
  const std::vector<float> a = Values(options.rows * options.depth), b = Values(options.depth * options.cols);
  std::vector<float> c(options.rows * options.cols);
  Seconds least;
  RunRounds([&] {
    least.openblas = std::min(least.openblas, SecondsPerCall([&] { OpenBlas(options, a.data(), b.data(), c.data()); }));
    least.onednn = std::min(least.onednn, SecondsPerCall([&] {
                              if (!kernels::MatMul(options, a.data(), b.data(), c.data()).ok()) std::abort();
                            }));
  });
  return least;
}

void PrintTable(int64_t batch, int threads) {
  openblas_set_num_threads(threads);
  kernels::SetComputeThreads(threads);
  std::printf("\nbatch %ld, threads %d\n%-6s %5s %5s %5s  %21s  %21s  %s\n", static_cast<long>(batch), threads, "",
              "rows", "cols", "depth", "OpenBLAS us   GFLOP/s", "oneDNN us   GFLOP/s", "OpenBLAS/oneDNN");
  Seconds total{0, 0};
  for (const Product& product : ProductsOfAStep(batch)) {
    const Seconds seconds = Measure(product);
    const MatMulOptions& o = product.options;
    const double gflop =
        2e-9 * static_cast<double>(o.rows) * static_cast<double>(o.cols) * static_cast<double>(o.depth);
    std::printf("%-6s %5ld %5ld %5ld  %11.1f %9.1f  %11.1f %9.1f  %15.2f\n", product.name.c_str(),
                static_cast<long>(o.rows), static_cast<long>(o.cols), static_cast<long>(o.depth),
                seconds.openblas * 1e6, gflop / seconds.openblas, seconds.onednn * 1e6, gflop / seconds.onednn,
                seconds.openblas / seconds.onednn);
    total.openblas += seconds.openblas;
    total.onednn += seconds.onednn;
  }
  std::printf("a step's products: OpenBLAS %.0f us, oneDNN %.0f us, ratio %.2f\n", total.openblas * 1e6,
              total.onednn * 1e6, total.openblas / total.onednn);
  std::fflush(stdout);
}

}  // namespace
}  // namespace lagrange

int main() {
  for (const int threads : {1, 2}) {
    for (const int64_t batch : {64, 128}) lagrange::PrintTable(batch, threads);
  }
}
