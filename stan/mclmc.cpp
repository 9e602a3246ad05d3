// A main program for a model that CmdStan compiles: microcanonical Langevin Monte Carlo, which
// writes a Stan CSV file as CmdStan's sampler does.
//
//   mclmc data=data.json init=init.json output=chain.csv seed=1 id=1 num_warmup=500
//     num_samples=1000 steps=5 energy_variance=5e-4 [sig_figs=10] [refresh=100]
//     [motion=motion.json]
//
// With L = -log p(q | y), n the number of coordinates and u a velocity of length 1, the chain
// follows
//
//   dq/dt = S u,    du/dt = -(1 - u u') S grad L(q) / (n - 1),
//
// S a diagonal of scales, by steps of the minimal-norm integrator with two gradients each; after
// each, noise turns the velocity so that it forgets its direction over a distance `length`. No
// step is rejected. An iteration has `steps` of them. In warm-up, the step's size is adapted to a
// squared error of the energy of `energy_variance` for each coordinate; after a quarter, a half
// and three quarters of it, S becomes the standard deviations of the draws since the time before,
// and the length sqrt(n); at its end, the length becomes a share of that over which draws are
// correlated. A file `motion` with `step`, `length` and `metric`, the squares of S, is of a
// chain that goes on: it has no warm-up.
//
// Robnik, De Luca, Silverstein and Seljak (2023), JMLR 24; Robnik and Seljak (2024), Fluctuation
// without dissipation: microcanonical Langevin Monte Carlo.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>
#include <boost/random/normal_distribution.hpp>
#include <stan/math/prim/core/init_threadpool_tbb.hpp>
#include <stan/math/rev/core.hpp>
#include <stan/math/rev/functor/gradient.hpp>
#include <stan/model/model_base.hpp>
#include <stan/services/util/create_rng.hpp>
#include <stan/version.hpp>
#if __has_include(<stan/io/json/json_data.hpp>)
#include <stan/io/json/json_data.hpp>
using stan::json::json_data;
#else
#include <cmdstan/io/json/json_data.hpp>
using cmdstan::json::json_data;
#endif

stan::model::model_base& new_model(stan::io::var_context& data, unsigned int seed,
                                   std::ostream* messages);

namespace semistan {

using Model = stan::model::model_base;
using Rng = decltype(stan::services::util::create_rng(0u, 0u));
using Vector = Eigen::VectorXd;
using Settings = std::map<std::string, std::string>;

constexpr double MINIMAL_NORM = 0.1931833275037836;  // share of a step that its ends turn u
constexpr double FIRST_STEP = 0.05;      // for each sqrt(n); the first steps adapt it
constexpr double OF_CORRELATION = 0.4;   // length, in that over which draws are correlated
constexpr double TRUST = 9.0;            // width, in logs, of errors that say what a step should be
constexpr double MEMORY = 150;           // steps that the adapted step averages over
constexpr double SHRINKAGE = 5.0;        // draws that the scales before count as
constexpr double LARGEST_ERROR = 1.0;    // for each coordinate, above which a step is not taken
constexpr double NO_ERROR_AT_ALL = 1e-8, TINY = 1e-300;  // whose logs are still finite
constexpr int GRADIENTS = 2;             // of a step
constexpr double NOT_FINITE = std::numeric_limits<double>::quiet_NaN();

struct Place {
  Vector q;
  double L;
  Vector gradient;

