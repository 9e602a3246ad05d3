// Holds the kernel's functions to 4 units in the last place of long double
// arithmetic, and its pass to a naive loop and central differences, over odd
// sizes. Prints what it found; exits with 1 at the first disagreement.

#include <cstdio>
#include <cstdlib>
#include <random>
#include "network_kernel.hpp"

using namespace semistan;

enum { TANH = 1, RELU, SOFTPLUS, SIGMOID, IDENTITY };

static void fail(const char* what, double got, double expected) {
  std::printf("%s: got %.17g, expected %.17g\n", what, got, expected);
  std::exit(1);
}

static double ulps(double got, long double expected) {
  const double rounded = static_cast<double>(expected);
  const double next = std::nextafter(std::fabs(rounded), INFINITY);
  return std::fabs(static_cast<double>((got - expected) / (next - std::fabs(rounded))));
}

#define CALL(width, function) \
  [](const width::Vec& x, width::Vec& out) { width::function(x, out); }

template <typename Vec, typename Function, typename Exact>
static void check(const char* name, Function function, Exact exact, double low, double high) {
  constexpr int LANES = sizeof(Vec) / sizeof(double);
  double worst = 0;
  for (int i = 0; i <= 200000; ++i) {
    const double x = low + (high - low) * i / 200000;
    Vec v = Vec{} + x, out;
    function(v, out);
    const double error = ulps(out[i % LANES], exact(static_cast<long double>(x)));
    if (error > 4) fail(name, out[i % LANES], static_cast<double>(exact(x)));
    worst = std::max(worst, error);
  }
  std::printf("%s within %.2f ulp\n", name, worst);
}

static long double softplus(long double x) {
  return (x > 0 ? x : 0) + std::log1p(std::exp(-std::fabs(x)));
}
static long double sigmoid(long double x) { return 1 / (1 + std::exp(-x)); }

static double act(int activation, double z) {
  switch (activation) {
    case TANH: return std::tanh(z);
    case RELU: return z > 0 ? z : 0;
    case SOFTPLUS: return static_cast<double>(softplus(z));
    case SIGMOID: return static_cast<double>(sigmoid(z));
    default: return z;
  }
}

static std::size_t weights_of(const std::vector<int>& widths) {
  std::size_t d = 0;
  for (std::size_t l = 0; l + 1 < widths.size(); ++l) d += (widths[l] + 1) * widths[l + 1];
  return d;
}

struct Case {
  std::vector<std::vector<int>> networks;  // the widths of each
  int start, rows, N, P, activation, family;
  std::vector<double> H, X, y, w, theta, weights, extra, times;  // the last three perhaps empty
  std::vector<int> count, trials;
  double sigma = 0.7, eta_loc = 0.1, eta_scale = 1.3;

  // eta of a row, and the inputs of the output layers, each with a 1 behind them, times what
  // multiplies the network.
  double eta_of(int i, std::vector<double>& inputs) const {
    std::size_t at = 0, column = 0;
    double eta = eta_loc;
    for (std::size_t k = 0; k < networks.size(); ++k) {
      const std::vector<int>& widths = networks[k];
      const double multiplied = times.empty() ? 1 : times[k * N + i];
      std::vector<double> a;
      for (int q = 0; q < widths[0]; ++q) a.push_back(H[column++ * N + i]);
      for (std::size_t l = 0; l + 1 < widths.size(); ++l) {
        const int m = widths[l], n = widths[l + 1];
        if (l + 2 == widths.size()) {
          for (double value : a) inputs.push_back(multiplied * value);
          inputs.push_back(multiplied);
        }
        std::vector<double> z(n);
        for (int j = 0; j < n; ++j) {
          z[j] = w[at + m * n + j];
          for (int q = 0; q < m; ++q) z[j] += w[at + j * m + q] * a[q];
          if (l + 2 < widths.size()) z[j] = act(activation, z[j]);
        }
        at += (m + 1) * n;
        a = z;
      }
      eta += eta_scale * multiplied * a[0];
    }
    for (int p = 0; p < P; ++p) eta += theta[p] * X[p * N + i];
    if (!extra.empty()) eta += extra[i - start];
    return eta;
  }

  double naive() const {
    double total = 0;
    for (int i = start; i < start + rows; ++i) {
      std::vector<double> inputs;
      const double eta = eta_of(i, inputs);
      total += (weights.empty() ? 1 : weights[i]) * density(i, eta);
    }
    return total;
  }

