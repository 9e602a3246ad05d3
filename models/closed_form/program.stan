// generated with semistan 0.1.0
// formula: y ~ x1 + x2 + nn(u1, u2, u3, u4, u5)
// family: gaussian, link: identity
//
// The model of each row:
//   y ~ normal(eta, sigma)
//   eta = eta_loc + eta_scale f(u1, u2, u3, u4, u5; w) + (x - x_loc)' theta
//   x = (x1, x2)
//   w = p_bar + Pi phi
// Priors as used, in the units of the data:
//   phi ~ normal(0, 2)
//   b_x1 ~ normal(0, 2)
//   b_x2 ~ normal(0, 2)
//   sigma ~ constant(1)
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
  real partial_log_lik(array[] int slice, int start, int end, data vector y,
                       data matrix Xc, data matrix H, data array[] int widths,
                       data int activation, data vector p_bar, data matrix Pi,
                       data real eta_loc, data real eta_scale, vector phi,
                       vector theta, real sigma) {
    vector[end - start + 1] f
      = network(H[start : end], p_bar + Pi * phi, widths, activation);
    return normal_id_glm_lpdf(
      y[start : end] | Xc[start : end], eta_loc + eta_scale * f,
      theta, sigma);
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

  // Subspace: w = p_bar + Pi phi
  int<lower=1> d;  // Bayesian weights
  int<lower=1> k;  // dimension of the subspace
  vector[d] p_bar;  // weights at phi = 0
  matrix[d, k] Pi;  // directions of the subspace
  vector<lower=0>[k] phi_scale;  // unit of each coordinate

  // Priors
  vector[k] prior_phi_location;  // normal prior on phi: location
  vector<lower=0>[k] prior_phi_scale;  // normal prior on phi: scale
  vector[P] prior_b_location;  // normal prior on theta: location
  vector<lower=0>[P] prior_b_scale;  // normal prior on theta: scale
  real<lower=0> prior_sigma_value;  // fixed value of sigma

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
}
transformed parameters {
  real sigma = prior_sigma_value;  // residual standard deviation
  real lprior = 0;  // log prior density
  lprior += normal_lpdf(phi | prior_phi_location, prior_phi_scale);
  lprior += normal_lpdf(theta | prior_b_location, prior_b_scale);
}
model {
  if (!prior_only) {
    target += reduce_sum(partial_log_lik, slice, grainsize, y, Xc, H, widths,
                         activation, p_bar, Pi, eta_loc, eta_scale, phi, theta,
                         sigma);
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
  real b_x2 = theta[2];
}