  bool finite() const { return std::isfinite(L) && gradient.allFinite(); }
};

struct Motion {
  double step, length;
  Vector scale;
};

// Evaluates L at a place; where the model rejects it, L is not finite.
inline void evaluate(const Model& model, Place& place) {
  // The model takes q without changing it, and refers to it until the gradient is known.
  const auto log_density = [&](const Eigen::Matrix<stan::math::var, Eigen::Dynamic, 1>& q) {
    return model.log_prob_propto_jacobian(
        const_cast<Eigen::Matrix<stan::math::var, Eigen::Dynamic, 1>&>(q), nullptr);
  };
  try {
    stan::math::gradient(log_density, place.q, place.L, place.gradient);
    place.L = -place.L;
    place.gradient = -place.gradient;
  } catch (const std::exception&) {
    place.L = NOT_FINITE;
  }
}

// Lets a slope, S grad L, turn the velocity for some time, and returns the gain of
// (n - 1) log r, r the magnitude of the momentum.
inline double turn(Vector& u, const Vector& slope, double time) {
  const double norm = slope.norm(), dimensions = static_cast<double>(u.size() - 1);
  if (norm == 0) return 0;
  const double d = time * norm / dimensions, along = -slope.dot(u) / norm;
  const double decay = std::exp(-d);  // both sides of the solution are divided by exp(d) / 2
  const double half = (1 + along + (1 - along) * decay * decay) / 2;
  const Vector turned
      = 2 * decay * u - (1 - decay) * (1 + decay + along * (1 - decay)) / norm * slope;
  const double length = turned.norm();
  // straight up a steep slope, nothing turns
  if (std::min(length, half) < TINY) return -dimensions * d;
  u = turned / length;
  return dimensions * (d + std::log(half));
}

// Takes a step of the minimal-norm integrator and returns the error of the energy, which is not
// finite where L is not.
inline double integrate(const Model& model, Place& place, Vector& u, const Motion& motion) {
  const double b = MINIMAL_NORM * motion.step, before = place.L;
  double energy = turn(u, motion.scale.cwiseProduct(place.gradient), b);
  for (double time : {motion.step - 2 * b, b}) {
    place.q += motion.step / 2 * motion.scale.cwiseProduct(u);
    evaluate(model, place);
    if (!place.finite()) return NOT_FINITE;
    energy += turn(u, motion.scale.cwiseProduct(place.gradient), time);
  }
  return energy + place.L - before;
}

// Returns the average over coordinates of the draws that one independent draw takes, from
// autocorrelations that are summed in pairs until one is negative (Geyer, 1992).
inline double correlation_time(const std::vector<Vector>& draws) {
  const int S = static_cast<int>(draws.size()), n = static_cast<int>(draws[0].size());
  double total = 0, moving = 0;
  std::vector<double> x(S);
  for (int i = 0; i < n; ++i) {
    double mean = 0;
    for (int s = 0; s < S; ++s) mean += draws[s][i] / S;
    for (int s = 0; s < S; ++s) x[s] = draws[s][i] - mean;
    const auto covariance = [&](int lag) {
      double sum = 0;
      for (int s = lag; s < S; ++s) sum += x[s] * x[s - lag];
      return sum;
    };
    const double variance = covariance(0);
    if (!(variance > 0)) continue;
    double time = -1;
    for (int lag = 0; lag + 1 < S; lag += 2) {
      const double pair = (covariance(lag) + covariance(lag + 1)) / variance;
      if (!(pair > 0)) break;
      time += 2 * pair;
    }
    total += std::min(std::max(time, 1.0), static_cast<double>(S));
    ++moving;
  }
  return moving > 0 ? total / moving : 1;
}

// The size of a step at which the energy's error has the variance that it should have. The
// squared error is taken to grow with the sixth power of the step; one far from what it should be
// says little, and weighs less the further it is.
class Adaptation {
 public:
  double step(double before, double error, double variance) {
    if (!std::isfinite(error)) return largest = 0.8 * before;
    const double ratio = error * error / variance + NO_ERROR_AT_ALL;
    const double own = std::exp(-std::pow(std::log(ratio) / TRUST, 2) / 2);
    const double keep = (MEMORY - 1) / (MEMORY + 1);
    total = keep * total + own * ratio / std::pow(before, 6);
    weight = keep * weight + own;
    return std::min(std::pow(weight / total, 1.0 / 6), largest);
  }

 private:
  double total = 0, weight = 0, largest = std::numeric_limits<double>::infinity();
};

inline const std::string& text(const Settings& settings, const std::string& name) {
  const auto found = settings.find(name);
  if (found == settings.end()) throw std::invalid_argument("mclmc needs " + name + "=...");
  return found->second;
}

inline double number(const Settings& settings, const std::string& name) {
  const std::string& written = text(settings, name);
  char* end;
  const double value = std::strtod(written.c_str(), &end);
  if (written.empty() || *end)
    throw std::invalid_argument("mclmc: " + name + " takes a number, got '" + written + "'");
  return value;
}

inline int count(const Settings& settings, const std::string& name) {
  return static_cast<int>(number(settings, name));
}

inline json_data json_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("mclmc cannot read '" + path + "'");
  return json_data(file);
}

