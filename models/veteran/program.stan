// generated with semistan 0.1.0
// formula: time | cens(1 - status) ~ trt + karno + celltype + nn(age,
//   diagtime, prior)
// family: weibull, link: log
//
// The model of each row:
//   y ~ weibull_censored(eta, shape, cens)
//   eta = eta_loc + eta_scale f(age, diagtime, prior; w) + (x - x_loc)' theta
//   x = (trt, karno, celltype[T.large], celltype[T.smallcell],
//     celltype[T.squamous])
//   w = p_bar + phi, all weights
// Priors as used, in the units of the data:
//   w ~ normal(0, 2 / sqrt(inputs of the layer)), normal(0, 2) of biases
//   output biases ~ normal(0, 2.5)
//   b_trt ~ normal(0, 4.98185)
//   b_karno ~ normal(0, 0.124753)
//   b_celltypelarge ~ normal(0, 6.26169)
//   b_celltypesmallcell ~ normal(0, 5.22101)
//   b_celltypesquamous ~ normal(0, 5.71131)
//   shape ~ lognormal(0, 1)
functions {
  // Activation, elementwise:
  // 1 tanh, 2 relu, 3 softplus, 4 sigmoid, 5 identity.
  matrix activate(matrix Z, int activation) {
    if (activation == 1) return tanh(Z);
    if (activation == 2) return fmax(Z, 0);
    if (activation == 3) return log1p_exp(Z);
    if (activation == 4) return inv_logit(Z);
    return Z;
  }

  // A fully connected network as a pure function of one flat weight vector.
  //
  // Weights are stored layer by layer. A layer that maps m inputs to n units
  // takes m * n weights, the m weights of each unit together, then n biases.
  // `widths` lists the number of inputs, of units in each layer, and so on up
  // to the last; `activation` follows every layer but the output layer.

  // One layer before its activation: every row of H times the weights, plus
  // the biases. A column of ones carries the biases through the product.
  matrix affine(matrix H, vector w, int m, int n) {
    return append_col(H, rep_vector(1, rows(H)))
           * append_row(to_matrix(w[1 : m * n], m, n),
                        to_row_vector(w[m * n + 1 : m * n + n]));
  }

  // Number of weights of the layers between these widths.
  int n_weights(array[] int widths) {
    int d = 0;
    for (l in 2 : size(widths)) d += (widths[l - 1] + 1) * widths[l];
    return d;
  }

  // All layers between these widths, each followed by its activation.
  matrix hidden_layers(matrix H, vector w, array[] int widths, int activation) {
    int last = size(widths);
    if (last == 1) return H;
    if (last == 2) {
      return activate(affine(H, w, widths[1], widths[2]), activation);
    }
    {
      matrix[rows(H), max(widths[2 : last])] A;  // in its first columns
      A[ : , 1 : widths[2]] = activate(affine(H, w, widths[1], widths[2]),
                                       activation);
      for (l in 3 : last) {
        int used = n_weights(widths[1 : l - 1]);
        A[ : , 1 : widths[l]]
          = activate(affine(A[ : , 1 : widths[l - 1]],
                            w[used + 1 : num_elements(w)], widths[l - 1],
                            widths[l]),
                     activation);
      }
      return A[ : , 1 : widths[last]];
    }
  }

  // Network output f(u; w), one number for each row of H.
  vector network(matrix H, vector w, array[] int widths, int activation) {
    int last = size(widths);
    int used = n_weights(widths[1 : last - 1]);
    return affine(hidden_layers(H, w, widths[1 : last - 1], activation),
                  w[used + 1 : num_elements(w)], widths[last - 1], 1)[ : , 1];
  }

  // Log probability that a count is not 0, log(1 - exp(-exp(log_rate))).
  real log_not_zero(real log_rate) {
    if (log_rate < -36) return log_rate;
    return log1m_exp(-exp(fmin(log_rate, 700)));
  }

  // Log probability that a time with mean exp(eta) lies between a and b, by the
  // cumulative hazard.
  real weibull_inside(real a, real b, real eta, real shape) {
    real log_scale = eta - lgamma(1 + inv(shape));
    if (a <= 0 && b == positive_infinity()) return 0;
    if (a <= 0) return log_not_zero(shape * (log(b) - log_scale));
    {
      real log_hazard = shape * (log(a) - log_scale);
      real hazard = exp(fmin(log_hazard, 700));
      if (b == positive_infinity()) return -hazard;
      {
        real grows = shape * (log(b) - log(a));  // of log hazards, from a to b
        return -hazard + log_not_zero(log_hazard + grows + log1m_exp(-grows));
      }
    }
  }

  // A time with mean exp(eta) that is y (cens is 0), or known to be above y
  // (1), below y (-1), or between y and y2 (2).
  real weibull_censored_lpdf(real y, real eta, real shape, int cens, real y2) {
    if (cens == 1) return weibull_inside(y, positive_infinity(), eta, shape);
    if (cens == -1) return weibull_inside(0, y, eta, shape);
    if (cens == 2) return weibull_inside(y, y2, eta, shape);
    {
      real log_scale = eta - lgamma(1 + inv(shape));
      real log_hazard = shape * (log(y) - log_scale);
      return log(shape) - log(y) + log_hazard - exp(fmin(log_hazard, 700));
    }
  }

  // Log-likelihood of rows start to end, the slice that one thread computes.
  real partial_log_lik(array[] int slice, int start, int end, data vector y,
                       data matrix Xc, data matrix H, data array[] int widths,
                       data int activation, data vector p_bar,
                       data real eta_loc, data real eta_scale,
                       data array[] int cens, vector phi, vector theta,
                       real shape) {
    vector[end - start + 1] f
      = network(H[start : end], p_bar + phi, widths, activation);
    vector[end - start + 1] eta  // linear predictor
      = eta_loc + eta_scale * f + Xc[start : end] * theta;
    real total = 0;
    for (n in start : end) {
      total += weibull_censored_lpdf(y[n] | eta[n - start + 1], shape, cens[n],
        y[n]);
    }
    return total;
  }
}
data {
  // Rows
  int<lower=1> N;  // rows
  vector[N] y;  // response
  int<lower=0> P;  // structured coefficients
  matrix[N, P] X;  // structured design, without an intercept
  vector[P] x_loc;  // mean of each column of X
  vector<lower=0>[P] theta_scale;  // unit of each coefficient

  // Network inputs
  int<lower=1> Q;  // network inputs
  matrix[N, Q] U;  // network inputs
  vector[Q] u_loc;  // mean of each network input
  vector<lower=0>[Q] u_scale;  // standard deviation of each input

  // Units of the linear predictor
  real eta_loc;  // location of the linear predictor
  real<lower=0> eta_scale;  // unit of the linear predictor

  // Network
  int<lower=1> n_layers;  // layers, the output layer included
  array[n_layers + 1] int<lower=1> widths;  // Q, hidden units, 1
  int<lower=1, upper=5> activation;  // 1 tanh ... 5 identity

  // Subspace: w = p_bar + phi, all weights
  int<lower=1> d;  // Bayesian weights
  int<lower=d, upper=d> k;  // dimension of the subspace
  vector[d] p_bar;  // weights at phi = 0
  vector<lower=0>[k] phi_scale;  // unit of each coordinate

  // Known of each row
  // 0 observed, 1 above y, -1 below, 2 from y to y2
  array[N] int<lower=-1, upper=2> cens;

  // Priors
  vector[k] prior_phi_location;  // normal prior on phi: location
  vector<lower=0>[k] prior_phi_scale;  // normal prior on phi: scale
  vector[P] prior_b_location;  // normal prior on theta: location
  vector<lower=0>[P] prior_b_scale;  // normal prior on theta: scale
  real prior_shape_meanlog;  // lognormal prior on shape: mean of its logarithm
  // lognormal prior on shape: standard deviation of its logarithm
  real<lower=0> prior_shape_sdlog;

  // How to sample
  int<lower=0, upper=1> prior_only;  // leave the likelihood out?
  int<lower=1> grainsize;  // rows per slice of reduce_sum
}
transformed data {
  array[N] int slice = linspaced_int_array(N, 1, N);  // rows to be split
  matrix[N, P] Xc;  // structured design, centred
  matrix[N, Q] H;  // input of the first Bayesian layer
  for (j in 1 : P) Xc[ : , j] = X[ : , j] - x_loc[j];
  for (j in 1 : Q) H[ : , j] = (U[ : , j] - u_loc[j]) / u_scale[j];
}
parameters {
  vector<multiplier=phi_scale>[k] phi;  // subspace coordinates
  vector<multiplier=theta_scale>[P] theta;  // structured coefficients
  real<lower=0> shape;  // shape: above 1 the hazard rises, below it falls
}
transformed parameters {
  real lprior = 0;  // log prior density
  lprior += normal_lpdf(phi | prior_phi_location, prior_phi_scale);
  lprior += normal_lpdf(theta | prior_b_location, prior_b_scale);
  lprior += lognormal_lpdf(shape | prior_shape_meanlog, prior_shape_sdlog);
}
model {
  if (!prior_only) {
    target += reduce_sum(partial_log_lik, slice, grainsize, y, Xc, H, widths,
                         activation, p_bar, eta_loc, eta_scale, cens, phi,
                         theta, shape);
  }
  target += lprior;
}
generated quantities {
  real b_Intercept  // mean of eta over the rows, moved to X = 0
    = eta_loc
      + eta_scale
        * mean(network(H, p_bar + phi, widths, activation))
      - dot_product(x_loc, theta);
  real b_trt = theta[1];
  real b_karno = theta[2];
  real b_celltypelarge = theta[3];  // celltype[T.large]
  real b_celltypesmallcell = theta[4];  // celltype[T.smallcell]
  real b_celltypesquamous = theta[5];  // celltype[T.squamous]
}
