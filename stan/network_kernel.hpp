// The log-likelihood of a network in a subspace, with its gradient, in one pass;
// or the network's outputs, and the gradient of a function of them.
//
//   eta = eta_loc + eta_scale * f(H; w) + Xc * theta + extra,   w = p_bar + Pi * phi
//
// Each row's log-likelihood may have a weight. Of a normal response, what eta is linear in, theta
// and weights of the output layer, may be integrated out: a first pass sums the products of its
// columns, and a second one goes back through the network with what their matrix says.
//
// Rows go through the network in blocks that stay in cache. Within a block the
// values of one unit for consecutive rows are contiguous, so that every loop
// runs over rows in vector registers. A block is passed forward, its density
// and residuals are computed, and it is passed backward at once: nothing of
// size N is kept, and the autodiff stack gets a single node.
//
// Vectors are those of GCC and Clang. On x86-64 the pass is compiled for three
// instruction sets, and the best that the processor has is taken. Compiles as
// C++14 and later.

#ifndef SEMISTAN_NETWORK_KERNEL_HPP
#define SEMISTAN_NETWORK_KERNEL_HPP

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define SEMISTAN_INLINE static inline __attribute__((always_inline))

namespace semistan {

typedef double Vec __attribute__((vector_size(64), aligned(8), may_alias));
typedef std::int64_t Int __attribute__((vector_size(64), aligned(8), may_alias));

constexpr int LANES = 8;           // doubles in a Vec
constexpr int STEP = 2 * LANES;    // rows of a register tile
constexpr int SIDE = 4;            // units on either side of a tile of derivatives
constexpr int PAD = 8;             // units are padded to a multiple of this
constexpr int CACHE = 128 * 1024;  // bytes that a block may take

enum Activation { TANH = 1, RELU = 2, SOFTPLUS = 3, SIGMOID = 4, IDENTITY = 5 };
enum Family { GAUSSIAN, POISSON, BERNOULLI, BINOMIAL };

// Rows start .. start + rows - 1 of column-major matrices with `stride` rows.
struct Rows {
  int start, rows, stride, P;
  const double* H;                  // stride x widths[0]
  const double* Xc;                 // stride x P
  const double* y;                  // the response, real
  const int* count;                 // or whole
  const int* trials = nullptr;      // of a binomial response
  const double* weights = nullptr;  // 1 each if there are none
  const double* extra = nullptr;    // of these rows only; 0 if there is none
  const double* adjoint = nullptr;  // derivative by f, of these rows only: rows x outputs
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

// The gradient is with respect to w, theta, sigma and extra. `products` are sums over the rows,
// with their weights, of the products of each two columns of what is linear, with the residual y -
// eta behind them, and `squares` those of the residual at its mean given y.
struct Result {
  double log_lik, d_sigma;
  std::vector<double> d_w, d_theta, d_extra, output;
  std::vector<double> products;
  double mass, squares;
};

// What eta is linear in: weights of some inputs of the output layer, of which the last is the
// bias's, and then theta or not. For the second pass: its mean given y, and the first rows of its
// covariance, padded, as if eta_scale were 1.
struct Linear {
  std::vector<int> inputs;
  int columns;
  std::vector<double> mean, covariance;
  double precision;  // 1 / sigma^2
};

// What a pass computes: log-likelihood and gradient of a network with one output, f, or the
// gradient of a function of f; or the products of what is linear, and with these the gradient of
// the log-likelihood with that integrated out.
enum Task { LOG_LIK, OUTPUT, PULL_BACK, PRODUCTS, INTEGRAL };

// ---- Elementary functions, accurate to 4 units in the last place.

#define SEMISTAN_BITS(T, v) (*reinterpret_cast<const T*>(&(v)))

// The subtraction folds away, as the addition of zero, which turns -0 into 0, does not.
SEMISTAN_INLINE Vec broadcast(double x) { return x - Vec{}; }

// exp(x) = 2^n (1 + p): x = n log 2 + r, p = expm1(r) = r + r^2 q(r). q is the
// polynomial that interpolates at Chebyshev's nodes of |r| <= log(2) / 2. Adding
// 1.5 * 2^52 + 1023 rounds x / log 2 to n and leaves n + 1023, the exponent's
// bits, in the lowest places.
SEMISTAN_INLINE void split_exp(const Vec& x, Vec& scale, Vec& p) {
  const Vec magic = broadcast(6755399441056767.0);
  const Vec shifted = x * 1.4426950408889634 + magic;
  const Vec n = shifted - magic;
  const Vec r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  const Int bits = SEMISTAN_BITS(Int, shifted) << 52;
  scale = SEMISTAN_BITS(Vec, bits);
  // Few steps depend on one another, so that they overlap.
  const Vec r2 = r * r, r4 = r2 * r2;
  const Vec low = (r * 0.16666666666666669 + 0.5000000000000001)
                  + (r * 0.008333333333330062 + 0.04166666666662413) * r2;
  const Vec middle = (r * 0.00019841269863053618 + 0.0013888888917213717)
                     + (r * 2.7557268459997064e-06 + 2.4801521295954376e-05) * r2;
  const Vec high = r * 2.510038549551032e-08 + 2.7620088445409746e-07;
  p = r2 * ((high * r4 + middle) * r4 + low) + r;
}

SEMISTAN_INLINE void vexp(const Vec& x, Vec& out) {
  const Vec low = broadcast(-708.0), high = broadcast(709.7);
  const Vec above = low > x ? low : x;
  const Vec inside = high < above ? high : above;
  Vec scale, p;
  split_exp(inside, scale, p);
  out = scale * p + scale;
  out = x > high ? broadcast(INFINITY) : out;
}

// exp of a number that is not positive.
SEMISTAN_INLINE void vdecay(const Vec& x, Vec& out) {
  const Vec low = broadcast(-708.0);
  Vec scale, p;
  split_exp(low > x ? low : x, scale, p);
  out = scale * p + scale;
}

// expm1 of a number that is not positive.
SEMISTAN_INLINE void vexpm1(const Vec& x, Vec& out) {
  const Vec low = broadcast(-40.0);
  Vec scale, p;
  split_exp(low > x ? low : x, scale, p);
  out = scale * p + (scale - 1.0);
}

SEMISTAN_INLINE void negative_size(const Vec& x, Vec& out) {
  const Int bits = SEMISTAN_BITS(Int, x) | INT64_MIN;
  out = SEMISTAN_BITS(Vec, bits);
}

// tanh(|x|) = -d / (d + 2), d = expm1(-2 |x|).
SEMISTAN_INLINE void vtanh(const Vec& x, Vec& out) {
  Vec size, d;
  negative_size(x, size);
  vexpm1(2.0 * size, d);
  const Vec negative = d / (d + 2.0);
  const Int bits = (SEMISTAN_BITS(Int, negative) & INT64_MAX)
                   | (SEMISTAN_BITS(Int, x) & INT64_MIN);
  out = SEMISTAN_BITS(Vec, bits);
}

SEMISTAN_INLINE void vsigmoid(const Vec& x, Vec& out) {
  Vec size, decay;
  negative_size(x, size);
  vdecay(size, decay);
  out = (x < 0.0 ? decay : broadcast(1.0)) / (1.0 + decay);
}

// log(1 + t) for t in [0, 1]: 2 atanh(s), s = t / (2 + t), by interpolation of
// (atanh(s) / s - 1) / s^2 as a polynomial in s^2 at Chebyshev's nodes.
SEMISTAN_INLINE void vlog1p(const Vec& t, Vec& out) {
  const Vec s = t / (2.0 + t), z = s * s;
  Vec q = broadcast(0.08082022805971766);
  q = q * z + 0.04400369243072337;
  q = q * z + 0.06000536404795356;
  q = q * z + 0.06657072104827468;
  q = q * z + 0.07692785032479312;
  q = q * z + 0.09090894718066429;
  q = q * z + 0.11111111358713932;
  q = q * z + 0.1428571428355438;
  q = q * z + 0.20000000000007292;
  q = q * z + 0.3333333333333333;
  out = 2.0 * (s + s * z * q);
}

SEMISTAN_INLINE void vsoftplus(const Vec& x, Vec& out) {
  Vec size, decay, tail;
  negative_size(x, size);
  vdecay(size, decay);
  vlog1p(decay, tail);
  out = (x > 0.0 ? x : Vec{}) + tail;
}

SEMISTAN_INLINE Vec load(const double* from) { return *reinterpret_cast<const Vec*>(from); }
SEMISTAN_INLINE Vec& at(double* place) { return *reinterpret_cast<Vec*>(place); }

SEMISTAN_INLINE void activate(int activation, double* values, int size) {
  switch (activation) {
    case TANH:
      for (int i = 0; i < size; i += LANES) vtanh(at(values + i), at(values + i));
      break;
    case RELU:
      for (int i = 0; i < size; i += LANES)
        at(values + i) = load(values + i) < 0.0 ? Vec{} : load(values + i);
      break;
    case SOFTPLUS:
      for (int i = 0; i < size; i += LANES) vsoftplus(at(values + i), at(values + i));
      break;
    case SIGMOID:
      for (int i = 0; i < size; i += LANES) vsigmoid(at(values + i), at(values + i));
      break;
  }
}

// Multiply by the activation's derivative, written in its value a.
SEMISTAN_INLINE void deactivate(int activation, const double* value, double* adjoint, int size) {
  switch (activation) {
    case TANH:
      for (int i = 0; i < size; i += LANES)
        at(adjoint + i) *= 1.0 - load(value + i) * load(value + i);
      break;
    case RELU:
      for (int i = 0; i < size; i += LANES)
        at(adjoint + i) = load(value + i) > 0.0 ? load(adjoint + i) : Vec{};
      break;
    case SOFTPLUS:  // sigmoid(z) = 1 - exp(-softplus(z))
      for (int i = 0; i < size; i += LANES) {
        Vec rest;
        vexpm1(-load(value + i), rest);
        at(adjoint + i) *= -rest;
      }
      break;
    case SIGMOID:
      for (int i = 0; i < size; i += LANES)
        at(adjoint + i) *= load(value + i) * (1.0 - load(value + i));
      break;
  }
}

// ---- Products of a layer. A buffer holds units x rows, `stride` doubles apart; what
// lies in the units that pad it is never used.

SEMISTAN_INLINE int padded(int units) { return (units + PAD - 1) / PAD * PAD; }

// out = bias + weights * in, in tiles of TILE units; the weights' rows are padded.
template <int TILE>
SEMISTAN_INLINE void product(const double* matrix, const double* bias, const double* in,
                             double* out, int inputs, int units, int rows, int stride) {
  for (int r = 0; r < rows; r += STEP) {
    const double* weights = matrix;
    for (int u = 0; u < units; u += TILE, weights += TILE * inputs) {
      Vec sums[TILE][2];
      for (int t = 0; t < TILE; ++t)
        sums[t][0] = sums[t][1] = broadcast(bias ? bias[u + t] : 0.0);
      for (int i = 0; i < inputs; ++i) {
        const Vec a = load(in + i * stride + r), b = load(in + i * stride + r + LANES);
        for (int t = 0; t < TILE; ++t) {
          const double weight = weights[t * inputs + i];
          sums[t][0] += weight * a;
          sums[t][1] += weight * b;
        }
      }
      for (int t = 0; t < TILE; ++t) {
        at(out + (u + t) * stride + r) = sums[t][0];
        at(out + (u + t) * stride + r + LANES) = sums[t][1];
      }
    }
  }
}

#if defined(__clang__)
#define SEMISTAN_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SEMISTAN_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Int{__VA_ARGS__})
#endif

SEMISTAN_INLINE double total(const Vec& v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

// The totals of eight vectors, in one vector.
SEMISTAN_INLINE void totals(const Vec* v, Vec& out) {
  Vec pairs[4], fours[2];
  for (int i = 0; i < 4; ++i)
    pairs[i] = SEMISTAN_SHUFFLE(v[2 * i], v[2 * i + 1], 0, 8, 2, 10, 4, 12, 6, 14)
               + SEMISTAN_SHUFFLE(v[2 * i], v[2 * i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  for (int i = 0; i < 2; ++i)
    fours[i] = SEMISTAN_SHUFFLE(pairs[2 * i], pairs[2 * i + 1], 0, 1, 8, 9, 4, 5, 12, 13)
               + SEMISTAN_SHUFFLE(pairs[2 * i], pairs[2 * i + 1], 2, 3, 10, 11, 6, 7, 14, 15);
  out = SEMISTAN_SHUFFLE(fours[0], fours[1], 0, 1, 2, 3, 8, 9, 10, 11)
        + SEMISTAN_SHUFFLE(fours[0], fours[1], 4, 5, 6, 7, 12, 13, 14, 15);
}

// d_weights += sum over rows of adjoint[j] * in[i], in tiles of SIDE x SIDE;
// d_bias += sum over rows of adjoint[j].
SEMISTAN_INLINE void outer(const double* adjoint, const double* in, double* d_weights,
                           double* d_bias, int inputs, int units, int rows, int stride) {
  for (int j = 0; j < units; j += SIDE) {
    for (int i = 0; i < inputs; i += SIDE, d_weights += SIDE * SIDE) {
      Vec sums[SIDE * SIDE] = {};
      for (int r = 0; r < rows; r += LANES) {
        Vec a[SIDE];
        for (int s = 0; s < SIDE; ++s) a[s] = load(in + (i + s) * stride + r);
        for (int t = 0; t < SIDE; ++t) {
          const Vec d = load(adjoint + (j + t) * stride + r);
          for (int s = 0; s < SIDE; ++s) sums[SIDE * t + s] += d * a[s];
        }
      }
      for (int t = 0; t < SIDE * SIDE; t += LANES) {
        Vec sum;
        totals(sums + t, sum);
        at(d_weights + t) += sum;
      }
    }
  }
  for (int j = 0; j < units; j += LANES) {
    Vec sums[LANES] = {}, sum;
    for (int r = 0; r < rows; r += LANES)
      for (int t = 0; t < LANES; ++t) sums[t] += load(adjoint + (j + t) * stride + r);
    totals(sums, sum);
    at(d_bias + j) += sum;
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

// y and n - y times the log probabilities of success and failure, and the derivative. Neither
// loses digits where the other probability is 1.
SEMISTAN_INLINE void binomial(const Vec& y, const Vec& n, const Vec& eta, Vec& out, Vec& slope) {
  const Vec one = broadcast(1.0), failures = n - y;
  Vec size, decay, tail;
  negative_size(eta, size);
  vdecay(size, decay);
  vlog1p(decay, tail);
  const Vec success = (eta < 0.0 ? decay : one) / (1.0 + decay);
  const Vec failure = (eta < 0.0 ? one : decay) / (1.0 + decay);
  out = (eta < 0.0 ? y * eta : -failures * eta) - n * tail;
  slope = y * failure - failures * success;
}

// Replaces eta by the residual d log_lik / d eta.
SEMISTAN_INLINE void density(int family, const Block& block, int rows, double sigma,
                             Result& result) {
  const Vec zero = {};
  const double precision = 1.0 / sigma;
  Vec sum = {}, squares = {}, mass = {};
  for (int r = 0; r < rows; r += LANES) {
    const Vec y = load(block.response + r), e = load(block.eta + r);
    const Vec weight = load(block.weight + r);
    mass += weight;
    if (family == GAUSSIAN) {
      const Vec z = (y - e) * precision, weighted = weight * z;
      squares += weighted * z;
      at(block.eta + r) = weighted * precision;
    } else if (family == POISSON) {
      Vec mu;
      vexp(e, mu);
      sum += weight > 0.0 ? weight * (y * e - mu) : zero;
      at(block.eta + r) = weight > 0.0 ? weight * (y - mu) : zero;
    } else if (family == BERNOULLI) {
      const Vec sign = 2.0 * y - 1.0;
      Vec loss, probability;
      vsoftplus(-sign * e, loss);
      vsigmoid(-sign * e, probability);
      sum -= weight * loss;
      at(block.eta + r) = weight * sign * probability;
    } else {
      Vec value, slope;
      binomial(y, load(block.trials + r), e, value, slope);
      sum += weight * value;
      at(block.eta + r) = weight * slope;
    }
  }
  result.log_lik += total(sum);
  if (family == GAUSSIAN) {
    const double z2 = total(squares), m = total(mass);
    result.log_lik -= 0.5 * z2 + m * (std::log(sigma) + 0.91893853320467274178);
    result.d_sigma += (z2 - m) * precision;
  } else if (family == POISSON || family == BINOMIAL) {
    for (int r = 0; r < rows; ++r)
      result.log_lik += block.weight[r] * log_constant(block.response[r], block.trials[r], family);
  }
}

// ---- The pass.

// Memory of one thread, used again by each pass. Pieces start at whole cache
// lines, because a load across two of them costs two.
struct Workspace {
  std::vector<double> values;
  double* next = nullptr;
  void clear(std::size_t size) {
    values.assign(size + LANES, 0.0);
    const std::size_t line = sizeof(Vec);
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

// Everything that the blocks of a pass share; buffers for one block.
struct Pass {
  int family, activation, stride;
  Rows data;
  Predictor predictor;
  std::vector<Layer> layers;
  double *response, *trials, *weight, *eta, *adjoint, *other;
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

// eta of rows first .. first + rows - 1 of the slice; R is rows in whole STEPs.
template <int TILE>
SEMISTAN_INLINE void forward(const Pass& pass, int first, int rows, int R) {
  const Rows& data = pass.data;
  const int offset = data.start + first;
  const std::vector<Layer>& layers = pass.layers;
  for (int i = 0; i < layers[0].m; ++i) {
    const double* column = data.H + static_cast<std::size_t>(i) * data.stride + offset;
    double* in = layers[0].in + i * pass.stride;
    std::copy(column, column + rows, in);
    std::fill(in + rows, in + R, 0.0);
  }
  for (std::size_t l = 0; l + 1 < layers.size(); ++l) {
    const Layer& layer = layers[l];
    double* out = layers[l + 1].in;
    product<TILE>(layer.padded, layer.padded_bias, layer.in, out, layer.m, layer.n, R,
                  pass.stride);
    for (int u = 0; u < layer.n; ++u) activate(pass.activation, out + u * pass.stride, R);
  }
  const Layer& last = layers.back();
  const Predictor& predictor = pass.predictor;
  for (int j = 0; j < last.n; ++j) {
    const double* weights = last.weights + j * last.m;
    for (int r = 0; r < R; r += LANES) {
      Vec f = broadcast(last.bias[j]);
      for (int i = 0; i < last.m; ++i) f += weights[i] * load(last.in + i * pass.stride + r);
      at(pass.eta + j * pass.stride + r) = predictor.eta_loc + predictor.eta_scale * f;
    }
  }
  for (int p = 0; p < data.P; ++p) {
    const double* column = data.Xc + static_cast<std::size_t>(p) * data.stride + offset;
    for (int r = 0; r < rows; ++r) pass.eta[r] += predictor.theta[p] * column[r];
  }
  if (data.extra)
    for (int r = 0; r < rows; ++r) pass.eta[r] += data.extra[first + r];
}

// Copies what is known of a block's rows; past the last one, the weights are 0.
SEMISTAN_INLINE void known_of_block(const Pass& pass, int first, int rows, int R) {
  const Rows& data = pass.data;
  const int offset = data.start + first;
  if (pass.family == GAUSSIAN) {
    std::copy(data.y + offset, data.y + offset + rows, pass.response);
  } else {
    std::copy(data.count + offset, data.count + offset + rows, pass.response);
  }
  if (pass.family == BINOMIAL)
    std::copy(data.trials + offset, data.trials + offset + rows, pass.trials);
  if (data.weights) {
    std::copy(data.weights + offset, data.weights + offset + rows, pass.weight);
  } else {
    std::fill(pass.weight, pass.weight + rows, 1.0);
  }
  std::fill(pass.response + rows, pass.response + R, 0.0);
  std::fill(pass.trials + rows, pass.trials + R, 0.0);
  std::fill(pass.weight + rows, pass.weight + R, 0.0);
}

SEMISTAN_INLINE void block_density(const Pass& pass, int first, int rows, int R, Result& result) {
  const Rows& data = pass.data;
  known_of_block(pass, first, rows, R);
  const Block block{pass.response, pass.trials, pass.weight, pass.eta};
  density(pass.family, block, rows, pass.predictor.sigma, result);
  std::fill(pass.eta + rows, pass.eta + R, 0.0);
  if (data.extra) std::copy(pass.eta, pass.eta + rows, result.d_extra.begin() + first);
}

// From eta, which holds the derivative by eta, to theta, to the output layer and to its inputs.
SEMISTAN_INLINE void backward_output(const Pass& pass, int first, int rows, int R,
                                     Result& result) {
  const int offset = pass.data.start + first, stride = pass.stride;
  for (int p = 0; p < pass.data.P; ++p) {
    const double* column = pass.data.Xc + static_cast<std::size_t>(p) * pass.data.stride + offset;
    Vec sum = {};
    int r = 0;
    for (; r + LANES <= rows; r += LANES) sum += load(pass.eta + r) * load(column + r);
    double rest = 0;
    for (; r < rows; ++r) rest += pass.eta[r] * column[r];
    result.d_theta[p] += total(sum) + rest;
  }

  const Layer& last = pass.layers.back();
  for (int j = 0; j < last.n; ++j) {
    double* eta = pass.eta + j * stride;
    Vec level = {};
    for (int r = 0; r < R; r += LANES) {
      at(eta + r) *= pass.predictor.eta_scale;
      level += load(eta + r);
    }
    last.d_bias[j] += total(level);
    for (int i = 0; i < last.m; ++i) {
      const double weight = last.weights[j * last.m + i];
      double* adjoint = pass.adjoint + i * stride;
      Vec sum = {};
      for (int r = 0; r < R; r += LANES) {
        const Vec e = load(eta + r);
        sum += e * load(last.in + i * stride + r);
        at(adjoint + r) = j ? load(adjoint + r) + weight * e : weight * e;
      }
      last.d_packed[packed(last, j, i)] += total(sum);
    }
  }
}

// From the inputs of the output layer to all layers before.
template <int TILE>
SEMISTAN_INLINE void backward_hidden(const Pass& pass, int R) {
  const int stride = pass.stride;
  double *adjoint = pass.adjoint, *other = pass.other;
  for (std::size_t l = pass.layers.size() - 1; l-- > 0;) {
    const Layer& layer = pass.layers[l];
    for (int u = 0; u < layer.n; ++u)
      deactivate(pass.activation, pass.layers[l + 1].in + u * stride, adjoint + u * stride, R);
    outer(adjoint, layer.in, layer.d_packed, layer.d_bias, layer.m, layer.n, R, stride);
    if (l > 0) {
      product<TILE>(layer.transposed, nullptr, adjoint, other, layer.n, layer.m, R, stride);
      std::swap(adjoint, other);
    }
  }
}

template <int TILE>
SEMISTAN_INLINE void backward(const Pass& pass, int first, int rows, int R, Result& result) {
  backward_output(pass, first, rows, R, result);
  backward_hidden<TILE>(pass, R);
}

// ---- What eta is linear in, integrated out.

// Copies the columns of what is linear, and the residual behind them.
SEMISTAN_INLINE void linear_columns(const Pass& pass, int first, int rows, int R) {
  const Layer& last = pass.layers.back();
  const int offset = pass.data.start + first, stride = pass.stride;
  const int of_phi = static_cast<int>(pass.linear->inputs.size()), M = pass.linear->columns;
  double* column = pass.columns;
  for (int j = 0; j < of_phi; ++j, column += stride) {
    const int input = pass.linear->inputs[j];
    if (input == last.m) {
      std::fill(column, column + R, 1.0);
    } else {
      std::copy(last.in + input * stride, last.in + input * stride + R, column);
    }
  }
  for (int p = 0; p < M - of_phi; ++p, column += stride) {
    const double* from = pass.data.Xc + static_cast<std::size_t>(p) * pass.data.stride + offset;
    std::copy(from, from + rows, column);
    std::fill(column + rows, column + R, 0.0);
  }
  for (int r = 0; r < R; r += LANES)
    at(column + r) = load(pass.response + r) - load(pass.eta + r);
}

// products += sum over rows of weight * column[i] * column[j] for i <= j, in tiles of SIDE x SIDE.
SEMISTAN_INLINE void add_products(const Pass& pass, int R, Result& result) {
  const int stride = pass.stride, all = pass.linear->columns + 1;
  const int size = (all + SIDE - 1) / SIDE * SIDE;
  for (int r = 0; r < R; r += LANES) result.mass += total(load(pass.weight + r));
  for (int j = 0; j < size; j += SIDE) {
    for (int t = 0; t < SIDE; ++t)
      for (int r = 0; r < R; r += LANES)
        at(pass.moved + t * stride + r)
            = load(pass.weight + r) * load(pass.columns + (j + t) * stride + r);
    for (int i = 0; i <= j; i += SIDE) {
      Vec sums[SIDE * SIDE] = {};
      for (int r = 0; r < R; r += LANES) {
        Vec a[SIDE];
        for (int s = 0; s < SIDE; ++s) a[s] = load(pass.columns + (i + s) * stride + r);
        for (int t = 0; t < SIDE; ++t) {
          const Vec b = load(pass.moved + t * stride + r);
          for (int s = 0; s < SIDE; ++s) sums[SIDE * t + s] += b * a[s];
        }
      }
      for (int t = 0; t < SIDE; ++t)
        for (int s = 0; s < SIDE; ++s)
          result.products[(j + t) * size + i + s] += total(sums[SIDE * t + s]);
    }
  }
}

// With the residual e = y - eta at the mean m of what is linear, C its covariance and v the rows'
// weights, the derivatives of the log-likelihood by eta and by the columns A are
//
//   v e / sigma^2,   v (e m' - A C) / sigma^2.
template <int TILE>
SEMISTAN_INLINE void pull_integral(const Pass& pass, int first, int rows, int R, Result& result) {
  const Linear& linear = *pass.linear;
  const int stride = pass.stride, M = linear.columns;
  const int of_phi = static_cast<int>(linear.inputs.size());
  double* residual = pass.columns + M * stride;
  Vec squares = {};
  for (int r = 0; r < R; r += LANES) {
    Vec e = load(residual + r);
    for (int j = 0; j < M; ++j) e -= linear.mean[j] * load(pass.columns + j * stride + r);
    at(residual + r) = e;
    const Vec weighted = load(pass.weight + r) * e;
    squares += weighted * e;
    at(pass.eta + r) = weighted * linear.precision;
  }
  result.squares += total(squares);
  if (pass.data.extra) std::copy(pass.eta, pass.eta + rows, result.d_extra.begin() + first);
  backward_output(pass, first, rows, R, result);
  const Layer& last = pass.layers.back();
  if (of_phi)
    product<TILE>(linear.covariance.data(), nullptr, pass.columns, pass.moved, M, of_phi, R,
                  stride);
  for (int j = 0; j < of_phi; ++j) {
    if (linear.inputs[j] == last.m) continue;
    double* adjoint = pass.adjoint + linear.inputs[j] * stride;
    for (int r = 0; r < R; r += LANES) {
      const Vec slope = linear.mean[j] * load(residual + r) - load(pass.moved + j * stride + r);
      at(adjoint + r) += load(pass.weight + r) * linear.precision * slope;
    }
  }
  backward_hidden<TILE>(pass, R);
}

// The pass with the buffers of one block, where each block's are kept.
inline Pass of_block(const Pass& pass, int block) {
  Pass own = pass;
  for (Layer& layer : own.layers)
    layer.in += static_cast<std::size_t>(block) * padded(layer.m) * pass.stride;
  own.eta += block * pass.stride;
  return own;
}

template <int TILE>
SEMISTAN_INLINE void linear_block(const Pass& pass, Task task, int first, int rows, int R,
                                  Result& result) {
  if (task == PRODUCTS || !pass.kept) forward<TILE>(pass, first, rows, R);
  known_of_block(pass, first, rows, R);
  linear_columns(pass, first, rows, R);
  if (task == PRODUCTS) {
    add_products(pass, R, result);
  } else {
    pull_integral<TILE>(pass, first, rows, R, result);
  }
}

inline int block_rows(const Network& network, int rows) {
  int widest = 0, units = 0;
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
inline Pass make_pass(int family, const Rows& data, const Network& network,
                      const Predictor& predictor, Workspace& workspace,
                      const Linear* linear = nullptr) {
  const int rows = block_rows(network, data.rows);
  Pass pass{family, network.activation, rows + LANES, data, predictor, {}, 0, 0, 0, 0, 0, 0};
  int widest = PAD;
  std::size_t size = 0, inputs = 0;
  for (int l = 0; l < network.layers; ++l) {
    const std::size_t m = padded(network.widths[l]), n = padded(network.widths[l + 1]);
    widest = std::max(widest, padded(network.widths[l]));
    size += 3 * m * n + 2 * n;
    inputs += m * pass.stride;
  }
  const std::size_t blocks = (data.rows + rows - 1) / rows;
  pass.linear = linear;
  pass.kept = linear && blocks * (inputs + pass.stride) <= KEPT;
  const std::size_t times = pass.kept ? blocks : 1;
  const std::size_t columns = linear ? padded(linear->columns + 1) : 0;
  const std::size_t outputs = network.widths[network.layers];
  workspace.clear(size + times * (inputs + outputs * pass.stride)
                  + (2 * widest + 3 + 2 * columns) * pass.stride);
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
    pass.layers.push_back(layer);
  }
  pass.response = workspace.take(pass.stride);
  pass.trials = workspace.take(pass.stride);
  pass.weight = workspace.take(pass.stride);
  pass.eta = workspace.take(times * outputs * pass.stride);
  pass.adjoint = workspace.take(widest * pass.stride);
  pass.other = workspace.take(widest * pass.stride);
  pass.columns = workspace.take(columns * pass.stride);
  pass.moved = workspace.take(columns * pass.stride);
  return pass;
}

template <int TILE>
SEMISTAN_INLINE void run_blocks(const Pass& pass, Task task, Result& result) {
  const int most = pass.stride - LANES;
  for (const Layer& layer : pass.layers) pack(layer);
  for (int first = 0; first < pass.data.rows; first += most) {
    const int rows = std::min(most, pass.data.rows - first);
    const int R = (rows + STEP - 1) / STEP * STEP;
    if (task == PRODUCTS || task == INTEGRAL) {
      const Pass own = pass.kept ? of_block(pass, first / most) : pass;
      linear_block<TILE>(own, task, first, rows, R, result);
      continue;
    }
    forward<TILE>(pass, first, rows, R);
    const int outputs = pass.layers.back().n, all = pass.data.rows;
    if (task == OUTPUT) {
      for (int j = 0; j < outputs; ++j) {
        const double* eta = pass.eta + j * pass.stride;
        std::copy(eta, eta + rows, result.output.begin() + j * static_cast<std::size_t>(all) + first);
      }
      continue;
    }
    if (task == LOG_LIK) {
      block_density(pass, first, rows, R, result);
    } else {
      for (int j = 0; j < outputs; ++j) {
        const double* adjoint = pass.data.adjoint + j * static_cast<std::size_t>(all) + first;
        double* eta = pass.eta + j * pass.stride;
        std::copy(adjoint, adjoint + rows, eta);
        std::fill(eta + rows, eta + R, 0.0);
      }
    }
    backward<TILE>(pass, first, rows, R, result);
  }
}

// Tiles fill the registers: 16 of 32 with AVX-512, 8 of 16 with less.
#if defined(__x86_64__) && !defined(SEMISTAN_PORTABLE)
__attribute__((target("avx512f,avx512dq,avx512vl,fma"))) inline void run_avx512(
    const Pass& pass, Task task, Result& result) {
  run_blocks<8>(pass, task, result);
}
__attribute__((target("avx2,fma"))) inline void run_avx2(const Pass& pass, Task task,
                                                         Result& result) {
  run_blocks<2>(pass, task, result);
}
#endif

inline void run(const Pass& pass, Task task, Result& result) {
#if defined(__x86_64__) && !defined(SEMISTAN_PORTABLE)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")
      && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma"))
    return run_avx512(pass, task, result);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return run_avx2(pass, task, result);
#endif
  run_blocks<2>(pass, task, result);
}

// The derivatives by the weights, layer by layer.
inline std::vector<double> unpacked(const Pass& pass) {
  std::vector<double> d_w;
  for (const Layer& layer : pass.layers) {
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
inline Result log_lik_pass(int family, const Rows& data, const Network& network,
                           const Predictor& predictor) {
  const Pass pass = make_pass(family, data, network, predictor, own_workspace());
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
  run(make_pass(GAUSSIAN, data, network, JUST_F, own_workspace()), OUTPUT, result);
  return result.output;
}

// The derivatives by the weights of a function whose derivatives by f are data.adjoint.
inline std::vector<double> pull_back_pass(const Rows& data, const Network& network) {
  const Pass pass = make_pass(GAUSSIAN, data, network, JUST_F, own_workspace());
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

inline void products_pass(Slice& slice, const Rows& data, const Network& network,
                          const Predictor& predictor, const Linear& linear) {
  slice.pass = make_pass(GAUSSIAN, data, network, predictor, slice.workspace, &linear);
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
