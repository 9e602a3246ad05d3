// The log-likelihood of a network in a subspace, with its gradient, in one pass.
//
//   eta = eta_loc + eta_scale * f(H; w) + Xc * theta,   w = p_bar + Pi * phi
//
// Rows go through the network in blocks that stay in cache. Within a block the
// values of one unit for consecutive rows are contiguous, so that every loop
// runs over rows in vector registers. A block is passed forward, its density
// and residuals are computed, and it is passed backward at once: nothing of
// size N is kept, and the autodiff stack gets a single node.
//
// Vectors are those of GCC and Clang. With GCC on x86-64 Linux the pass is
// compiled for several instruction sets, and the processor's best is chosen
// when the program starts. Compiles as C++14 and later.

#ifndef SEMISTAN_NETWORK_KERNEL_HPP
#define SEMISTAN_NETWORK_KERNEL_HPP

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) \
    && defined(__linux__) && !defined(SEMISTAN_PORTABLE)
#define SEMISTAN_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SEMISTAN_CLONES
#endif
#define SEMISTAN_INLINE static inline __attribute__((always_inline))

namespace semistan {

typedef double Vec __attribute__((vector_size(64), aligned(8), may_alias));
typedef std::int64_t Int __attribute__((vector_size(64), aligned(8), may_alias));

constexpr int LANES = 8;           // doubles in a Vec
constexpr int TILE = 4;            // units of a register tile
constexpr int STEP = 2 * LANES;    // rows of a register tile
constexpr int CACHE = 192 * 1024;  // bytes that a block may take

enum Activation { TANH = 1, RELU = 2, SOFTPLUS = 3, SIGMOID = 4, IDENTITY = 5 };
enum Family { GAUSSIAN, POISSON, BERNOULLI };

// Rows start .. start + rows - 1 of column-major matrices with `stride` rows.
struct Rows {
  int start, rows, stride, P;
  const double* H;   // stride x widths[0]
  const double* Xc;  // stride x P
  const double* y;   // the response, real
  const int* count;  // or whole
};

struct Network {
  int layers;         // the output layer included
  const int* widths;  // layers + 1
  int activation;
  const double* w;
};

struct Predictor {
  double eta_loc, eta_scale, sigma;
  const double* theta;
};

// The gradient is with respect to w, theta and sigma.
struct Result {
  double log_lik, d_sigma;
  std::vector<double> d_w, d_theta;
};

// ---- Elementary functions, accurate to 4 units in the last place.

#define SEMISTAN_BITS(T, v) (*reinterpret_cast<const T*>(&(v)))

SEMISTAN_INLINE void select(const Int& mask, const Vec& yes, const Vec& no, Vec& out) {
  const Int bits = (mask & SEMISTAN_BITS(Int, yes)) | (~mask & SEMISTAN_BITS(Int, no));
  out = SEMISTAN_BITS(Vec, bits);
}

// exp(x) = 2^n (1 + p): x = n log 2 + r, p = expm1(r) by its series.
SEMISTAN_INLINE void split_exp(const Vec& x, Vec& scale, Vec& p) {
  const Vec magic = Vec{} + 6755399441055744.0;
  const Vec shifted = x * 1.4426950408889634 + magic;
  const Vec n = shifted - magic;
  const Vec r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  const Int exponent = SEMISTAN_BITS(Int, shifted) - SEMISTAN_BITS(Int, magic);
  const Int bits = (exponent + 1023) << 52;
  scale = SEMISTAN_BITS(Vec, bits);
  Vec q = Vec{} + 1.0 / 6227020800.0;
  q = q * r + 1.0 / 479001600.0;
  q = q * r + 1.0 / 39916800.0;
  q = q * r + 1.0 / 3628800.0;
  q = q * r + 1.0 / 362880.0;
  q = q * r + 1.0 / 40320.0;
  q = q * r + 1.0 / 5040.0;
  q = q * r + 1.0 / 720.0;
  q = q * r + 1.0 / 120.0;
  q = q * r + 1.0 / 24.0;
  q = q * r + 1.0 / 6.0;
  q = q * r + 0.5;
  p = r + r * r * q;
}

SEMISTAN_INLINE void clamp(const Vec& x, double low, double high, Vec& out) {
  const Vec lows = Vec{} + low, highs = Vec{} + high;
  select(x < lows, lows, x, out);
  select(out > highs, highs, out, out);
}

SEMISTAN_INLINE void vexp(const Vec& x, Vec& out) {
  Vec inside, scale, p;
  clamp(x, -708.0, 710.0, inside);
  split_exp(inside, scale, p);
  out = scale * p + scale;
}

// expm1 for x in [-708, 0].
SEMISTAN_INLINE void vexpm1(const Vec& x, Vec& out) {
  Vec inside, scale, p;
  clamp(x, -708.0, 0.0, inside);
  split_exp(inside, scale, p);
  out = scale * p + (scale - 1.0);
}

SEMISTAN_INLINE void vabs(const Vec& x, Vec& out) {
  const Int bits = SEMISTAN_BITS(Int, x) & INT64_MAX;
  out = SEMISTAN_BITS(Vec, bits);
}

SEMISTAN_INLINE void vtanh(const Vec& x, Vec& out) {
  Vec size, decay;
  vabs(x, size);
  vexpm1(-2.0 * size, decay);
  const Vec positive = -decay / (decay + 2.0);
  const Int bits = SEMISTAN_BITS(Int, positive) | (SEMISTAN_BITS(Int, x) & INT64_MIN);
  out = SEMISTAN_BITS(Vec, bits);
}

SEMISTAN_INLINE void vsigmoid(const Vec& x, Vec& out) {
  Vec size, decay, top;
  vabs(x, size);
  vexp(-size, decay);
  select(x < 0.0, decay, Vec{} + 1.0, top);
  out = top / (1.0 + decay);
}

// log(1 + t) for t in [0, 1]: 2 atanh(t / (2 + t)) by its series.
SEMISTAN_INLINE void vlog1p(const Vec& t, Vec& out) {
  const Vec s = t / (2.0 + t), z = s * s;
  Vec q = Vec{} + 1.0 / 37.0;
  for (int odd = 35; odd >= 3; odd -= 2) q = q * z + 1.0 / odd;
  out = 2.0 * (s + s * z * q);
}

SEMISTAN_INLINE void vsoftplus(const Vec& x, Vec& out) {
  Vec size, decay, tail, positive;
  vabs(x, size);
  vexp(-size, decay);
  vlog1p(decay, tail);
  select(x > 0.0, x, Vec{}, positive);
  out = positive + tail;
}

SEMISTAN_INLINE void activate(int activation, double* values, int size) {
  for (int i = 0; i < size; i += LANES) {
    Vec& v = *reinterpret_cast<Vec*>(values + i);
    if (activation == TANH) vtanh(v, v);
    if (activation == RELU) select(v < 0.0, Vec{}, v, v);
    if (activation == SOFTPLUS) vsoftplus(v, v);
    if (activation == SIGMOID) vsigmoid(v, v);
  }
}

// Multiply by the activation's derivative, written in its value a.
SEMISTAN_INLINE void deactivate(int activation, const double* value, double* adjoint, int size) {
  for (int i = 0; i < size; i += LANES) {
    const Vec a = *reinterpret_cast<const Vec*>(value + i);
    Vec& v = *reinterpret_cast<Vec*>(adjoint + i);
    if (activation == TANH) v *= 1.0 - a * a;
    if (activation == RELU) select(a > 0.0, v, Vec{}, v);
    if (activation == SIGMOID) v *= a * (1.0 - a);
    if (activation == SOFTPLUS) {  // sigmoid(z) = 1 - exp(-softplus(z))
      Vec decay;
      vexpm1(-a, decay);
      v *= -decay;
    }
  }
}

// ---- Products of a layer; buffers hold units x B values, padded to whole tiles.

SEMISTAN_INLINE int padded(int units) { return (units + TILE - 1) / TILE * TILE; }

// out = bias + packed * in: the packed weights are tiles of TILE units, input by input.
SEMISTAN_INLINE void product(const double* packed, const double* bias, const double* in,
                             double* out, int inputs, int units, int B) {
  for (int u = 0; u < units; u += TILE, packed += TILE * inputs) {
    for (int r = 0; r < B; r += STEP) {
      Vec sums[TILE][2];
      for (int t = 0; t < TILE; ++t)
        sums[t][0] = sums[t][1] = Vec{} + (bias ? bias[u + t] : 0.0);
      for (int i = 0; i < inputs; ++i) {
        const Vec a = *reinterpret_cast<const Vec*>(in + i * B + r);
        const Vec b = *reinterpret_cast<const Vec*>(in + i * B + r + LANES);
        for (int t = 0; t < TILE; ++t) {
          const Vec weight = Vec{} + packed[i * TILE + t];
          sums[t][0] += weight * a;
          sums[t][1] += weight * b;
        }
      }
      for (int t = 0; t < TILE; ++t) {
        *reinterpret_cast<Vec*>(out + (u + t) * B + r) = sums[t][0];
        *reinterpret_cast<Vec*>(out + (u + t) * B + r + LANES) = sums[t][1];
      }
    }
  }
}

SEMISTAN_INLINE double total(const Vec& v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

// d_w[j, i] += sum over rows of adjoint[j] * in[i]; then the biases' sums.
SEMISTAN_INLINE void outer(const double* adjoint, const double* in, double* d_w, int m, int n,
                           int B) {
  for (int j = 0; j < n; j += TILE) {
    for (int i = 0; i < m; i += TILE) {
      Vec sums[TILE][TILE] = {};
      for (int r = 0; r < B; r += LANES) {
        Vec a[TILE];
        for (int s = 0; s < TILE; ++s)
          a[s] = *reinterpret_cast<const Vec*>(in + (i + s) * B + r);
        for (int t = 0; t < TILE; ++t) {
          const Vec d = *reinterpret_cast<const Vec*>(adjoint + (j + t) * B + r);
          for (int s = 0; s < TILE; ++s) sums[t][s] += d * a[s];
        }
      }
      for (int t = 0; t < std::min(TILE, n - j); ++t)
        for (int s = 0; s < std::min(TILE, m - i); ++s)
          d_w[(j + t) * m + i + s] += total(sums[t][s]);
    }
  }
  for (int j = 0; j < n; ++j) {
    Vec sum = {};
    for (int r = 0; r < B; r += LANES) sum += *reinterpret_cast<const Vec*>(adjoint + j * B + r);
    d_w[m * n + j] += total(sum);
  }
}

// ---- Families: log density of a block and its derivative with respect to eta.

inline double log_factorial(int count) {
  static const std::vector<double> table = [] {
    std::vector<double> values(4096);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::lgamma(i + 1.0);
    return values;
  }();
  return count < 4096 ? table[count] : std::lgamma(count + 1.0);
}

// Replaces eta by the residual d log_lik / d eta; rows past `rows` get none.
SEMISTAN_INLINE void density(int family, const Rows& data, int first, int rows, double sigma,
                             double* eta, Result& result) {
  const int index = data.start + first;
  Vec sum = {}, squares = {};
  double constant = 0;
  for (int r = 0; r < rows; r += LANES) {
    const int left = std::min(LANES, rows - r);
    Vec y = {}, inside = {};
    for (int i = 0; i < left; ++i) {
      inside[i] = 1.0;
      if (family == GAUSSIAN) {
        y[i] = data.y[index + r + i];
      } else {
        y[i] = data.count[index + r + i];
        if (family == POISSON) constant -= log_factorial(data.count[index + r + i]);
      }
    }
    Vec& e = *reinterpret_cast<Vec*>(eta + r);
    if (family == GAUSSIAN) {
      const Vec z = inside * ((y - e) / sigma);
      squares += z * z;
      e = z / sigma;
    } else if (family == POISSON) {
      Vec mu;
      vexp(e, mu);
      sum += inside * (y * e - mu);
      e = inside * (y - mu);
    } else {
      const Vec sign = 2.0 * y - 1.0;
      Vec loss, probability;
      vsoftplus(-sign * e, loss);
      vsigmoid(-sign * e, probability);
      sum -= inside * loss;
      e = inside * sign * probability;
    }
  }
  if (family == GAUSSIAN) {
    const double z2 = total(squares);
    result.log_lik -= 0.5 * z2 + rows * (std::log(sigma) + 0.91893853320467274178);
    result.d_sigma += (z2 - rows) / sigma;
  }
  result.log_lik += total(sum) + constant;
}

// ---- The pass.

struct Workspace {
  std::vector<double> values;  // reused by each thread
  double* take(std::size_t size) {
    double* piece = values.data() + used;
    used += size;
    return piece;
  }
  std::size_t used = 0;
};

struct Layer {
  int m, n;
  const double *weights, *bias;
  double *packed, *transposed, *padded_bias, *in, *d_w;
};

SEMISTAN_INLINE void pack(const Layer& layer) {
  for (int j = 0; j < padded(layer.n); ++j) {
    layer.padded_bias[j] = j < layer.n ? layer.bias[j] : 0.0;
    for (int i = 0; i < layer.m; ++i)
      layer.packed[(j / TILE * layer.m + i) * TILE + j % TILE]
          = j < layer.n ? layer.weights[j * layer.m + i] : 0.0;
  }
  for (int i = 0; i < padded(layer.m); ++i)
    for (int j = 0; j < layer.n; ++j)
      layer.transposed[(i / TILE * layer.n + j) * TILE + i % TILE]
          = i < layer.m ? layer.weights[j * layer.m + i] : 0.0;
}

// Forward, density and backward for rows first .. first + rows - 1 of the slice.
SEMISTAN_CLONES
static void block_pass(int family, const Rows& data, const Layer* layers, int n_layers,
                       int activation, const Predictor& predictor, int first, int rows, int B,
                       double* eta, double* adjoint, double* other, Result& result) {
  const int offset = data.start + first;
  for (int i = 0; i < layers[0].m; ++i) {
    const double* column = data.H + static_cast<std::size_t>(i) * data.stride + offset;
    std::copy(column, column + rows, layers[0].in + i * B);
    std::fill(layers[0].in + i * B + rows, layers[0].in + (i + 1) * B, 0.0);
  }
  for (int l = 0; l + 1 < n_layers; ++l) {
    const Layer& layer = layers[l];
    product(layer.packed, layer.padded_bias, layer.in, layers[l + 1].in, layer.m, layer.n, B);
    activate(activation, layers[l + 1].in, layer.n * B);
  }
  const Layer& last = layers[n_layers - 1];
  for (int r = 0; r < B; r += LANES) {
    Vec f = Vec{} + last.bias[0];
    for (int i = 0; i < last.m; ++i)
      f += last.weights[i] * *reinterpret_cast<const Vec*>(last.in + i * B + r);
    *reinterpret_cast<Vec*>(eta + r) = predictor.eta_loc + predictor.eta_scale * f;
  }
  for (int p = 0; p < data.P; ++p) {
    const double* column = data.Xc + static_cast<std::size_t>(p) * data.stride + offset;
    for (int r = 0; r < rows; ++r) eta[r] += predictor.theta[p] * column[r];
  }

  density(family, data, first, rows, predictor.sigma, eta, result);
  std::fill(eta + rows, eta + B, 0.0);

  for (int p = 0; p < data.P; ++p) {
    const double* column = data.Xc + static_cast<std::size_t>(p) * data.stride + offset;
    Vec sum = {};
    int r = 0;
    for (; r + LANES <= rows; r += LANES)
      sum += *reinterpret_cast<const Vec*>(eta + r) * *reinterpret_cast<const Vec*>(column + r);
    double rest = 0;
    for (; r < rows; ++r) rest += eta[r] * column[r];
    result.d_theta[p] += total(sum) + rest;
  }

  for (int r = 0; r < B; ++r) eta[r] *= predictor.eta_scale;
  for (int i = 0; i < last.m; ++i) {
    Vec sum = {};
    const Vec weight = Vec{} + last.weights[i];
    for (int r = 0; r < B; r += LANES) {
      const Vec e = *reinterpret_cast<const Vec*>(eta + r);
      sum += e * *reinterpret_cast<const Vec*>(last.in + i * B + r);
      *reinterpret_cast<Vec*>(adjoint + i * B + r) = weight * e;
    }
    last.d_w[i] += total(sum);
  }
  Vec sum = {};
  for (int r = 0; r < B; r += LANES) sum += *reinterpret_cast<const Vec*>(eta + r);
  last.d_w[last.m] += total(sum);
  for (int l = n_layers - 2; l >= 0; --l) {
    const Layer& layer = layers[l];
    deactivate(activation, layers[l + 1].in, adjoint, layer.n * B);
    outer(adjoint, layer.in, layer.d_w, layer.m, layer.n, B);
    if (l > 0) {
      product(layer.transposed, nullptr, adjoint, other, layer.n, layer.m, B);
      std::swap(adjoint, other);
    }
  }
}

// Value and gradient for the given rows and weights.
inline Result log_lik_pass(int family, const Rows& data, const Network& network,
                           const Predictor& predictor) {
  static thread_local Workspace workspace;
  int widest = TILE, units = 0;
  std::size_t weights = 0, packs = 0;
  for (int l = 0; l < network.layers; ++l) {
    const int m = network.widths[l], n = network.widths[l + 1];
    widest = std::max(widest, padded(std::max(m, n)));
    units += padded(m);
    weights += static_cast<std::size_t>(m + 1) * n;
    packs += static_cast<std::size_t>(padded(n)) * (m + 1) + static_cast<std::size_t>(padded(m)) * n;
  }
  const int fitting = CACHE / (8 * (units + 2 * widest));
  int B = std::max(2 * STEP, std::min(256, fitting / STEP * STEP));
  B = std::min(B, (data.rows + STEP - 1) / STEP * STEP);

  Result result{0, 0, std::vector<double>(weights), std::vector<double>(data.P)};
  workspace.values.resize(packs + static_cast<std::size_t>(units + 2 * widest + 1) * B);
  workspace.used = 0;
  std::vector<Layer> layers(network.layers);
  std::size_t position = 0;
  for (int l = 0; l < network.layers; ++l) {
    Layer& layer = layers[l];
    layer.m = network.widths[l];
    layer.n = network.widths[l + 1];
    layer.weights = network.w + position;
    layer.bias = layer.weights + layer.m * layer.n;
    layer.d_w = result.d_w.data() + position;
    position += (layer.m + 1) * layer.n;
    layer.packed = workspace.take(padded(layer.n) * layer.m);
    layer.transposed = workspace.take(padded(layer.m) * layer.n);
    layer.padded_bias = workspace.take(padded(layer.n));
    layer.in = workspace.take(padded(layer.m) * B);
    pack(layer);
  }
  double* eta = workspace.take(B);
  double* adjoint = workspace.take(widest * B);
  double* other = workspace.take(widest * B);
  for (int first = 0; first < data.rows; first += B) {
    const int rows = std::min(B, data.rows - first);
    block_pass(family, data, layers.data(), network.layers, network.activation, predictor, first,
               rows, (rows + STEP - 1) / STEP * STEP, eta, adjoint, other, result);
  }
  return result;
}

}  // namespace semistan

#endif
