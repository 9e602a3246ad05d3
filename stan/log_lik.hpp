// The functions that a generated program declares when it uses the C++ kernel:
// the log-likelihoods of some families, and the networks. CmdStan's USER_HEADER. The model
// must be named program_model, because an external function is looked up in the
// namespace of its model.
//
// stanc before 2.32 declares external functions itself, as templates; the
// definitions at the end repeat its signatures.

#ifndef SEMISTAN_LOG_LIK_HPP
#define SEMISTAN_LOG_LIK_HPP

#include <stdexcept>
#include <type_traits>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <stan/model/model_header.hpp>
#include "network_kernel.hpp"

namespace semistan {

inline const double* reals(const std::vector<int>&) { return nullptr; }
template <typename T>
inline const double* reals(const T& y) { return y.data(); }
inline const int* counts(const std::vector<int>& y) { return y.data(); }
template <typename T>
inline const int* counts(const T&) { return nullptr; }

// Operands of the autodiff node with their derivatives; plain numbers have none.
struct Gradient {
  std::vector<stan::math::var> operands;
  std::vector<double> derivatives;

  explicit Gradient(std::size_t size) {
    operands.reserve(size);
    derivatives.reserve(size);
  }
  void add(const stan::math::var& operand, double derivative) {
    operands.push_back(operand);
    derivatives.push_back(derivative);
  }
  void add(double, double) {}
  template <typename T>
  void add(const T& vector, const double* values) {
    for (int i = 0; i < vector.size(); ++i) add(vector.coeff(i), values[i]);
  }
};

inline stan::math::var node(double value, const Gradient& gradient, std::true_type) {
  return stan::math::precomputed_gradients(value, gradient.operands, gradient.derivatives);
}
inline double node(double value, const Gradient&, std::false_type) { return value; }

// The weights at phi: its first elements move those at `axes`, or all weights where neither axes
// nor directions are given.
template <typename Shift, typename Basis>
inline Eigen::VectorXd weights_at(const Eigen::VectorXd& phi, const Shift& p_bar,
                                  const std::vector<int>& axes, const Basis& Pi) {
  const int b = static_cast<int>(Pi.cols()), a = static_cast<int>(phi.size()) - b;
  Eigen::VectorXd w = p_bar;
  if (b > 0) w.noalias() += Pi * phi.tail(b);
  for (int i = 0; i < a; ++i) w[axes.empty() ? i : axes[i] - 1] += phi[i];
  return w;
}

// The derivatives by k coordinates phi, given those by the weights.
template <typename Basis>
inline Eigen::VectorXd along_phi(const Eigen::VectorXd& d_w, int k, const std::vector<int>& axes,
                                 const Basis& Pi) {
  const int b = static_cast<int>(Pi.cols()), a = k - b;
  Eigen::VectorXd d_phi(k);
  if (b > 0) d_phi.tail(b) = Pi.transpose() * d_w;
  for (int i = 0; i < a; ++i) d_phi[i] = d_w[axes.empty() ? i : axes[i] - 1];
  return d_phi;
}

// One network.
inline Networks networks_at(const Eigen::VectorXd& w, const std::vector<int>& widths,
                            int activation) {
  return {Network{static_cast<int>(widths.size()) - 1, widths.data(), activation, w.data()}};
}

const Eigen::MatrixXd NO_TIMES;  // of networks that multiply nothing
const Eigen::VectorXd NO_ELEMENTS;  // below a diagonal

// Several, whose widths have 0 behind the last layer of one that has fewer than others.
inline Networks networks_at(const Eigen::VectorXd& w, const std::vector<std::vector<int>>& widths,
                            const std::vector<int>& activation) {
  Networks found;
  const double* own = w.data();
  for (std::size_t i = 0; i < widths.size(); ++i) {
    int layers = static_cast<int>(widths[i].size()) - 1;
    while (widths[i][layers] == 0) --layers;
    found.push_back(Network{layers, widths[i].data(), activation[i], own});
    for (int l = 0; l < layers; ++l) own += (widths[i][l] + 1) * widths[i][l + 1];
  }
  return found;
}

// `weights` of all rows, `extra` of rows start to end, and `times`, of all rows and networks, may
// have no elements.
template <typename Return, typename Y, typename X, typename U, typename Widths,
          typename Activation, typename Times, typename Shift, typename Basis, typename Weights,
          typename Phi, typename Theta, typename Sigma, typename Extra>
inline Return log_lik(Family family, int start, int end, const Y& y, const X& Xc, const U& H,
                      const Widths& widths, const Activation& activation, const Times& times,
                      const Shift& p_bar, const std::vector<int>& axes, const Basis& Pi,
                      double eta_loc, double eta_scale, const std::vector<int>& trials,
                      const Weights& weights, const Phi& phi, const Theta& theta,
                      const Sigma& sigma, const Extra& extra) {
  using stan::math::value_of;
  using Vector = Eigen::VectorXd;
  const auto& by_row = stan::math::to_ref(weights);
  const auto& further = stan::math::to_ref(extra);
  const auto& multipliers = stan::math::to_ref(times);
  const Vector theta_value = value_of(theta), extra_value = value_of(further);
  const Vector w = weights_at(value_of(phi), p_bar, axes, Pi);
  Rows rows{};
  rows.start = start - 1;
  rows.rows = end - start + 1;
  rows.stride = static_cast<int>(H.rows());
  rows.P = static_cast<int>(theta_value.size());
  rows.H = H.data();
  rows.Xc = Xc.data();
  rows.y = reals(y);
  rows.count = counts(y);
  rows.trials = trials.data();
  rows.weights = by_row.size() ? by_row.data() : nullptr;
  rows.extra = extra_value.size() ? extra_value.data() : nullptr;
  rows.times = multipliers.size() ? multipliers.data() : nullptr;
  const Predictor predictor{eta_loc, eta_scale, value_of(sigma), theta_value.data()};
  const Result result
      = log_lik_pass(family, rows, networks_at(w, widths, activation), predictor);

  Gradient gradient(phi.size() + theta.size() + 1 + further.size());
  const Eigen::Map<const Vector> d_w(result.d_w.data(), w.size());
  gradient.add(phi, along_phi(d_w, static_cast<int>(phi.size()), axes, Pi).data());
  gradient.add(theta, result.d_theta.data());
  gradient.add(sigma, result.d_sigma);
  gradient.add(further, result.d_extra.data());
  return node(result.log_lik, gradient, std::is_same<Return, stan::math::var>());
}

constexpr int SLICE = 2048;  // rows that one thread takes at a time

// Calls a function for each of n slices, on the threads that are free. A thread that waits for the
// others begins nothing else meanwhile: another chain of the process would use the same slices.
template <typename Function>
inline void for_each_slice(int n, const Function& function) {
  tbb::this_task_arena::isolate([&] { tbb::parallel_for(0, n, function); });
}

// The inverse of the lower triangle of a matrix, some columns at a time: each is 0 above them.
inline Eigen::MatrixXd inverse_of(const Eigen::MatrixXd& L) {
  const int M = static_cast<int>(L.rows()), width = 24;
  Eigen::MatrixXd inverse = Eigen::MatrixXd::Zero(M, M);
  for (int j = 0; j < M; j += width) {
    const int rest = M - j;
    inverse.block(j, j, rest, std::min(width, rest))
        = L.bottomRightCorner(rest, rest).triangularView<Eigen::Lower>().solve(
            Eigen::MatrixXd::Identity(rest, std::min(width, rest)));
  }
  return inverse;
}

// The root of beta's prior covariance: `sd` on its diagonal, and elements `off` below it, each at
// several places: row and column of the first, and their number.
struct Root {
  using Matrix = Eigen::MatrixXd;
  using Vector = Eigen::VectorXd;
  struct Place {
    int row, column, number;
  };