  double density(int i, double eta) const {
    if (family == GAUSSIAN) {
      const double z = (y[i] - eta) / sigma;
      return -0.5 * z * z - std::log(sigma) - 0.5 * std::log(2 * M_PI);
    }
    if (family == POISSON) return count[i] * eta - std::exp(eta) - std::lgamma(count[i] + 1.0);
    if (family == BERNOULLI) return -static_cast<double>(softplus(-(2 * count[i] - 1) * eta));
    const int n = trials[i], k = count[i];
    const double ways = std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0);
    return ways - static_cast<double>(k * softplus(-eta) + (n - k) * softplus(eta));
  }

  Rows data() const {
    return {start, rows, N, P, H.data(), X.data(), y.data(), count.data(), trials.data(),
            weights.empty() ? nullptr : weights.data(), extra.empty() ? nullptr : extra.data(),
            times.empty() ? nullptr : times.data(), X.data()};
  }

  Networks all() const {
    Networks found;
    const double* own = w.data();
    for (const std::vector<int>& widths : networks) {
      found.push_back({static_cast<int>(widths.size()) - 1, widths.data(), activation, own});
      own += weights_of(widths);
    }
    return found;
  }

  Result kernel() const {
    const Predictor predictor{eta_loc, eta_scale, sigma, theta.data()};
    return log_lik_pass(family, data(), all(), predictor);
  }

  // f, and the gradient of the gaussian log-likelihood as a function of f, by themselves.
  void by_output(const Result& expected) const {
    Rows just_inputs = data();
    const std::vector<double> f = output_pass(just_inputs, all()[0]);
    double total = 0;
    std::vector<double> adjoint;
    for (int i = 0; i < rows; ++i) {
      const double eta = eta_loc + eta_scale * f[i];
      total += density(start + i, eta);
      adjoint.push_back(eta_scale * (y[start + i] - eta) / (sigma * sigma));
    }
    just_inputs.adjoint = adjoint.data();
    const std::vector<double> d_w = pull_back_pass(just_inputs, all()[0]);
    if (std::fabs(total - expected.log_lik) > 1e-12 * std::fabs(total))
      fail("output", total, expected.log_lik);
    for (std::size_t i = 0; i < d_w.size(); ++i)
      if (std::fabs(d_w[i] - expected.d_w[i]) > 1e-11 * (1 + std::fabs(d_w[i])))
        fail("pulled back", d_w[i], expected.d_w[i]);
  }

  // A row's columns of what is linear, and y - eta.
  std::vector<double> columns_of(int i, const Linear& linear) const {
    std::vector<double> inputs, found;
    const double rest = y[i] - eta_of(i, inputs);
    for (const Input& input : linear.inputs) {
      int before = 0;
      for (int k = 0; k < input.network; ++k) before += networks[k][networks[k].size() - 2] + 1;
      found.push_back(inputs[before + input.unit]);
    }
    for (int p = 0; static_cast<int>(found.size()) < linear.columns; ++p)
      found.push_back(X[p * N + i]);
    found.push_back(rest);
    return found;
  }

  // What the second pass differentiates: with the mean m and the covariance C of what is linear,
  // -1/2 sum of weights * ((y - eta - A m)^2 + A C A') / sigma^2.
  double naive_integral(const Linear& linear, const std::vector<double>& C) const {
    double total = 0;
    const int M = linear.columns;
    for (int i = start; i < start + rows; ++i) {
      const std::vector<double> a = columns_of(i, linear);
      double e = a[M], spread = 0;
      for (int j = 0; j < M; ++j) e -= a[j] * linear.mean[j];
      for (int j = 0; j < M; ++j)
        for (int k = 0; k < M; ++k) spread += a[j] * C[j * M + k] * a[k];
      total -= 0.5 * (weights.empty() ? 1 : weights[i]) * (e * e + spread) * linear.precision;
    }
    return total;
  }

  // Both passes of the integral over some inputs of the output layers and columns of X, or not.
  void by_integral(bool of_theta, std::mt19937& random) {
    std::normal_distribution<double> normal;
    Linear linear{{}, 0, {}, {}, 1 / (sigma * sigma)};
    for (int k = 0; k < static_cast<int>(networks.size()); ++k) {
      const int inputs = networks[k][networks[k].size() - 2] + 1;
      for (int i = inputs - 1; i >= 0; i -= 1 + inputs % 2) linear.inputs.push_back({k, i});
    }
    const int of_phi = static_cast<int>(linear.inputs.size());
    const int M = linear.columns = of_phi + (of_theta ? P : 0);
    linear.mean.resize(M);
    linear.covariance.resize(padded(of_phi) * M);
    Slice slice;
    const Predictor predictor{eta_loc, eta_scale, sigma, theta.data()};
    products_pass(slice, data(), all(), predictor, linear);
    const int size = (M + SIDE) / SIDE * SIDE;
    for (int j = 0; j <= M; ++j)
      for (int i = 0; i <= j; ++i) {
        if (i >= of_phi && j < M) continue;  // of columns that are the same in each pass
        double expected = 0;
        for (int n = start; n < start + rows; ++n) {
          const std::vector<double> a = columns_of(n, linear);
          expected += (weights.empty() ? 1 : weights[n]) * a[i] * a[j];
        }
        const double got = slice.result.products[j * size + i];
        if (std::fabs(got - expected) > 1e-11 * (1 + std::fabs(expected)))
          fail("product", got, expected);
      }
    std::vector<double> root(M * M), C(M * M);
    for (double& value : linear.mean) value = normal(random);
    for (double& value : root) value = 0.5 * normal(random);
    for (int i = 0; i < M * M; ++i)
      for (int k = 0; k < M; ++k) C[i] += root[i / M * M + k] * root[i % M * M + k];
    for (int i = 0; i < of_phi * M; ++i) linear.covariance[i] = C[i];
    integral_pass(slice);
    const auto value = [&] { return naive_integral(linear, C); };
    const int d = static_cast<int>(w.size());
    if (activation != RELU)
      for (int i = 0; i < d; i += 1 + d / 7)
        difference("d_w of integral", w[i], slice.result.d_w[i], value);
    for (std::size_t i = 0; i < extra.size(); i += 1 + rows / 5)
      difference("d_extra of integral", extra[i], slice.result.d_extra[i], value);
  }

  void difference(const char* what, double& parameter, double got) {
    difference(what, parameter, got, [&] { return naive(); });
  }

  template <typename Function>
  void difference(const char* what, double& parameter, double got, Function function) {
    const double value = parameter, h = 1e-5;
    parameter = value + h;
    const double up = function();
    parameter = value - h;
    const double down = function();
    parameter = value;
    const double expected = (up - down) / (2 * h);
    if (std::fabs(got - expected) > 1e-4 * (1 + std::fabs(expected))) fail(what, got, expected);
  }
};

