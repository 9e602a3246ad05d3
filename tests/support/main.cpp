// CmdStan's main program with one more method, so that a program is compiled
// once for sampling and for evaluation: it reads unconstrained states from
// standard input, one a line, and prints for each the log density, its gradient
// and all constrained parameters and generated quantities, with 17 digits.
//
//   program evaluate data.json < states.txt

#include <fstream>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>
#include <cmdstan/command.hpp>
#include <stan/math/rev.hpp>
#include <stan/model/log_prob_grad.hpp>
#include <stan/model/model_base.hpp>
#include <stan/services/util/create_rng.hpp>
#if __has_include(<stan/io/json/json_data.hpp>)
#include <stan/io/json/json_data.hpp>
using stan::json::json_data;
#else
#include <cmdstan/io/json/json_data.hpp>
using cmdstan::json::json_data;
#endif

static void print(const std::vector<double>& values) {
  for (double value : values) std::cout << ' ' << value;
}

static int evaluate(const char* path) {
  stan::math::init_threadpool_tbb();
  std::ifstream file(path);
  json_data data(file);
  stan::model::model_base& model = new_model(data, 0, &std::cerr);
  auto rng = stan::services::util::create_rng(0, 0);

  std::vector<std::string> names;
  model.constrained_param_names(names, true, true);
  for (const std::string& name : names) std::cout << name << ' ';
  std::cout << '\n' << std::setprecision(17);

  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::vector<double> q, gradient, written;
    for (double value; words >> value;) q.push_back(value);
    std::vector<int> integers;
    std::cout << stan::model::log_prob_grad<false, true>(model, q, integers,
                                                         gradient, &std::cerr);
    print(gradient);
    model.write_array(rng, q, integers, written, true, true, &std::cerr);
    print(written);
    std::cout << '\n';
  }
  return 0;
}

int main(int argc, const char* argv[]) {
  if (argc == 3 && std::string(argv[1]) == "evaluate") return evaluate(argv[2]);
  try {
    return cmdstan::command(argc, argv) == 0 ? 0 : 70;
  } catch (const std::exception& e) {
    std::cerr << e.what() << std::endl;
    return 70;
  }
}