// One chain: where it is, how it moves, and its random numbers.
class Chain {
 public:
  Chain(const Model& model, const Settings& settings)
      : model(model),
        steps(count(settings, "steps")),
        warmup(count(settings, "num_warmup")),
        variance(number(settings, "energy_variance")),
        rng(stan::services::util::create_rng(
            static_cast<unsigned int>(number(settings, "seed")),
            static_cast<unsigned int>(number(settings, "id")))) {
    std::vector<double> start;
    std::vector<int> integers;
    model.transform_inits(json_file(text(settings, "init")), integers, start, &std::cout);
    place.q = Eigen::Map<const Vector>(start.data(), start.size());
    n = static_cast<int>(start.size());
    if (n < 2) throw std::domain_error("mclmc needs at least two parameters to sample");
    evaluate(model, place);
    if (!place.finite())
      throw std::domain_error("chain " + text(settings, "id")
                              + " starts where the posterior is not finite");
    u = direction();
    const double root = std::sqrt(static_cast<double>(n));
    motion = Motion{FIRST_STEP * root, root, Vector::Ones(n)};
    if (settings.count("motion")) take(json_file(text(settings, "motion")));
  }

  // Takes the chain to its next draw; in warm-up, adapts how it moves.
  void move(int done) {
    estimate(done);
    double squares = 0;
    for (int i = 0; i < steps; ++i) {
      Place there = place;
      Vector turned = u;
      double error = integrate(model, there, turned, motion);
      if (std::abs(error) <= LARGEST_ERROR * n) {
        place = there;
        u = turned;
        refresh();
      } else {  // or not finite: the chain stays where it is, and turns
        error = NOT_FINITE;
        u = direction();
      }
      if (done < warmup) motion.step = adaptation.step(motion.step, error, n * variance);
      squares += error * error;
    }
    energy_error = squares / steps / n;
    if (done < warmup) past.push_back(place.q);
  }

  const Model& model;
  const int steps, warmup;
  const double variance;
  Rng rng;
  int n;
  Place place;
  Vector u;
  Motion motion;
  double energy_error = 0;

 private:
  void take(const stan::io::var_context& given) {
    const std::vector<double> squares = given.vals_r("metric");
    if (static_cast<int>(squares.size()) != n)
      throw std::invalid_argument("mclmc: the metric has another size than the parameters");
    motion = Motion{given.vals_r("step")[0], given.vals_r("length")[0],
                    Eigen::Map<const Vector>(squares.data(), n).cwiseSqrt()};
  }

  // Finds anew how the chain moves, when it is time to ask the draws of warm-up.
  void estimate(int done) {
    const auto share = [&](double of) { return static_cast<int>(std::nearbyint(of * warmup)); };
    const bool now = done == share(0.25) || done == share(0.5) || done == share(0.75);
    if (!done || past.empty() || !(now || done == warmup)) return;
    const int S = static_cast<int>(past.size());
    Vector mean = Vector::Zero(n), square = Vector::Zero(n);
    for (const Vector& q : past) mean += q / S;
    for (const Vector& q : past) square += (q - mean).cwiseAbs2();
    if (square.maxCoeff() > 0 && done == warmup) {
      motion.length = OF_CORRELATION * steps * correlation_time(past) * motion.step;
    } else if (square.maxCoeff() > 0) {
      const double before = motion.scale.squaredNorm();
      motion.scale
          = ((square + SHRINKAGE * motion.scale.cwiseAbs2()) / (S + SHRINKAGE)).cwiseSqrt();
      // The step is as long as it was, in the new units, and adapted anew from there.
      motion.step *= std::sqrt(before / motion.scale.squaredNorm());
      motion.length = std::sqrt(static_cast<double>(n));
      adaptation = Adaptation();
    }
    past.clear();
  }

  Vector noise() {
    Vector z(n);
    for (int i = 0; i < n; ++i) z[i] = normal(rng);
    return z;
  }

  Vector direction() { return noise().normalized(); }

  // Turns the velocity at random, by as much as a step makes it forget.
  void refresh() {
    const double nu = std::sqrt(std::expm1(2 * motion.step / motion.length) / n);
    u = (u + nu * noise()).normalized();
  }

  boost::random::normal_distribution<double> normal;
  Adaptation adaptation;
  std::vector<Vector> past;
};