// A network with several outputs: each is that of a network with this output alone, and the
// gradient of a weighted sum of them all is the sum of theirs.
void check_several(const std::vector<int>& widths, int rows, int activation, std::mt19937& random) {
  std::normal_distribution<double> normal;
  const int layers = static_cast<int>(widths.size()) - 1, n = widths.back(), m = widths[layers - 1];
  const std::size_t hidden = weights_of({widths.begin(), widths.end() - 1});
  std::vector<double> w(hidden + (m + 1) * n), H(rows * widths[0]), adjoint(rows * n);
  for (auto* values : {&w, &H, &adjoint})
    for (double& value : *values) value = normal(random);
  Rows data{};
  data.rows = data.stride = rows;
  data.H = H.data();
  data.adjoint = adjoint.data();
  const Network all{layers, widths.data(), activation, w.data()};
  const std::vector<double> f = output_pass(data, all), d_w = pull_back_pass(data, all);
  std::vector<double> expected(d_w.size(), 0.0);
  for (int j = 0; j < n; ++j) {
    std::vector<int> own_widths(widths);
    own_widths.back() = 1;
    std::vector<double> own(w.begin(), w.begin() + hidden);
    own.insert(own.end(), w.begin() + hidden + j * m, w.begin() + hidden + (j + 1) * m);
    own.push_back(w[hidden + n * m + j]);
    const Network one{layers, own_widths.data(), activation, own.data()};
    data.adjoint = adjoint.data() + j * rows;
    const std::vector<double> g = output_pass(data, one), d_own = pull_back_pass(data, one);
    for (int i = 0; i < rows; ++i)
      if (std::fabs(f[j * rows + i] - g[i]) > 1e-13 * (1 + std::fabs(g[i])))
        fail("output of several", f[j * rows + i], g[i]);
    for (std::size_t i = 0; i < hidden; ++i) expected[i] += d_own[i];
    for (int i = 0; i < m; ++i) expected[hidden + j * m + i] = d_own[hidden + i];
    expected[hidden + n * m + j] = d_own[hidden + m];
  }
  for (std::size_t i = 0; i < d_w.size(); ++i)
    if (std::fabs(d_w[i] - expected[i]) > 1e-11 * (1 + std::fabs(expected[i])))
      fail("gradient of several", d_w[i], expected[i]);
}