  Vector sd, off;
  std::vector<Place> places;

  Matrix behind(const Matrix& A) const {  // A R
    Matrix found = A * sd.asDiagonal();
    for_each([&](int row, int column, double x) { found.col(column) += x * A.col(row); });
    return found;
  }
  Vector times(const Vector& z) const {  // R z
    Vector found = sd.cwiseProduct(z);
    for_each([&](int row, int column, double x) { found[row] += x * z[column]; });
    return found;
  }
  Matrix across(const Matrix& A) const {  // A R'
    Matrix found = A * sd.asDiagonal();
    for_each([&](int row, int column, double x) { found.col(row) += x * A.col(column); });
    return found;
  }

 private:
  template <typename Function>
  void for_each(const Function& function) const {
    for (std::size_t e = 0; e < places.size(); ++e)
      for (int i = 0; i < places[e].number; ++i)
        function(places[e].row + i, places[e].column + i, off[static_cast<int>(e)]);
  }
};

// Sums over the rows become the distribution of beta given y, N(R z, R M^(-1) R'), for `linear`.
struct GivenY {
  using Matrix = Eigen::MatrixXd;
  using Vector = Eigen::VectorXd;

  double mass, log_det, norm;  // of the weights; log det M, z' z
  Vector z, leverage;          // diagonal of M^(-1)
  Vector d_sd, d_off;          // derivatives of log p(y) by the elements of R