// The chain's file, in the layout of CmdStan's sampler.
class Output {
 public:
  Output(const Settings& settings, const Model& model) : file(text(settings, "output")) {
    if (!file) throw std::runtime_error("mclmc cannot write '" + text(settings, "output") + "'");
    const auto own = [&](const char* name) { return text(settings, name); };
    file << std::setprecision(count(settings, "sig_figs"))
         << "# stan_version_major = " << stan::MAJOR_VERSION
         << "\n# stan_version_minor = " << stan::MINOR_VERSION
         << "\n# stan_version_patch = " << stan::PATCH_VERSION
         << "\n# model = " << model.model_name() << "\n# method = sample\n#   sample"
         << "\n#     num_samples = " << own("num_samples")
         << "\n#     num_warmup = " << own("num_warmup")
         << "\n#     save_warmup = 0\n#     thin = 1\n#     algorithm = mclmc"
         << "\n#         max_depth = 10\n#       metric = diag_e\n#       stepsize = 1"
         << "\n# id = " << own("id") << "\n# data\n#   file = " << own("data")
         << "\n# random\n#   seed = " << own("seed")
         << "\n# output\n#   sig_figs = " << own("sig_figs")
         << "\n# Not by CmdStan: drawn by unadjusted microcanonical Langevin Monte Carlo on the"
         << " compiled program; n_leapfrog__ counts gradients\n"
         << "lp__,accept_stat__,stepsize__,treedepth__,n_leapfrog__,divergent__,energy__";
    std::vector<std::string> names;
    model.constrained_param_names(names, true, true);
    columns = names.size();
    for (const std::string& name : names) file << ',' << name;
    file << ",energy_error__\n";
  }

  // Says how the chain moves from here on: all that a chain needs to go on from its last draw.
  void adapted(const Motion& motion) {
    const auto digits = file.precision(17);
    file << "# Length = " << motion.length << "\n# Adaptation terminated\n# Step size = "
         << motion.step << "\n# Diagonal elements of inverse mass matrix:\n# ";
    for (int i = 0; i < motion.scale.size(); ++i)
      file << (i ? ", " : "") << motion.scale[i] * motion.scale[i];
    file << '\n';
    file.precision(digits);
  }

  void draw(Chain& chain) {
    std::vector<double> q(chain.place.q.data(), chain.place.q.data() + chain.n), written;
    std::vector<int> integers;
    try {
      chain.model.write_array(chain.rng, q, integers, written, true, true, &std::cout);
    } catch (const std::exception& error) {
      std::cout << error.what() << std::endl;
    }
    written.resize(columns, NOT_FINITE);
    file << -chain.place.L << ",1," << chain.motion.step << ",0," << GRADIENTS * chain.steps
         << ",0," << chain.place.L;
    for (double value : written) file << ',' << value;
    file << ',' << chain.energy_error << '\n';
  }

  void finish(double warmup, double sampling) {
    file << "# \n#  Elapsed Time: " << warmup << " seconds (Warm-up)\n#                "
         << sampling << " seconds (Sampling)\n#                " << warmup + sampling
         << " seconds (Total)\n# \n";
    file.close();
    if (!file) throw std::runtime_error("mclmc cannot write its output: is the disk full?");
  }

 private:
  std::ofstream file;
  std::size_t columns;
};

inline void report(int done, int total, int warmup, int every) {
  if (done != 1 && done != total && done % every != 0) return;
  std::cout << "Iteration: " << std::setw(6) << done << " / " << total << " [" << std::setw(3)
            << 100 * static_cast<long>(done) / total << "%]  ("
            << (done <= warmup ? "Warmup" : "Sampling") << ')' << std::endl;
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline void mclmc(Settings settings) {
  settings.insert({{"sig_figs", "10"}, {"refresh", "100"}});
  stan::math::init_threadpool_tbb();
  json_data data = json_file(text(settings, "data"));
  const Model& model
      = new_model(data, static_cast<unsigned int>(number(settings, "seed")), &std::cout);
  Chain chain(model, settings);
  Output output(settings, model);
  const int warmup = chain.warmup, total = warmup + count(settings, "num_samples");
  const int every = std::max(1, count(settings, "refresh"));
  auto start = std::chrono::steady_clock::now();
  double warming = 0;
  for (int done = 0; done < total; ++done) {
    chain.move(done);
    if (done == warmup) output.adapted(chain.motion);
    if (done >= warmup) output.draw(chain);
    report(done + 1, total, warmup, every);
    if (done + 1 == warmup) {
      warming = seconds_since(start);
      start = std::chrono::steady_clock::now();
    }
  }
  output.finish(warming, seconds_since(start));
}

}  // namespace semistan

int main(int argc, const char* argv[]) {
  try {
    semistan::Settings settings;
    for (int i = 1; i < argc; ++i) {
      const std::string word(argv[i]);
      const std::size_t at = word.find('=');
      if (at == std::string::npos)
        throw std::invalid_argument("mclmc takes name=value, got '" + word + "'");
      settings[word.substr(0, at)] = word.substr(at + 1);
    }
    semistan::mclmc(settings);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 70;
  }
}
