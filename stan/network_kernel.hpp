// The log-likelihood of networks in a subspace, with its gradient, in one pass;
// or a network's outputs, and the gradient of a function of them.
//
//   eta = eta_loc + eta_scale * sum of times_i * f_i(H; w) + Xc * theta + extra,
//   w = p_bar + Pi * phi
//
// Each row's log-likelihood may have a weight. Of a normal response, what eta is linear in,
// coefficients and weights of the output layers, may be integrated out: a first pass sums the
// products of its columns, and a second one goes back through the network with what their matrix
// says.
//
// Rows go through the network in blocks that stay in cache. Within a block the
// values of one unit for consecutive rows are contiguous, so that every loop
// runs over rows in vector registers. A block is passed forward, its density
// and residuals are computed, and it is passed backward at once: nothing of
// size N is kept, and the autodiff stack gets a single node.
//
// The pass is compiled for vectors of 8, 4 and 2 numbers (network_vectors.hpp),
// which are those of AVX-512, of AVX2, and of SSE2 or NEON, and the widest that
// the processor has are taken: wider ones than its registers live in memory,
// which is ten times as slow. Compiles as C++14 and later.

#ifndef SEMISTAN_NETWORK_KERNEL_HPP
#define SEMISTAN_NETWORK_KERNEL_HPP

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define SEMISTAN_INLINE static inline __attribute__((always_inline))
#define SEMISTAN_BITS(T, v) (*reinterpret_cast<const T*>(&(v)))
#if defined(__clang__)
#define SEMISTAN_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SEMISTAN_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Int{__VA_ARGS__})
#endif

// Vectors are passed between functions that are inlined: their ABI does not matter.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