#define CHECK_ONE(width, name, function, exact, low, high) \
  check<width::Vec>(#width " " name, CALL(width, function), exact, low, high);

#define CHECK(width)                                                                             \
  CHECK_ONE(width, "exp", vexp, [](long double x) { return std::exp(x); }, -700, 700)            \
  CHECK_ONE(width, "expm1", vexpm1, [](long double x) { return std::expm1(x); }, -40, 0)         \
  CHECK_ONE(width, "tanh", vtanh, [](long double x) { return std::tanh(x); }, -20, 20)           \
  CHECK_ONE(width, "tanh near 0", vtanh, [](long double x) { return std::tanh(x); }, -1e-3, 1e-3) \
  CHECK_ONE(width, "sigmoid", vsigmoid, sigmoid, -700, 40)                                       \
  CHECK_ONE(width, "softplus", vsoftplus, softplus, -40, 40)                                     \
  CHECK_ONE(width, "log1p", vlog1p, [](long double x) { return std::log1p(x); }, 1e-12, 1)

int main() {
  CHECK(eight)
  CHECK(four)
  CHECK(two)

  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  const std::vector<std::vector<std::vector<int>>> networks{
      {{1, 1}}, {{3, 1}}, {{2, 3, 1}}, {{5, 4, 4, 1}}, {{3, 9, 2, 5, 1}},
      {{2, 3, 1}, {3, 1}}, {{1, 4, 1}, {2, 9, 3, 1}, {3, 2, 1}}};
  int cases = 0;
  for (const auto& widths : networks)
    for (int rows : {1, 7, 8, 33, 300})
      for (int activation = TANH; activation <= IDENTITY; ++activation)
        for (int family : {GAUSSIAN, POISSON, BERNOULLI, BINOMIAL})
          for (int which = 0; which < 16; ++which) {
            const int P = which & 1 ? 2 : 0;
            const bool weighted = which & 2, further = which & 4, multiplied = which & 8;
            if ((multiplied || widths.size() > 1) && which % 5) continue;  // each in two of four
            Case c;
            c.networks = widths, c.rows = rows, c.activation = activation, c.family = family;
            c.P = P, c.start = rows % 3, c.N = rows + 5;
            std::size_t d = 0, inputs = 0;
            for (const auto& own : widths) d += weights_of(own), inputs += own[0];
            for (std::size_t i = 0; i < c.N * inputs; ++i) c.H.push_back(normal(random));
            for (int i = 0; i < c.N * P; ++i) c.X.push_back(normal(random));
            for (int i = 0; i < c.N; ++i) c.y.push_back(normal(random));
            for (int i = 0; i < c.N; ++i) c.count.push_back(i % (family == BERNOULLI ? 2 : 3));
            for (int i = 0; i < c.N; ++i) c.trials.push_back(i % 3 + i % 4);
            for (int i = 0; i < c.N && weighted; ++i) c.weights.push_back(i % 5 / 2.0);
            const double size = family >= BERNOULLI ? 10 : 1;  // where a probability is near 1
            for (int i = 0; i < rows && further; ++i) c.extra.push_back(size * normal(random));
            for (std::size_t i = 0; i < c.N * widths.size() && multiplied; ++i)
              c.times.push_back(i % 7 ? 0.5 * normal(random) : 0);
            for (std::size_t i = 0; i < d; ++i) c.w.push_back(0.5 / widths.size() * normal(random));
            for (int p = 0; p < P; ++p) c.theta.push_back(normal(random));
            const Result result = c.kernel();
            const double expected = c.naive();
            if (std::fabs(result.log_lik - expected) > 1e-12 * std::fabs(expected) + 1e-13)
              fail("log-likelihood", result.log_lik, expected);
            if (activation != RELU)  // central differences fail at its kink
              for (std::size_t i = 0; i < d; i += 1 + d / 7) c.difference("d_w", c.w[i], result.d_w[i]);
            for (int p = 0; p < P; ++p) c.difference("d_theta", c.theta[p], result.d_theta[p]);
            for (std::size_t i = 0; i < c.extra.size(); i += 1 + rows / 5)
              c.difference("d_extra", c.extra[i], result.d_extra[i]);
            if (family == GAUSSIAN && which == 0 && widths.size() == 1) c.by_output(result);
            if (family == GAUSSIAN && activation < SIGMOID) c.by_integral(rows % 2, random);
            if (family == GAUSSIAN) c.difference("d_sigma", c.sigma, result.d_sigma);
            ++cases;
          }
  const std::vector<std::vector<int>> several{{1, 2}, {3, 9}, {2, 3, 2}, {5, 4, 9, 3}, {3, 2, 17}};
  for (const auto& widths : several)
    for (int rows : {1, 8, 33, 300})
      for (int activation = TANH; activation <= IDENTITY; ++activation, ++cases)
        check_several(widths, rows, activation, random);
  std::printf("%d cases agree\n", cases);
}
