// What the kernel computes in vectors of SEMISTAN_LANES numbers. network_kernel.hpp includes this
// once for each width, in a namespace of its own. Vectors are those of GCC and Clang.

typedef double Vec __attribute__((vector_size(8 * SEMISTAN_LANES), aligned(8), may_alias));
typedef std::int64_t Int __attribute__((vector_size(8 * SEMISTAN_LANES), aligned(8), may_alias));

constexpr int LANES = SEMISTAN_LANES;  // numbers in a Vec

// ---- Elementary functions, accurate to 4 units in the last place.

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

#include "activations.hpp"

// ---- Products of a layer. A buffer holds units x rows, `stride` doubles apart; what
// lies in the units that pad it is never used.

// out = bias + weights * in, in tiles of TILE units; the weights' rows are padded.
template <int TILE>
SEMISTAN_INLINE void product(const double* matrix, const double* bias, const double* in,
                             double* out, int inputs, int units, int rows, int stride) {
  for (int r = 0; r < rows; r += 2 * LANES) {
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

#if SEMISTAN_LANES == 8
SEMISTAN_INLINE double total(const Vec& v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

// The totals of as many vectors as each has numbers, in one vector.
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
#elif SEMISTAN_LANES == 4
SEMISTAN_INLINE double total(const Vec& v) { return (v[0] + v[2]) + (v[1] + v[3]); }

SEMISTAN_INLINE void totals(const Vec* v, Vec& out) {
  Vec pairs[2];
  for (int i = 0; i < 2; ++i)
    pairs[i] = SEMISTAN_SHUFFLE(v[2 * i], v[2 * i + 1], 0, 4, 2, 6)
               + SEMISTAN_SHUFFLE(v[2 * i], v[2 * i + 1], 1, 5, 3, 7);
  out = SEMISTAN_SHUFFLE(pairs[0], pairs[1], 0, 1, 4, 5)
        + SEMISTAN_SHUFFLE(pairs[0], pairs[1], 2, 3, 6, 7);
}
#else
SEMISTAN_INLINE double total(const Vec& v) { return v[0] + v[1]; }

SEMISTAN_INLINE void totals(const Vec* v, Vec& out) {
  out = SEMISTAN_SHUFFLE(v[0], v[1], 0, 2) + SEMISTAN_SHUFFLE(v[0], v[1], 1, 3);
}
#endif

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

// The units of a network for rows first .. first + rows - 1 of the slice, up to the inputs of its
// output layer; R is rows in whole STEPs.
template <int TILE>
SEMISTAN_INLINE void hidden_layers(const Pass& pass, const Stack& network, int first, int rows,
                                   int R) {
  const Rows& data = pass.data;
  const std::vector<Layer>& layers = network.layers;
  for (int i = 0; i < layers[0].m; ++i) {
    const std::size_t at = static_cast<std::size_t>(network.column + i) * data.stride;
    const double* column = data.H + at + data.start + first;
    double* in = layers[0].in + i * pass.stride;
    std::copy(column, column + rows, in);
    std::fill(in + rows, in + R, 0.0);
  }
  for (std::size_t l = 0; l + 1 < layers.size(); ++l) {
    const Layer& layer = layers[l];
    double* out = layers[l + 1].in;
    product<TILE>(layer.padded, layer.padded_bias, layer.in, out, layer.m, layer.n, R,
                  pass.stride);
    for (int u = 0; u < layer.n; ++u) activate(network.activation, out + u * pass.stride, R);
  }
}

// What multiplies the k-th network in the rows of a block; nothing if they are not multiplied.
SEMISTAN_INLINE const double* multiplier(const Pass& pass, std::size_t k) {
  return pass.data.times ? pass.times + k * pass.stride : nullptr;
}

// eta of these rows.
template <int TILE>
SEMISTAN_INLINE void forward(const Pass& pass, int first, int rows, int R) {
  const Rows& data = pass.data;
  const int offset = data.start + first, stride = pass.stride;
  const Predictor& predictor = pass.predictor;
  for (std::size_t k = 0; k < pass.networks.size(); ++k) {
    hidden_layers<TILE>(pass, pass.networks[k], first, rows, R);
    const Layer& last = pass.networks[k].layers.back();
    const double* times = multiplier(pass, k);
    for (int j = 0; j < last.n; ++j) {
      const double* weights = last.weights + j * last.m;
      double* eta = pass.eta + j * stride;
      for (int r = 0; r < R; r += LANES) {
        Vec f = broadcast(last.bias[j]);
        for (int i = 0; i < last.m; ++i) f += weights[i] * load(last.in + i * stride + r);
        if (times) f *= load(times + r);
        at(eta + r) = (k ? load(eta + r) : broadcast(predictor.eta_loc)) + predictor.eta_scale * f;
      }
    }
  }
  for (int p = 0; p < data.P; ++p) {
    const double* column = data.Xc + static_cast<std::size_t>(p) * data.stride + offset;
    for (int r = 0; r < rows; ++r) pass.eta[r] += predictor.theta[p] * column[r];
  }
  if (data.extra)
    for (int r = 0; r < rows; ++r) pass.eta[r] += data.extra[first + r];
}

// Copies what multiplies the networks in a block's rows; past the last one, it is 0.
SEMISTAN_INLINE void times_of_block(const Pass& pass, int first, int rows, int R) {
  if (!pass.data.times) return;
  for (std::size_t k = 0; k < pass.networks.size(); ++k) {
    const double* column = pass.data.times + k * pass.data.stride + pass.data.start + first;
    double* times = pass.times + k * pass.stride;
    std::copy(column, column + rows, times);
    std::fill(times + rows, times + R, 0.0);
  }
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

// From eta, which holds the derivative by eta, to theta.
SEMISTAN_INLINE void backward_theta(const Pass& pass, int first, int rows, Result& result) {
  const int offset = pass.data.start + first;
  for (int p = 0; p < pass.data.P; ++p) {
    const double* column = pass.data.Xc + static_cast<std::size_t>(p) * pass.data.stride + offset;
    Vec sum = {};
    int r = 0;
    for (; r + LANES <= rows; r += LANES) sum += load(pass.eta + r) * load(column + r);
    double rest = 0;
    for (; r < rows; ++r) rest += pass.eta[r] * column[r];
    result.d_theta[p] += total(sum) + rest;
  }
}

// From eta to the k-th network's output layer and to its inputs.
SEMISTAN_INLINE void backward_output(const Pass& pass, std::size_t k, int R) {
  const int stride = pass.stride;
  const Layer& last = pass.networks[k].layers.back();
  const double* times = multiplier(pass, k);
  for (int j = 0; j < last.n; ++j) {
    const double* eta = pass.eta + j * stride;
    double* d_f = pass.d_f + j * stride;
    Vec level = {};
    for (int r = 0; r < R; r += LANES) {
      Vec d = load(eta + r) * pass.predictor.eta_scale;
      if (times) d *= load(times + r);
      at(d_f + r) = d;
      level += d;
    }
    last.d_bias[j] += total(level);
    for (int i = 0; i < last.m; ++i) {
      const double weight = last.weights[j * last.m + i];
      double* adjoint = pass.adjoint + i * stride;
      Vec sum = {};
      for (int r = 0; r < R; r += LANES) {
        const Vec d = load(d_f + r);
        sum += d * load(last.in + i * stride + r);
        at(adjoint + r) = j ? load(adjoint + r) + weight * d : weight * d;
      }
      last.d_packed[packed(last, j, i)] += total(sum);
    }
  }
}

// From the inputs of a network's output layer to all layers before.
template <int TILE>
SEMISTAN_INLINE void backward_hidden(const Pass& pass, const Stack& network, int R) {
  const int stride = pass.stride;
  double *adjoint = pass.adjoint, *other = pass.other;
  for (std::size_t l = network.layers.size() - 1; l-- > 0;) {
    const Layer& layer = network.layers[l];
    for (int u = 0; u < layer.n; ++u)
      deactivate(network.activation, network.layers[l + 1].in + u * stride, adjoint + u * stride,
                 R);
    outer(adjoint, layer.in, layer.d_packed, layer.d_bias, layer.m, layer.n, R, stride);
    if (l > 0) {
      product<TILE>(layer.transposed, nullptr, adjoint, other, layer.n, layer.m, R, stride);
      std::swap(adjoint, other);
    }
  }
}

template <int TILE>
SEMISTAN_INLINE void backward(const Pass& pass, int first, int rows, int R, Result& result) {
  backward_theta(pass, first, rows, result);
  for (std::size_t k = 0; k < pass.networks.size(); ++k) {
    backward_output(pass, k, R);
    backward_hidden<TILE>(pass, pass.networks[k], R);
  }
}

// ---- What eta is linear in, integrated out.

// Copies the columns of what is linear, and the residual behind them.
SEMISTAN_INLINE void linear_columns(const Pass& pass, int first, int rows, int R) {
  const int offset = pass.data.start + first, stride = pass.stride;
  const int of_phi = static_cast<int>(pass.linear->inputs.size()), M = pass.linear->columns;
  double* column = pass.columns;
  for (int j = 0; j < of_phi; ++j, column += stride) {
    const Input& input = pass.linear->inputs[j];
    const Layer& last = pass.networks[input.network].layers.back();
    if (input.unit == last.m) {
      std::fill(column, column + R, 1.0);
    } else {
      std::copy(last.in + input.unit * stride, last.in + input.unit * stride + R, column);
    }
    if (const double* times = multiplier(pass, input.network))
      for (int r = 0; r < R; r += LANES) at(column + r) *= load(times + r);
  }
  for (int p = 0; p < M - of_phi; ++p, column += stride) {
    const double* from = pass.data.XZ + static_cast<std::size_t>(p) * pass.data.stride + offset;
    std::copy(from, from + rows, column);
    std::fill(column + rows, column + R, 0.0);
  }
  for (int r = 0; r < R; r += LANES)
    at(column + r) = load(pass.response + r) - load(pass.eta + r);
}

// products += sum over rows of weight * column[i] * column[j] for i <= j, in tiles of SIDE x SIDE,
// of which those of XZ alone are left out.
SEMISTAN_INLINE void add_products(const Pass& pass, int R, Result& result) {
  const int stride = pass.stride, all = pass.linear->columns + 1;
  const int size = (all + SIDE - 1) / SIDE * SIDE;
  const int of_phi = static_cast<int>(pass.linear->inputs.size());
  for (int r = 0; r < R; r += LANES) result.mass += total(load(pass.weight + r));
  for (int j = 0; j < size; j += SIDE) {
    for (int t = 0; t < SIDE; ++t)
      for (int r = 0; r < R; r += LANES)
        at(pass.moved + t * stride + r)
            = load(pass.weight + r) * load(pass.columns + (j + t) * stride + r);
    const bool has_residual = j + SIDE >= all;
    for (int i = 0; i <= j && (i < of_phi || has_residual); i += SIDE) {
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
  backward_theta(pass, first, rows, result);
  if (of_phi)
    product<TILE>(linear.covariance.data(), nullptr, pass.columns, pass.moved, M, of_phi, R,
                  stride);
  for (std::size_t k = 0; k < pass.networks.size(); ++k) {
    backward_output(pass, k, R);
    const Layer& last = pass.networks[k].layers.back();
    const double* times = multiplier(pass, k);
    for (int j = 0; j < of_phi; ++j) {
      const Input& input = linear.inputs[j];
      if (input.network != static_cast<int>(k) || input.unit == last.m) continue;
      double* adjoint = pass.adjoint + input.unit * stride;
      for (int r = 0; r < R; r += LANES) {
        Vec slope = linear.mean[j] * load(residual + r) - load(pass.moved + j * stride + r);
        if (times) slope *= load(times + r);
        at(adjoint + r) += load(pass.weight + r) * linear.precision * slope;
      }
    }
    backward_hidden<TILE>(pass, pass.networks[k], R);
  }
}

template <int TILE>
SEMISTAN_INLINE void linear_block(const Pass& pass, Task task, int first, int rows, int R,
                                  Result& result) {
  times_of_block(pass, first, rows, R);
  if (task == PRODUCTS || !pass.kept) forward<TILE>(pass, first, rows, R);
  known_of_block(pass, first, rows, R);
  linear_columns(pass, first, rows, R);
  if (task == PRODUCTS) {
    add_products(pass, R, result);
  } else {
    pull_integral<TILE>(pass, first, rows, R, result);
  }
}

template <int TILE>
SEMISTAN_INLINE void run_blocks(const Pass& pass, Task task, Result& result) {
  const int most = pass.stride - LINE;
  for (const Stack& network : pass.networks)
    for (const Layer& layer : network.layers) pack(layer);
  for (int first = 0; first < pass.data.rows; first += most) {
    const int rows = std::min(most, pass.data.rows - first);
    const int R = (rows + STEP - 1) / STEP * STEP;
    if (task == PRODUCTS || task == INTEGRAL) {
      const Pass own = pass.kept ? of_block(pass, first / most) : pass;
      linear_block<TILE>(own, task, first, rows, R, result);
      continue;
    }
    times_of_block(pass, first, rows, R);
    forward<TILE>(pass, first, rows, R);
    const int outputs = pass.networks.back().layers.back().n, all = pass.data.rows;
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