namespace semistan {

constexpr int LINE = 8;            // doubles in a cache line
constexpr int STEP = 16;           // rows of a block are a multiple of this
constexpr int SIDE = 4;            // units on either side of a tile of derivatives
constexpr int PAD = 8;             // units are padded to a multiple of this
constexpr int CACHE = 128 * 1024;  // bytes that a block may take

enum Family { GAUSSIAN, POISSON, BERNOULLI, BINOMIAL };

// Rows start .. start + rows - 1 of column-major matrices with `stride` rows.
struct Rows {
  int start, rows, stride, P;
  const double* H;                  // stride x widths[0], of each network
  const double* Xc;                 // stride x P
  const double* y;                  // the response, real
  const int* count;                 // or whole
  const int* trials = nullptr;      // of a binomial response
  const double* weights = nullptr;  // 1 each if there are none
  const double* extra = nullptr;    // of these rows only; 0 if there is none
  const double* times = nullptr;    // what multiplies each network: stride x networks
  const double* XZ = nullptr;       // columns that are integrated out: stride x their number
  const double* adjoint = nullptr;  // derivative by f, of these rows only: rows x outputs
};

struct Network {
  int layers;         // the output layer included
  const int* widths;  // layers + 1
  int activation;
  const double* w;
};

// Their inputs stand side by side in H. Several have one output each.
using Networks = std::vector<Network>;

struct Predictor {
  double eta_loc, eta_scale, sigma;
  const double* theta;
};

// The gradient is with respect to w, theta, sigma and extra. `products` are sums over the rows,
// with their weights, of the products of each two columns of what is linear, with the residual y -
// eta behind them, but for those of two columns of XZ, which are the same in each pass; `squares`
// are those of the residual at its mean given y.
struct Result {
  double log_lik, d_sigma;
  std::vector<double> d_w, d_theta, d_extra, output;
  std::vector<double> products;
  double mass, squares;
};

// An input of a network's output layer, of which the last is the bias's.
struct Input {
  int network, unit;
};

// What eta is linear in: weights of some inputs of the output layers, and then those of XZ. For the
// second pass: its mean given y, and the first rows of its covariance, padded, as if eta_scale
// were 1.
struct Linear {
  std::vector<Input> inputs;
  int columns;
  std::vector<double> mean, covariance;
  double precision;  // 1 / sigma^2
};

// What a pass computes: log-likelihood and gradient of networks with one output each, or outputs
// of one network, f, or the gradient of a function of f; or the products of what is linear, and with these the gradient of
// the log-likelihood with that integrated out.
enum Task { LOG_LIK, OUTPUT, PULL_BACK, PRODUCTS, INTEGRAL };

inline int padded(int units) { return (units + PAD - 1) / PAD * PAD; }

inline double log_factorial(int count) {
  static const std::vector<double> table = [] {
    std::vector<double> values(4096);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::lgamma(i + 1.0);
    return values;
  }();
  return count < 4096 ? table[count] : std::lgamma(count + 1.0);
}

// What does not depend on eta.
inline double log_constant(double y, double n, int family) {
  const int count = static_cast<int>(y), trials = static_cast<int>(n);
  if (family == POISSON) return -log_factorial(count);
  return log_factorial(trials) - log_factorial(count) - log_factorial(trials - count);
}

// One block of rows; past the last one, the weights are 0.
struct Block {
  double *response, *trials, *weight, *eta;
};

// Memory of one thread, used again by each pass. Pieces start at whole cache
// lines, because a load across two of them costs two.
struct Workspace {
  std::vector<double> values;
  double* next = nullptr;
  void clear(std::size_t size) {
    values.assign(size + LINE, 0.0);
    const std::size_t line = LINE * sizeof(double);
    const auto address = reinterpret_cast<std::uintptr_t>(values.data());
    next = values.data() + (line - address % line) % line / sizeof(double);
  }
  double* take(std::size_t size) {
    double* piece = next;
    next += size;
    return piece;
  }
};

struct Layer {
  int m, n;
  const double *weights, *bias;
  double *padded, *transposed, *padded_bias, *in, *d_packed, *d_bias;
};

// One network: its activation, the first of its columns of H, and its layers.
struct Stack {
  int activation, column;
  std::vector<Layer> layers;
};

// Everything that the blocks of a pass share; buffers for one block.
struct Pass {
  int family, stride;
  Rows data;
  Predictor predictor;
  std::vector<Stack> networks;
  double *response, *trials, *weight, *times, *eta, *d_f, *adjoint, *other;
  const Linear* linear = nullptr;
  bool kept = false;  // what the first pass computed of each block
  double *columns = nullptr, *moved = nullptr;
};

inline void pack(const Layer& layer) {
  std::copy(layer.weights, layer.weights + layer.m * layer.n, layer.padded);
  std::copy(layer.bias, layer.bias + layer.n, layer.padded_bias);
  for (int i = 0; i < layer.m; ++i)
    for (int j = 0; j < layer.n; ++j)
      layer.transposed[i * layer.n + j] = layer.weights[j * layer.m + i];
}

// Where the derivative by the weight of unit j and input i is, in tiles of SIDE x SIDE.
inline int packed(const Layer& layer, int j, int i) {
  const int tiles = (layer.m + SIDE - 1) / SIDE;
  return ((j / SIDE * tiles + i / SIDE) * SIDE + j % SIDE) * SIDE + i % SIDE;
}

// Writes a layer's derivatives in the order of its weights and biases.
inline void unpack(const Layer& layer, double* d_w) {
  for (int j = 0; j < layer.n; ++j)
    for (int i = 0; i < layer.m; ++i) d_w[j * layer.m + i] = layer.d_packed[packed(layer, j, i)];
  std::copy(layer.d_bias, layer.d_bias + layer.n, d_w + layer.n * layer.m);
}

// The pass with the buffers of one block, where each block's are kept.
inline Pass of_block(const Pass& pass, int block) {
  Pass own = pass;
  for (Stack& network : own.networks)
    for (Layer& layer : network.layers)
      layer.in += static_cast<std::size_t>(block) * padded(layer.m) * pass.stride;
  own.eta += block * pass.stride;
  return own;
}

inline int block_rows(const Networks& networks, int rows) {
  int widest = 0, units = 0;
  for (const Network& network : networks)
    for (int l = 0; l < network.layers; ++l) {
      units += padded(network.widths[l]);
      widest = std::max(widest, padded(network.widths[l]));
    }
  const int fitting = CACHE / (8 * (units + 2 * widest)) / STEP * STEP;
  return std::min(std::max(4 * STEP, std::min(256, fitting)), (rows + STEP - 1) / STEP * STEP);
}

constexpr std::size_t KEPT = 1 << 20;  // doubles that a slice may keep from its first pass

// Buffers for one block, taken from a workspace, or for all where they can be kept for a second
// pass.
inline Pass make_pass(int family, const Rows& data, const Networks& networks,
                      const Predictor& predictor, Workspace& workspace,
                      const Linear* linear = nullptr) {
  const int rows = block_rows(networks, data.rows);
  Pass pass{};
  pass.family = family;
  pass.stride = rows + LINE;
  pass.data = data;
  pass.predictor = predictor;
  int widest = PAD;
  std::size_t size = 0, inputs = 0, outputs = 1;
  for (const Network& network : networks) {
    for (int l = 0; l < network.layers; ++l) {
      const std::size_t m = padded(network.widths[l]), n = padded(network.widths[l + 1]);
      widest = std::max(widest, padded(network.widths[l]));
      size += 3 * m * n + 2 * n;
      inputs += m * pass.stride;
    }
    outputs = std::max(outputs, static_cast<std::size_t>(network.widths[network.layers]));
  }
  const std::size_t blocks = (data.rows + rows - 1) / rows;
  pass.linear = linear;
  pass.kept = linear && blocks * (inputs + pass.stride) <= KEPT;
  const std::size_t times = pass.kept ? blocks : 1;
  const std::size_t columns = linear ? padded(linear->columns + 1) : 0;
  const std::size_t multipliers = data.times ? networks.size() : 0;
  workspace.clear(size + times * (inputs + outputs * pass.stride)
                  + (2 * widest + 3 + outputs + multipliers + 2 * columns) * pass.stride);
  int column = 0;
  for (const Network& network : networks) {
    Stack stack{network.activation, column, {}};
    column += network.widths[0];
    const double* weights = network.w;
    for (int l = 0; l < network.layers; ++l) {
      Layer layer;
      layer.m = network.widths[l];
      layer.n = network.widths[l + 1];
      layer.weights = weights;
      layer.bias = weights + layer.m * layer.n;
      weights = layer.bias + layer.n;
      layer.padded = workspace.take(padded(layer.m) * padded(layer.n));
      layer.transposed = workspace.take(padded(layer.m) * padded(layer.n));
      layer.d_packed = workspace.take(padded(layer.m) * padded(layer.n));
      layer.padded_bias = workspace.take(padded(layer.n));
      layer.d_bias = workspace.take(padded(layer.n));
      layer.in = workspace.take(times * padded(layer.m) * pass.stride);
      stack.layers.push_back(layer);
    }
    pass.networks.push_back(stack);
  }
  pass.response = workspace.take(pass.stride);
  pass.trials = workspace.take(pass.stride);
  pass.weight = workspace.take(pass.stride);
  pass.times = workspace.take(multipliers * pass.stride);
  pass.eta = workspace.take(times * outputs * pass.stride);
  pass.d_f = workspace.take(outputs * pass.stride);
  pass.adjoint = workspace.take(widest * pass.stride);
  pass.other = workspace.take(widest * pass.stride);
  pass.columns = workspace.take(columns * pass.stride);
  pass.moved = workspace.take(columns * pass.stride);
  return pass;
}

namespace eight {
#define SEMISTAN_LANES 8
#include "network_vectors.hpp"
#undef SEMISTAN_LANES
}  // namespace eight

namespace four {
#define SEMISTAN_LANES 4
#include "network_vectors.hpp"
#undef SEMISTAN_LANES
}  // namespace four

namespace two {
#define SEMISTAN_LANES 2
#include "network_vectors.hpp"
#undef SEMISTAN_LANES
}  // namespace two

// What runs where no wider vectors are known of, and, in tests, instead of these. Tiles fill the
// registers: 16 of 32 with AVX-512, 8 of 16 with less.
#ifndef SEMISTAN_RUN
#define SEMISTAN_RUN two::run_blocks<4>
#ifdef __x86_64__
#define SEMISTAN_WIDER
#endif
#endif

#ifdef SEMISTAN_WIDER
__attribute__((target("avx512f,avx512dq,avx512vl,fma"))) inline void run_avx512(
    const Pass& pass, Task task, Result& result) {
  eight::run_blocks<8>(pass, task, result);
}
__attribute__((target("avx2,fma"))) inline void run_avx2(const Pass& pass, Task task,
                                                         Result& result) {
  four::run_blocks<4>(pass, task, result);
}
#endif

inline void run(const Pass& pass, Task task, Result& result) {
#ifdef SEMISTAN_WIDER
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")
      && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
    return run_avx512(pass, task, result);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return run_avx2(pass, task, result);
#endif
  SEMISTAN_RUN(pass, task, result);
}

// The derivatives by the weights, network by network and layer by layer.
inline std::vector<double> unpacked(const Pass& pass) {
  std::vector<double> d_w;
  for (const Stack& network : pass.networks)
    for (const Layer& layer : network.layers) {
      const std::size_t used = d_w.size();
      d_w.resize(used + (layer.m + 1) * layer.n);
      unpack(layer, d_w.data() + used);
    }
  return d_w;
}

// The workspace that each thread keeps.
inline Workspace& own_workspace() {
  static thread_local Workspace workspace;
  return workspace;
}

// Log-likelihood and gradient for the given rows and weights.
inline Result log_lik_pass(int family, const Rows& data, const Networks& networks,
                           const Predictor& predictor) {
  const Pass pass = make_pass(family, data, networks, predictor, own_workspace());
  Result result{0, 0, {}, std::vector<double>(data.P), {}, {}, {}, 0, 0};
  if (data.extra) result.d_extra.resize(data.rows);
  run(pass, LOG_LIK, result);
  result.d_w = unpacked(pass);
  return result;
}

constexpr Predictor JUST_F{0, 1, 1, nullptr};

// f of the given rows: rows x outputs.
inline std::vector<double> output_pass(const Rows& data, const Network& network) {
  Result result{};
  result.output.resize(static_cast<std::size_t>(data.rows) * network.widths[network.layers]);
  run(make_pass(GAUSSIAN, data, {network}, JUST_F, own_workspace()), OUTPUT, result);
  return result.output;
}

// The derivatives by the weights of a function whose derivatives by f are data.adjoint.
inline std::vector<double> pull_back_pass(const Rows& data, const Network& network) {
  const Pass pass = make_pass(GAUSSIAN, data, {network}, JUST_F, own_workspace());
  Result result{};
  run(pass, PULL_BACK, result);
  return unpacked(pass);
}

// Some rows between the two passes of an integral.
struct Slice {
  Workspace workspace;
  Pass pass;
  Result result;
};

inline void products_pass(Slice& slice, const Rows& data, const Networks& networks,
                          const Predictor& predictor, const Linear& linear) {
  slice.pass = make_pass(GAUSSIAN, data, networks, predictor, slice.workspace, &linear);
  const std::size_t size = (linear.columns + SIDE) / SIDE * SIDE;
  slice.result = Result{0, 0, {}, std::vector<double>(data.P), {}, {},
                        std::vector<double>(size * size), 0, 0};
  if (data.extra) slice.result.d_extra.resize(data.rows);
  run(slice.pass, PRODUCTS, slice.result);
}

// By the same `linear`, whose mean and covariance are known then.
inline void integral_pass(Slice& slice) {
  run(slice.pass, INTEGRAL, slice.result);
  slice.result.d_w = unpacked(slice.pass);
}

}  // namespace semistan

#endif
