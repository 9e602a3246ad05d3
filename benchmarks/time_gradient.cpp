// A main program in CmdStan's place, which answers requests on standard input:
//
//   point q_1 ... q_n   keep the unconstrained state q; print the log density
//                       and its gradient there, with 17 digits
//   time m              evaluate both m times; print the seconds taken
//
//   STAN_NUM_THREADS=1 program data.json
//
// The process lives as long as its input, so that contenders can take turns.

#include <chrono>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>
#include <stan/math/rev.hpp>
#include <stan/model/log_prob_grad.hpp>
#include <stan/model/model_base.hpp>
#if __has_include(<stan/io/json/json_data.hpp>)
#include <stan/io/json/json_data.hpp>
using stan::json::json_data;
#else
#include <cmdstan/io/json/json_data.hpp>
using cmdstan::json::json_data;
#endif

stan::model::model_base& new_model(stan::io::var_context& data, unsigned int seed,
                                   std::ostream* messages);

static stan::model::model_base& read_model(const char* path) {
  std::ifstream file(path);
  json_data data(file);
  return new_model(data, 0, &std::cerr);
}

int main(int, char* argv[]) {
  stan::math::init_threadpool_tbb();  // with STAN_NUM_THREADS threads
  const stan::model::model_base& model = read_model(argv[1]);
  std::vector<double> q, gradient;
  std::vector<int> integers;
  const auto evaluate = [&]() {
    return stan::model::log_prob_grad<false, true>(model, q, integers, gradient, &std::cerr);
  };
  std::cout << std::setprecision(17);

  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string request;
    words >> request;
    if (request == "point") {
      q.clear();
      for (double value; words >> value;) q.push_back(value);
      std::cout << evaluate();
      for (double value : gradient) std::cout << ' ' << value;
    } else {
      long evaluations = 0;
      words >> evaluations;
      const auto start = std::chrono::steady_clock::now();
      for (long i = 0; i < evaluations; ++i) evaluate();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      std::cout << taken.count();
    }
    std::cout << std::endl;
  }
  return 0;
}