  template <typename Gram>
  GivenY(const std::vector<Slice>& slices, const Gram& of_XZ, const Root& root, Linear& linear) {
    const int M = linear.columns, size = (M + SIDE) / SIDE * SIDE;
    Matrix products = Matrix::Zero(size, size);  // in its upper part
    mass = 0;
    for (const Slice& slice : slices) {
      products += Eigen::Map<const Matrix>(slice.result.products.data(), size, size);
      mass += slice.result.mass;
    }
    Matrix gram = products.topLeftCorner(M, M).template selfadjointView<Eigen::Upper>();
    gram.bottomRightCorner(of_XZ.rows(), of_XZ.cols()) = of_XZ;
    const Matrix behind = linear.precision * root.behind(gram);
    Matrix inner = root.behind(behind.transpose());
    inner.diagonal().array() += 1;
    const Eigen::LLT<Matrix> factor(inner);
    if (factor.info() != Eigen::Success) throw std::domain_error("I + Z'Z has no Cholesky factor");
    const Vector cross = products.col(M).head(M);
    z = factor.solve(linear.precision * root.behind(cross.transpose()).transpose());
    const Matrix factor_inverse = inverse_of(factor.matrixLLT());
    const int n = static_cast<int>(linear.inputs.size());
    const Matrix inverse = factor_inverse.leftCols(n).transpose() * factor_inverse;  // first rows
    log_det = 2 * factor.matrixLLT().diagonal().array().log().sum();
    leverage = factor_inverse.colwise().squaredNorm();
    norm = z.squaredNorm();
    const Vector mean = root.times(z);
    const Matrix covariance = root.across(inverse);
    for (int j = 0; j < M; ++j) linear.mean[j] = mean[j];
    for (int j = 0; j < n; ++j)
      for (int i = 0; i < M; ++i) linear.covariance[j * M + i] = root.sd[j] * covariance(j, i);

    // d log p / d R = (A' (y - eta) / sigma^2 - A' A R z / sigma^2) z' - A' A R M^(-1) / sigma^2,
    // on the diagonal (z z' + M^(-1) - I) / R where R has nothing else in that column
    const Vector slope = linear.precision * (cross - gram * mean);
    const auto by_element = [&](int row, int column) {
      const Vector of_row
          = factor_inverse.triangularView<Eigen::Lower>() * behind.row(row).transpose();
      return slope[row] * z[column] - of_row.dot(factor_inverse.col(column));
    };
    d_sd = z.array().square() + leverage.array() - 1;
    for (int j = 0; j < M; ++j)  // where a spectral density is too small for a number, it is 0
      d_sd[j] = root.sd[j] > 0 ? d_sd[j] / root.sd[j] : 0;
    d_off = Vector::Zero(root.off.size());
    for (std::size_t e = 0; e < root.places.size(); ++e) {
      const Root::Place& place = root.places[e];
      for (int i = 0; i < place.number; ++i) {
        d_off[static_cast<int>(e)] += by_element(place.row + i, place.column + i);
        d_sd[place.column + i] = by_element(place.column + i, place.column + i);
      }
    }
  }
};

// One of the inputs of all output layers side by side, each layer with a 1 for its bias.
inline Input input_at(const Networks& networks, int place) {
  int k = 0;
  while (place > networks[k].widths[networks[k].layers - 1])
    place -= networks[k].widths[networks[k].layers - 1] + 1, ++k;
  return {k, place};
}

// The log-likelihood of a normal response with what eta is linear in integrated out,
//
//   beta = (phi at `column`, coefficients of XZ) ~ normal(m, R R'),
//   log p(y) = -1/2 (sum of weights * log(2 pi sigma^2) + log det M + e' e / sigma^2 + z' z),
//   M = I + R' A' A R / sigma^2,   z = M^(-1) R' A' (y - eta) / sigma^2,   e = y - eta - A R z,
//
// with its gradient. eta is at the mean m, which phi and theta have there. `phi_sd` and `XZ_sd` are
// the diagonal of R, and have no elements where nothing of the kind is integrated out. Below it are
// elements `off` where effects are correlated, at the places `below` among the columns of XZ. All
// of them may depend on parameters. `gram` is XZ' XZ, with the rows' weights. The slices' sums are
// added in their order, so that they do not depend on the number of threads.
template <typename Return, typename Y, typename X, typename U, typename Widths,
          typename Activation, typename Times, typename Shift, typename Basis, typename PhiSd,
          typename Columns, typename Gram, typename ColumnsSd, typename Off, typename Weights,
          typename Phi, typename Theta, typename Sigma, typename Extra>
inline Return integral(const Y& y, const X& Xc, const U& H, const Widths& widths,
                       const Activation& activation, const Times& times, const Shift& p_bar,
                       const std::vector<int>& axes, const Basis& Pi, double eta_loc,
                       double eta_scale, const std::vector<int>& column, const PhiSd& phi_sd,
                       const Columns& XZ, const Gram& gram, const ColumnsSd& XZ_sd,
                       const std::vector<std::vector<int>>& below, const Off& off,
                       const Weights& weights, const Phi& phi, const Theta& theta,
                       const Sigma& sigma, const Extra& extra) {
  using stan::math::value_of;
  using Vector = Eigen::VectorXd;
  const auto& by_row = stan::math::to_ref(weights);
  const auto& further = stan::math::to_ref(extra);
  const auto& multipliers = stan::math::to_ref(times);
  const auto& columns = stan::math::to_ref(XZ);
  const auto& scale = stan::math::to_ref(phi_sd);
  const auto& other_scale = stan::math::to_ref(XZ_sd);
  const auto& off_diagonal = stan::math::to_ref(off);
  const Vector theta_value = value_of(theta), extra_value = value_of(further);
  const Vector w = weights_at(value_of(phi), p_bar, axes, Pi), scale_value = value_of(scale);
  const double s = value_of(sigma);
  const int N = static_cast<int>(H.rows()), of_phi = static_cast<int>(column.size());
  const int M = of_phi + static_cast<int>(other_scale.size());
  Root root{Vector(M), value_of(off_diagonal), {}};
  root.sd.head(of_phi) = eta_scale * scale_value;
  root.sd.tail(M - of_phi) = value_of(other_scale);
  for (const std::vector<int>& place : below)
    root.places.push_back({of_phi + place[0] - 1, of_phi + place[1] - 1, place[2]});
  Linear linear{{}, M, std::vector<double>(M), {}, 1 / (s * s)};
  linear.covariance.resize(padded(of_phi) * M);
  const Networks networks = networks_at(w, widths, activation);
  for (int input : column) linear.inputs.push_back(input_at(networks, input - 1));

  const Predictor predictor{eta_loc, eta_scale, s, theta_value.data()};
  static thread_local std::vector<Slice> kept;  // its memory is used again
  std::vector<Slice>& slices = kept;
  const int n = (N + SLICE - 1) / SLICE;
  slices.resize(n);
  for_each_slice(n, [&](int i) {
    Rows rows{};
    rows.start = i * SLICE;
    rows.rows = std::min(SLICE, N - rows.start);
    rows.stride = N;
    rows.P = static_cast<int>(theta_value.size());
    rows.H = H.data();
    rows.Xc = Xc.data();
    rows.y = y.data();
    rows.weights = by_row.size() ? by_row.data() : nullptr;
    rows.extra = extra_value.size() ? extra_value.data() + rows.start : nullptr;
    rows.times = multipliers.size() ? multipliers.data() : nullptr;
    rows.XZ = columns.data();
    products_pass(slices[i], rows, networks, predictor, linear);
  });
  const GivenY given(slices, gram, root, linear);
  for_each_slice(n, [&](int i) { integral_pass(slices[i]); });

  Vector d_w = Vector::Zero(w.size()), d_theta = Vector::Zero(theta_value.size());
  std::vector<double> d_extra;
  double squares = 0;
  for (const Slice& slice : slices) {
    const Result& own = slice.result;
    squares += own.squares * linear.precision;
    d_w += Eigen::Map<const Vector>(own.d_w.data(), w.size());
    d_theta += Eigen::Map<const Vector>(own.d_theta.data(), d_theta.size());
    d_extra.insert(d_extra.end(), own.d_extra.begin(), own.d_extra.end());
  }
  const Vector d_scale = eta_scale * given.d_sd.head(of_phi);
  Gradient gradient(phi.size() + theta.size() + 1 + M + off_diagonal.size() + further.size());
  gradient.add(phi, along_phi(d_w, static_cast<int>(phi.size()), axes, Pi).data());
  gradient.add(theta, d_theta.data());
  gradient.add(sigma, (squares - given.mass + M - given.leverage.sum()) / s);
  gradient.add(scale, d_scale.data());
  gradient.add(other_scale, given.d_sd.data() + of_phi);
  gradient.add(off_diagonal, given.d_off.data());
  gradient.add(further, d_extra.data());
  const double value = -0.5 * (given.mass * std::log(2 * stan::math::pi() * s * s)
                               + given.log_det + squares + given.norm);
  return node(value, gradient, std::is_same<Return, stan::math::var>());
}

// All rows of a matrix as the network's inputs.
template <typename Matrix>
inline Rows inputs(const Matrix& H) {
  Rows rows{};
  rows.rows = rows.stride = static_cast<int>(H.rows());
  rows.H = H.data();
  return rows;
}

// The outputs of a network, a column for each.
template <typename Matrix>
inline Eigen::MatrixXd outputs(const Matrix& H, const Eigen::VectorXd& w,
                               const std::vector<int>& widths, int activation) {
  const Eigen::MatrixXd kept = H;
  const int layers = static_cast<int>(widths.size()) - 1;
  const auto f = output_pass(inputs(kept), Network{layers, widths.data(), activation, w.data()});
  return Eigen::Map<const Eigen::MatrixXd>(f.data(), H.rows(), widths.back());
}

// The autodiff stack gets one node for each output of each row, and a single one that leads back
// to w.
template <typename Matrix>
inline Eigen::Matrix<stan::math::var, -1, -1> outputs(
    const Matrix& H, const Eigen::Matrix<stan::math::var, -1, 1>& w,
    const std::vector<int>& widths, int activation) {
  using stan::math::var;
  stan::arena_t<Eigen::MatrixXd> kept = H;
  stan::arena_t<Eigen::Matrix<var, -1, 1>> weights = w;
  const auto sizes = stan::math::to_arena(widths);
  const Eigen::VectorXd values = stan::math::value_of(w);
  const int layers = static_cast<int>(widths.size()) - 1;
  const auto computed
      = output_pass(inputs(kept), Network{layers, widths.data(), activation, values.data()});
  stan::arena_t<Eigen::Matrix<var, -1, -1>> f
      = Eigen::Map<const Eigen::MatrixXd>(computed.data(), H.rows(), widths.back());
  stan::math::reverse_pass_callback([kept, weights, sizes, activation, f]() mutable {
    const Eigen::MatrixXd adjoint = f.adj();
    const Eigen::VectorXd value = weights.val();
    Rows rows = inputs(kept);
    rows.adjoint = adjoint.data();
    const int layers = static_cast<int>(sizes.size()) - 1;
    const auto d_w
        = pull_back_pass(rows, Network{layers, sizes.data(), activation, value.data()});
    for (int i = 0; i < weights.size(); ++i) weights.coeffRef(i).adj() += d_w[i];
  });
  return f;
}

// The units of the last hidden layer, as the outputs of a layer that takes them as they are.
template <typename Matrix, typename T>
inline Eigen::Matrix<T, -1, -1> hidden(const Matrix& H, const Eigen::Matrix<T, -1, 1>& w,
                                       std::vector<int> widths, int activation) {
  const int m = widths.back();
  int d = 0;
  for (std::size_t l = 1; l < widths.size(); ++l) d += (widths[l - 1] + 1) * widths[l];
  Eigen::Matrix<T, -1, 1> every = Eigen::VectorXd::Zero(d + (m + 1) * m).template cast<T>();
  every.head(d) = w.head(d);
  for (int j = 0; j < m; ++j) every[d + j * m + j] = 1;
  widths.push_back(m);
  return outputs(H, every, widths, activation);
}

}  // namespace semistan

