// The functions that a generated program declares when it uses the C++ kernel:
// the log-likelihoods of some families, and the network. CmdStan's USER_HEADER. The model
// must be named program_model, because an external function is looked up in the
// namespace of its model.
//
// stanc before 2.32 declares external functions itself, as templates; the
// definitions at the end repeat its signatures.

#ifndef SEMISTAN_LOG_LIK_HPP
#define SEMISTAN_LOG_LIK_HPP

#include <type_traits>
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

// `weights` of all rows and `extra` of rows start to end may have no elements. The first elements
// of phi move the weights at `axes`, or all weights where neither axes nor directions are given.
template <typename Return, typename Y, typename X, typename U, typename Shift, typename Basis,
          typename Weights, typename Phi, typename Theta, typename Sigma, typename Extra>
inline Return log_lik(Family family, int start, int end, const Y& y, const X& Xc, const U& H,
                      const std::vector<int>& widths, int activation, const Shift& p_bar,
                      const std::vector<int>& axes, const Basis& Pi, double eta_loc,
                      double eta_scale, const std::vector<int>& trials, const Weights& weights,
                      const Phi& phi, const Theta& theta, const Sigma& sigma,
                      const Extra& extra) {
  using stan::math::value_of;
  using Vector = Eigen::VectorXd;
  const auto& by_row = stan::math::to_ref(weights);
  const auto& further = stan::math::to_ref(extra);
  const Vector phi_value = value_of(phi), theta_value = value_of(theta);
  const Vector extra_value = value_of(further);
  const int b = static_cast<int>(Pi.cols()), a = static_cast<int>(phi_value.size()) - b;
  const auto moved = [&axes](int i) { return axes.empty() ? i : axes[i] - 1; };
  Vector w = p_bar;
  if (b > 0) w.noalias() += Pi * phi_value.tail(b);
  for (int i = 0; i < a; ++i) w[moved(i)] += phi_value[i];
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
  const Network network{static_cast<int>(widths.size()) - 1, widths.data(), activation, w.data()};
  const Predictor predictor{eta_loc, eta_scale, value_of(sigma), theta_value.data()};
  const Result result = log_lik_pass(family, rows, network, predictor);

  Gradient gradient(phi.size() + theta.size() + 1 + further.size());
  Vector d_phi(a + b);
  if (b > 0) d_phi.tail(b) = Pi.transpose() * Eigen::Map<const Vector>(result.d_w.data(), w.size());
  for (int i = 0; i < a; ++i) d_phi[i] = result.d_w[moved(i)];
  gradient.add(phi, d_phi.data());
  gradient.add(theta, result.d_theta.data());
  gradient.add(sigma, result.d_sigma);
  gradient.add(further, result.d_extra.data());
  return node(result.log_lik, gradient, std::is_same<Return, stan::math::var>());
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
                                   p_bar, axes, Pi, eta_loc, eta_scale, {}, none, phi, theta,
                                   sigma, none);
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
                                   p_bar, axes, Pi, eta_loc, eta_scale, {}, weights, phi, theta,
                                   sigma, extra);
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
                                     p_bar, axes, Pi, eta_loc, eta_scale, TRIALS, none, phi,     \
                                     theta, 1.0, none);                                          \
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
                                     p_bar, axes, Pi, eta_loc, eta_scale, TRIALS, weights, phi,  \
                                     theta, 1.0, extra);                                         \
  }

SEMISTAN_COUNT_FAMILY(poisson_log_lik, POISSON, {}, )
SEMISTAN_COUNT_FAMILY(bernoulli_log_lik, BERNOULLI, {}, )
SEMISTAN_COUNT_FAMILY(binomial_log_lik, BINOMIAL, trials, const std::vector<int>& trials, )

#undef SEMISTAN_COUNT_FAMILY

}  // namespace program_model_namespace

#endif
