// generated with semistan 0.1.0
// formula: y | weights(w) ~ x1 + nn(u1, u2, u3), shape ~ x2
// family: negbinomial, link: log
//
// The model of each row:
//   y ~ neg_binomial_2_log(eta, shape) to the power of its weight
//   eta = eta_loc + eta_scale f(u1, u2, u3; w) + (x - x_loc)' theta
//   x = (x1)
//   log shape = shape_loc + tau_shape + (x_shape - x_loc_shape)' theta_shape
//   x_shape = (x2)
//   w = p_bar + Pi phi
// Priors as used, in the units of the data:
//   phi ~ normal(0, 5)
//   b_x1 ~ normal(0, 1.83693)
//   tau_shape ~ student_t(3, 0, 2.5)
//   b_shape_x2 ~ normal(0, 4.93095)
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

  // Log-likelihood of rows start to end, the slice that one thread computes.
  real partial_log_lik(array[] int slice, int start, int end,
                       data array[] int y, data matrix Xc, data matrix H,
                       data array[] int widths, data int activation,
                       data vector p_bar, data matrix Pi, data real eta_loc,
                       data real eta_scale, data vector weights,
                       data real shape_loc, data matrix Xc_shape, vector phi,
                       vector theta, real tau_shape, vector theta_shape) {
    vector[end - start + 1] f
      = network(H[start : end], p_bar + Pi * phi, widths, activation);
    vector[end - start + 1] eta  // linear predictor
      = eta_loc + eta_scale * f + Xc[start : end] * theta;
    vector[end - start + 1] shape  // of each row
      = exp(shape_loc + tau_shape
            + Xc_shape[start : end] * theta_shape);
    real total = 0;
    for (n in start : end) {
      total += weights[n]
        * neg_binomial_2_log_lpmf(y[n] | eta[n - start + 1],
          shape[n - start + 1]);
    }
    return total;
  }
}
data {
  // Rows
  int<lower=1> N;  // rows
  array[N] int y;  // response
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

  // Subspace: w = p_bar + Pi phi
  int<lower=1> d;  // Bayesian weights
  int<lower=1> k;  // dimension of the subspace
  vector[d] p_bar;  // weights at phi = 0
  matrix[d, k] Pi;  // directions of the subspace
  vector<lower=0>[k] phi_scale;  // unit of each coordinate

  // Known of each row
  vector<lower=0>[N] weights;  // of each row's log-likelihood

  // Other terms and predictors
  real shape_loc;  // log of the unit of shape
  int<lower=1> P_shape;  // structured coefficients of log shape
  matrix[N, P_shape] X_shape;  // their design, without an intercept
  vector[P_shape] x_loc_shape;  // mean of each column of X_shape
  vector<lower=0>[P_shape] theta_scale_shape;  // unit of each coefficient

  // Priors
  vector[k] prior_phi_location;  // normal prior on phi: location
  vector<lower=0>[k] prior_phi_scale;  // normal prior on phi: scale
  vector[P] prior_b_location;  // normal prior on theta: location
  vector<lower=0>[P] prior_b_scale;  // normal prior on theta: scale
  // student_t prior on tau_shape: degrees of freedom
  real<lower=0> prior_b_shape_Intercept_df;
  // student_t prior on tau_shape: location
  real prior_b_shape_Intercept_location;
  // student_t prior on tau_shape: scale
  real<lower=0> prior_b_shape_Intercept_scale;
  // normal prior on theta_shape: location
  vector[P_shape] prior_b_shape_location;
  // normal prior on theta_shape: scale
  vector<lower=0>[P_shape] prior_b_shape_scale;

  // How to sample
  int<lower=0, upper=1> prior_only;  // leave the likelihood out?
  int<lower=1> grainsize;  // rows per slice of reduce_sum
}
transformed data {
  array[N] int slice = linspaced_int_array(N, 1, N);  // rows to be split
  matrix[N, P] Xc;  // structured design, centred
  matrix[N, P_shape] Xc_shape;  // structured design of log shape, centred
  matrix[N, Q] H;  // input of the first Bayesian layer
  for (j in 1 : P) Xc[ : , j] = X[ : , j] - x_loc[j];
  for (j in 1 : P_shape) {
    Xc_shape[ : , j] = X_shape[ : , j] - x_loc_shape[j];
  }
  for (j in 1 : Q) H[ : , j] = (U[ : , j] - u_loc[j]) / u_scale[j];
}
parameters {
  vector<multiplier=phi_scale>[k] phi;  // subspace coordinates
  vector<multiplier=theta_scale>[P] theta;  // structured coefficients
  real tau_shape;  // log shape at average columns, over its unit
  // structured coefficients of log shape
  vector<multiplier=theta_scale_shape>[P_shape] theta_shape;
}
transformed parameters {
  real lprior = 0;  // log prior density
  lprior += normal_lpdf(phi | prior_phi_location, prior_phi_scale);
  lprior += normal_lpdf(theta | prior_b_location, prior_b_scale);
  lprior += student_t_lpdf(tau_shape | prior_b_shape_Intercept_df,
                           prior_b_shape_Intercept_location,
                           prior_b_shape_Intercept_scale);
  lprior += normal_lpdf(theta_shape | prior_b_shape_location,
                        prior_b_shape_scale);
}
model {
  if (!prior_only) {
    target += reduce_sum(partial_log_lik, slice, grainsize, y, Xc, H, widths,
                         activation, p_bar, Pi, eta_loc, eta_scale, weights,
                         shape_loc, Xc_shape, phi, theta, tau_shape,
                         theta_shape);
  }
  target += lprior;
}
generated quantities {
  real b_Intercept  // mean of eta over the rows, moved to X = 0
    = eta_loc
      + eta_scale
        * mean(network(H, p_bar + Pi * phi, widths, activation))
      - dot_product(x_loc, theta);
  real b_x1 = theta[1];
  real b_shape_Intercept  // log shape, moved to X_shape = 0
    = shape_loc + tau_shape
      - dot_product(x_loc_shape, theta_shape);
  real b_shape_x2 = theta_shape[1];  // x2
}