namespace program_model_namespace {

template <typename T0, typename T1>
Eigen::Matrix<stan::promote_args_t<stan::value_type_t<T0>, stan::value_type_t<T1>>, -1, 1>
network(const T0& H, const T1& w, const std::vector<int>& widths, const int& activation,
        std::ostream*) {
  return semistan::outputs(H, stan::math::eval(w), widths, activation).col(0);
}

template <typename T0, typename T1>
Eigen::Matrix<stan::promote_args_t<stan::value_type_t<T0>, stan::value_type_t<T1>>, -1, -1>
network_outputs(const T0& H, const T1& w, const std::vector<int>& widths, const int& activation,
                std::ostream*) {
  return semistan::outputs(H, stan::math::eval(w), widths, activation);
}

template <typename T0, typename T1>
Eigen::Matrix<stan::promote_args_t<stan::value_type_t<T0>, stan::value_type_t<T1>>, -1, -1>
hidden_units(const T0& H, const T1& w, const std::vector<int>& widths, const int& activation,
             std::ostream*) {
  using Return = stan::promote_args_t<stan::value_type_t<T0>, stan::value_type_t<T1>>;
  if (widths.size() == 1) return H.template cast<Return>();
  return semistan::hidden(H, stan::math::eval(w), widths, activation);
}

template <typename T0, typename T1, typename T2, typename T5, typename T7, typename T11,
          typename T12, typename T13, typename T14, typename T15, typename T16, typename T17,
          typename T18, typename T19>
stan::promote_args_t<
    stan::value_type_t<T0>, stan::value_type_t<T1>, stan::value_type_t<T2>,
    stan::value_type_t<T5>, stan::value_type_t<T7>,
    stan::promote_args_t<stan::value_type_t<T11>, stan::value_type_t<T12>,
                         stan::value_type_t<T13>, stan::value_type_t<T14>,
                         stan::value_type_t<T15>,
                         stan::promote_args_t<stan::value_type_t<T16>, stan::value_type_t<T17>,
                                              T18, stan::value_type_t<T19>>>>
gaussian_integral(const T0& y, const T1& Xc, const T2& H, const std::vector<int>& widths,
                  const int& activation, const T5& p_bar, const std::vector<int>& axes,
                  const T7& Pi, const double& eta_loc, const double& eta_scale,
                  const std::vector<int>& column, const T11& phi_sd, const T12& XZ,
                  const T13& gram, const T14& sd, const T15& weights, const T16& phi,
                  const T17& theta, const T18& sigma, const T19& extra, std::ostream*) {
  using Return = stan::return_type_t<T11, T14, T16, T17, T18, T19>;
  return semistan::integral<Return>(y, Xc, H, widths, activation, semistan::NO_TIMES, p_bar, axes,
                                    Pi, eta_loc, eta_scale, column, phi_sd, XZ, gram, sd, {},
                                    semistan::NO_ELEMENTS, weights, phi, theta, sigma, extra);
}

// With correlated effects.
template <typename T0, typename T1, typename T2, typename T5, typename T7, typename T11,
          typename T12, typename T13, typename T14, typename T16, typename T17, typename T18,
          typename T19, typename T20, typename T21>
stan::promote_args_t<
    stan::value_type_t<T0>, stan::value_type_t<T1>, stan::value_type_t<T2>,
    stan::value_type_t<T5>, stan::value_type_t<T7>,
    stan::promote_args_t<stan::value_type_t<T11>, stan::value_type_t<T12>,
                         stan::value_type_t<T13>, stan::value_type_t<T14>,
                         stan::value_type_t<T16>,
                         stan::promote_args_t<stan::value_type_t<T17>, stan::value_type_t<T18>,
                                              stan::value_type_t<T19>, T20,
                                              stan::value_type_t<T21>>>>
gaussian_integral(const T0& y, const T1& Xc, const T2& H, const std::vector<int>& widths,
                  const int& activation, const T5& p_bar, const std::vector<int>& axes,
                  const T7& Pi, const double& eta_loc, const double& eta_scale,
                  const std::vector<int>& column, const T11& phi_sd, const T12& XZ,
                  const T13& gram, const T14& sd, const std::vector<std::vector<int>>& below,
                  const T16& off, const T17& weights, const T18& phi, const T19& theta,
                  const T20& sigma, const T21& extra, std::ostream*) {
  using Return = stan::return_type_t<T11, T14, T16, T18, T19, T20, T21>;
  return semistan::integral<Return>(y, Xc, H, widths, activation, semistan::NO_TIMES, p_bar, axes,
                                    Pi, eta_loc, eta_scale, column, phi_sd, XZ, gram, sd, below,
                                    off, weights, phi, theta, sigma, extra);
}

// Several networks, each perhaps times a column.
template <typename T0, typename T1, typename T2, typename T5, typename T6, typename T8,
          typename T12, typename T13, typename T14, typename T15, typename T16, typename T17,
          typename T18, typename T19, typename T20>
stan::promote_args_t<
    stan::value_type_t<T0>, stan::value_type_t<T1>, stan::value_type_t<T2>,
    stan::value_type_t<T5>, stan::value_type_t<T6>,
    stan::promote_args_t<stan::value_type_t<T8>, stan::value_type_t<T12>,
                         stan::value_type_t<T13>, stan::value_type_t<T14>,
                         stan::value_type_t<T15>,
                         stan::promote_args_t<stan::value_type_t<T16>, stan::value_type_t<T17>,
                                              stan::value_type_t<T18>, T19,
                                              stan::value_type_t<T20>>>>
gaussian_integral(const T0& y, const T1& Xc, const T2& H,
                  const std::vector<std::vector<int>>& widths, const std::vector<int>& activation,
                  const T5& times, const T6& p_bar, const std::vector<int>& axes, const T8& Pi,
                  const double& eta_loc, const double& eta_scale, const std::vector<int>& column,
                  const T12& phi_sd, const T13& XZ, const T14& gram, const T15& sd,
                  const T16& weights, const T17& phi, const T18& theta, const T19& sigma,
                  const T20& extra, std::ostream*) {
  using Return = stan::return_type_t<T12, T15, T17, T18, T19, T20>;
  return semistan::integral<Return>(y, Xc, H, widths, activation, times, p_bar, axes, Pi, eta_loc,
                                    eta_scale, column, phi_sd, XZ, gram, sd, {},
                                    semistan::NO_ELEMENTS, weights, phi, theta, sigma, extra);
}

// The same with correlated effects.
template <typename T0, typename T1, typename T2, typename T5, typename T6, typename T8,
          typename T12, typename T13, typename T14, typename T15, typename T17, typename T18,
          typename T19, typename T20, typename T21, typename T22>
stan::promote_args_t<
    stan::value_type_t<T0>, stan::value_type_t<T1>, stan::value_type_t<T2>,
    stan::value_type_t<T5>, stan::value_type_t<T6>,
    stan::promote_args_t<stan::value_type_t<T8>, stan::value_type_t<T12>,
                         stan::value_type_t<T13>, stan::value_type_t<T14>,
                         stan::value_type_t<T15>,
                         stan::promote_args_t<stan::value_type_t<T17>, stan::value_type_t<T18>,
                                              stan::value_type_t<T19>, stan::value_type_t<T20>,
                                              T21, stan::promote_args_t<stan::value_type_t<T22>>>>>
gaussian_integral(const T0& y, const T1& Xc, const T2& H,
                  const std::vector<std::vector<int>>& widths, const std::vector<int>& activation,
                  const T5& times, const T6& p_bar, const std::vector<int>& axes, const T8& Pi,
                  const double& eta_loc, const double& eta_scale, const std::vector<int>& column,
                  const T12& phi_sd, const T13& XZ, const T14& gram, const T15& sd,
                  const std::vector<std::vector<int>>& below, const T17& off, const T18& weights,
                  const T19& phi, const T20& theta, const T21& sigma, const T22& extra,
                  std::ostream*) {
  using Return = stan::return_type_t<T12, T15, T17, T19, T20, T21, T22>;
  return semistan::integral<Return>(y, Xc, H, widths, activation, times, p_bar, axes, Pi, eta_loc,
                                    eta_scale, column, phi_sd, XZ, gram, sd, below, off, weights,
                                    phi, theta, sigma, extra);
}

template <typename T2, typename T3, typename T4, typename T7, typename T9, typename T12,
          typename T13, typename T14>
stan::promote_args_t<stan::value_type_t<T2>, stan::value_type_t<T3>, stan::value_type_t<T4>,
                     stan::value_type_t<T7>, stan::value_type_t<T9>,
                     stan::promote_args_t<stan::value_type_t<T12>, stan::value_type_t<T13>, T14>>
gaussian_log_lik(const int& start, const int& end, const T2& y, const T3& Xc, const T4& H,
                 const std::vector<int>& widths, const int& activation, const T7& p_bar,
                 const std::vector<int>& axes, const T9& Pi, const double& eta_loc,
                 const double& eta_scale, const T12& phi, const T13& theta, const T14& sigma,
                 std::ostream*) {
  using Return = stan::return_type_t<T12, T13, T14>;
  const Eigen::VectorXd none;
  return semistan::log_lik<Return>(semistan::GAUSSIAN, start, end, y, Xc, H, widths, activation,
                                   semistan::NO_TIMES, p_bar, axes, Pi, eta_loc, eta_scale, {},
                                   none, phi, theta, sigma, none);
}

template <typename T2, typename T3, typename T4, typename T7, typename T9, typename T12,
          typename T13, typename T14, typename T15, typename T16>
stan::promote_args_t<
    stan::value_type_t<T2>, stan::value_type_t<T3>, stan::value_type_t<T4>,
    stan::value_type_t<T7>, stan::value_type_t<T9>,
    stan::promote_args_t<stan::value_type_t<T12>, stan::value_type_t<T13>,
                         stan::value_type_t<T14>, T15, stan::value_type_t<T16>>>
gaussian_log_lik(const int& start, const int& end, const T2& y, const T3& Xc, const T4& H,
                 const std::vector<int>& widths, const int& activation, const T7& p_bar,
                 const std::vector<int>& axes, const T9& Pi, const double& eta_loc,
                 const double& eta_scale, const T12& weights, const T13& phi, const T14& theta,
                 const T15& sigma, const T16& extra, std::ostream*) {
  using Return = stan::return_type_t<T13, T14, T15, T16>;
  return semistan::log_lik<Return>(semistan::GAUSSIAN, start, end, y, Xc, H, widths, activation,
                                   semistan::NO_TIMES, p_bar, axes, Pi, eta_loc, eta_scale, {},
                                   weights, phi, theta, sigma, extra);
}

template <typename T2, typename T3, typename T4, typename T7, typename T8, typename T10,
          typename T13, typename T14, typename T15, typename T16, typename T17>
stan::promote_args_t<
    stan::value_type_t<T2>, stan::value_type_t<T3>, stan::value_type_t<T4>,
    stan::value_type_t<T7>, stan::value_type_t<T8>,
    stan::promote_args_t<stan::value_type_t<T10>, stan::value_type_t<T13>,
                         stan::value_type_t<T14>, stan::value_type_t<T15>, T16,
                         stan::promote_args_t<stan::value_type_t<T17>>>>
gaussian_log_lik(const int& start, const int& end, const T2& y, const T3& Xc, const T4& H,
                 const std::vector<std::vector<int>>& widths, const std::vector<int>& activation,
                 const T7& times, const T8& p_bar, const std::vector<int>& axes, const T10& Pi,
                 const double& eta_loc, const double& eta_scale, const T13& weights,
                 const T14& phi, const T15& theta, const T16& sigma, const T17& extra,
                 std::ostream*) {
  using Return = stan::return_type_t<T14, T15, T16, T17>;
  return semistan::log_lik<Return>(semistan::GAUSSIAN, start, end, y, Xc, H, widths, activation,
                                   times, p_bar, axes, Pi, eta_loc, eta_scale, {}, weights, phi,
                                   theta, sigma, extra);
}

// The last argument is the number of trials, if there is one, and a comma.
#define SEMISTAN_COUNT_FAMILY(NAME, FAMILY, TRIALS, ...)                                         \
  template <typename T3, typename T4, typename T7, typename T9, typename T12, typename T13>      \
  stan::promote_args_t<stan::value_type_t<T3>, stan::value_type_t<T4>, stan::value_type_t<T7>,   \
                       stan::value_type_t<T9>, stan::value_type_t<T12>,                          \
                       stan::promote_args_t<stan::value_type_t<T13>>>                            \
  NAME(const int& start, const int& end, const std::vector<int>& y, const T3& Xc, const T4& H,   \
       const std::vector<int>& widths, const int& activation, const T7& p_bar,                   \
       const std::vector<int>& axes, const T9& Pi, const double& eta_loc,                        \
       const double& eta_scale, __VA_ARGS__ const T12& phi, const T13& theta, std::ostream*) {   \
    using Return = stan::return_type_t<T12, T13>;                                                \
    const Eigen::VectorXd none;                                                                  \
    return semistan::log_lik<Return>(semistan::FAMILY, start, end, y, Xc, H, widths, activation, \
                                     semistan::NO_TIMES, p_bar, axes, Pi, eta_loc, eta_scale,    \
                                     TRIALS, none, phi, theta, 1.0, none);                       \
  }                                                                                              \
  template <typename T3, typename T4, typename T7, typename T9, typename T12, typename T13,      \
            typename T14, typename T15>                                                          \
  stan::promote_args_t<stan::value_type_t<T3>, stan::value_type_t<T4>, stan::value_type_t<T7>,   \
                       stan::value_type_t<T9>, stan::value_type_t<T12>,                          \
                       stan::promote_args_t<stan::value_type_t<T13>, stan::value_type_t<T14>,    \
                                            stan::value_type_t<T15>>>                            \
  NAME(const int& start, const int& end, const std::vector<int>& y, const T3& Xc, const T4& H,   \
       const std::vector<int>& widths, const int& activation, const T7& p_bar,                   \
       const std::vector<int>& axes, const T9& Pi, const double& eta_loc,                        \
       const double& eta_scale, __VA_ARGS__ const T12& weights, const T13& phi,                  \
       const T14& theta, const T15& extra, std::ostream*) {                                      \
    using Return = stan::return_type_t<T13, T14, T15>;                                           \
    return semistan::log_lik<Return>(semistan::FAMILY, start, end, y, Xc, H, widths, activation, \
                                     semistan::NO_TIMES, p_bar, axes, Pi, eta_loc, eta_scale,    \
                                     TRIALS, weights, phi, theta, 1.0, extra);                   \
  }                                                                                              \
  template <typename T3, typename T4, typename T7, typename T8, typename T10, typename T13,      \
            typename T14, typename T15, typename T16>                                            \
  stan::promote_args_t<stan::value_type_t<T3>, stan::value_type_t<T4>, stan::value_type_t<T7>,   \
                       stan::value_type_t<T8>, stan::value_type_t<T10>,                          \
                       stan::promote_args_t<stan::value_type_t<T13>, stan::value_type_t<T14>,    \
                                            stan::value_type_t<T15>, stan::value_type_t<T16>>>   \
  NAME(const int& start, const int& end, const std::vector<int>& y, const T3& Xc, const T4& H,   \
       const std::vector<std::vector<int>>& widths, const std::vector<int>& activation,          \
       const T7& times, const T8& p_bar, const std::vector<int>& axes, const T10& Pi,            \
       const double& eta_loc, const double& eta_scale, __VA_ARGS__ const T13& weights,           \
       const T14& phi, const T15& theta, const T16& extra, std::ostream*) {                      \
    using Return = stan::return_type_t<T14, T15, T16>;                                           \
    return semistan::log_lik<Return>(semistan::FAMILY, start, end, y, Xc, H, widths, activation, \
                                     times, p_bar, axes, Pi, eta_loc, eta_scale, TRIALS,         \
                                     weights, phi, theta, 1.0, extra);                           \
  }

SEMISTAN_COUNT_FAMILY(poisson_log_lik, POISSON, {}, )
SEMISTAN_COUNT_FAMILY(bernoulli_log_lik, BERNOULLI, {}, )
SEMISTAN_COUNT_FAMILY(binomial_log_lik, BINOMIAL, trials, const std::vector<int>& trials, )

#undef SEMISTAN_COUNT_FAMILY

}  // namespace program_model_namespace

#endif
