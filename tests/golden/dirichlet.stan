// generated with semistan 0.1.0
// formula: cbind(bus, car, train) ~ x1 + nn(u1, u2, u3), mutrain ~ x1 +
//   nn(u1, u2, u3)
// family: dirichlet, link: logit
// categories: 1 bus, 2 car, 3 train
//
// The model of each row:
//   y ~ dirichlet_logit(logits', precision)
//   logits = (0, mucar, mutrain)
//   mucar = eta_loc + eta_scale f_1(u1, u2, u3; w_1) + (x - x_loc)' theta
//   x = (x1)
//   mutrain = mutrain_loc + f_2(u1, u2, u3; w_2) +
//     (x_mutrain - x_loc_mutrain)' theta_mutrain
//   x_mutrain = (x1)
//   w = (w_1, w_2)
//   w = p_bar + Pi phi
// Priors as used, in the units of the data:
//   phi ~ normal(0, 5)
//   b_mucar_x1 ~ normal(0, 1.83693)
//   b_mutrain_x1 ~ normal(0, 1.83693)
//   precision ~ exponential(0.05)
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

  // Outputs of one network, a column for each: they share its hidden layers.
  matrix network_outputs(matrix H, vector w, array[] int widths,
                         int activation) {
    int last = size(widths);
    int used = n_weights(widths[1 : last - 1]);
    return affine(hidden_layers(H, w, widths[1 : last - 1], activation),
                  w[used + 1 : num_elements(w)], widths[last - 1],
                  widths[last]);
  }

  // Several networks side by side.
  //
  // `widths` has a row for each network, with 0 behind the last layer of one
  // that has fewer than others. The columns of H are the inputs of the first,
  // then those of the second, and so on; w holds their weights likewise.

  // Number of widths, inputs and outputs among them, of one network.
  int n_widths(array[] int widths) {
    int n = size(widths);
    while (widths[n] == 0) n -= 1;
    return n;
  }

  // Number of outputs of all networks.
  int n_outputs(array[,] int widths) {
    int n = 0;
    for (i in 1 : size(widths)) n += widths[i, n_widths(widths[i])];
    return n;
  }

  // Outputs of all networks side by side, a column for each.
  matrix outputs(matrix H, vector w, array[,] int widths,
                 array[] int activation) {
    matrix[rows(H), n_outputs(widths)] F;
    int column = 0;  // of H that is taken
    int used = 0;  // weights
    int filled = 0;  // columns of F
    for (i in 1 : size(widths)) {
      int last = n_widths(widths[i]);
      int m = widths[i, 1];
      int n = widths[i, last];
      int d = n_weights(widths[i]);
      if (m == 0) {  // a constant
        F[ : , filled + 1] = rep_vector(w[used + 1], rows(H));
      } else {
        F[ : , filled + 1 : filled + n]
          = network_outputs(H[ : , column + 1 : column + m],
                            w[used + 1 : used + d], widths[i, 1 : last],
                            activation[i]);
      }
      column += m;
      used += d;
      filled += n;
    }
    return F;
  }

  // Shares by the log odds of their means against the first one. As
  // 1 / gamma(a) is a / gamma(1 + a), it is finite where an a underflows.
  real dirichlet_logit_lpdf(vector y, vector logits, real precision) {
    vector[rows(y)] log_a = log(precision) + log_softmax(logits);
    vector[rows(y)] a = exp(log_a);
    return lgamma(precision) + sum(log_a) - sum(lgamma(1 + a))
           + dot_product(a - 1, log(y));
  }
  // Below 1e-300 a parameter makes no difference.
  vector dirichlet_logit_rng(vector logits, real precision) {
    return dirichlet_rng(fmax(precision * softmax(logits), 1e-300));
  }

  // Log-likelihood of rows start to end, the slice that one thread computes.
  real partial_log_lik(array[] int slice, int start, int end,
                       data array[] vector y, data matrix Xc, data matrix H,
                       data array[,] int widths, data array[] int activation,
                       data vector p_bar, data matrix Pi, data real eta_loc,
                       data real eta_scale, data real mutrain_loc,
                       data matrix Xc_mutrain, vector phi, vector theta,
                       real precision, vector theta_mutrain) {
    matrix[end - start + 1, 2] F  // outputs of the networks
      = outputs(H[start : end], p_bar + Pi * phi, widths, activation);
    vector[end - start + 1] f = F[ : , 1];
    vector[end - start + 1] eta  // linear predictor, mucar
      = eta_loc + eta_scale * f + Xc[start : end] * theta;
    vector[end - start + 1] mutrain  // linear predictor
      = mutrain_loc
        + Xc_mutrain[start : end] * theta_mutrain
        + F[ : , 2];
    // Log odds of each category against the first one.
    matrix[end - start + 1, 3] logits = rep_matrix(0, end - start + 1, 3);
    logits[ : , 2] = eta;
    logits[ : , 3] = mutrain;
    real total = 0;
    for (n in start : end) {
      total += dirichlet_logit_lpdf(y[n] | logits[n - start + 1]', precision);
    }
    return total;
  }
}
data {
  // Rows
  int<lower=1> N;  // rows
  array[N] vector<lower=0, upper=1>[3] y;  // response
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
  int<lower=1> n_networks;  // networks
  int<lower=1> n_layers;  // layers, the output layer included, of the deepest
  // of each: inputs, hidden units, outputs
  array[n_networks, n_layers + 1] int<lower=0> widths;
  array[n_networks] int<lower=1, upper=5> activation;  // 1 tanh ... 5 identity

  // Subspace: w = p_bar + Pi phi
  int<lower=1> d;  // Bayesian weights
  int<lower=1> k;  // dimension of the subspace
  vector[d] p_bar;  // weights at phi = 0
  matrix[d, k] Pi;  // directions of the subspace
  vector<lower=0>[k] phi_scale;  // unit of each coordinate

  // Other terms and predictors
  real mutrain_loc;  // location of mutrain
  int<lower=1> P_mutrain;  // structured coefficients of mutrain
  matrix[N, P_mutrain] X_mutrain;  // their design, without an intercept
  vector[P_mutrain] x_loc_mutrain;  // mean of each column of X_mutrain
  vector<lower=0>[P_mutrain] theta_scale_mutrain;  // unit of each coefficient

  // Priors
  vector[k] prior_phi_location;  // normal prior on phi: location
  vector<lower=0>[k] prior_phi_scale;  // normal prior on phi: scale
  vector[P] prior_b_location;  // normal prior on theta: location
  vector<lower=0>[P] prior_b_scale;  // normal prior on theta: scale
  // normal prior on theta_mutrain: location
  vector[P_mutrain] prior_b_mutrain_location;
  // normal prior on theta_mutrain: scale
  vector<lower=0>[P_mutrain] prior_b_mutrain_scale;
  real<lower=0> prior_precision_rate;  // exponential prior on precision: rate

  // How to sample
  int<lower=0, upper=1> prior_only;  // leave the likelihood out?
  int<lower=1> grainsize;  // rows per slice of reduce_sum
}
transformed data {
  array[N] int slice = linspaced_int_array(N, 1, N);  // rows to be split
  matrix[N, P] Xc;  // structured design, centred
  matrix[N, P_mutrain] Xc_mutrain;  // structured design of mutrain, centred
  matrix[N, Q] H;  // input of the first Bayesian layer
  for (j in 1 : P) Xc[ : , j] = X[ : , j] - x_loc[j];
  for (j in 1 : P_mutrain) {
    Xc_mutrain[ : , j] = X_mutrain[ : , j] - x_loc_mutrain[j];
  }
  for (j in 1 : Q) H[ : , j] = (U[ : , j] - u_loc[j]) / u_scale[j];
}
parameters {
  vector<multiplier=phi_scale>[k] phi;  // subspace coordinates
  vector<multiplier=theta_scale>[P] theta;  // structured coefficients
  // structured coefficients of mutrain
  vector<multiplier=theta_scale_mutrain>[P_mutrain] theta_mutrain;
  real<lower=0> precision;  // precision: large values are less dispersed
}
transformed parameters {
  real lprior = 0;  // log prior density
  lprior += normal_lpdf(phi | prior_phi_location, prior_phi_scale);
  lprior += normal_lpdf(theta | prior_b_location, prior_b_scale);
  lprior += normal_lpdf(theta_mutrain | prior_b_mutrain_location,
                        prior_b_mutrain_scale);
  lprior += exponential_lpdf(precision | prior_precision_rate);
}
model {
  if (!prior_only) {
    target += reduce_sum(partial_log_lik, slice, grainsize, y, Xc, H, widths,
                         activation, p_bar, Pi, eta_loc, eta_scale, mutrain_loc,
                         Xc_mutrain, phi, theta, precision, theta_mutrain);
  }
  target += lprior;
}
generated quantities {
  real b_mucar_Intercept  // mean of mucar over the rows, moved to X = 0
    = eta_loc
      + eta_scale
        * mean(outputs(H, p_bar + Pi * phi, widths, activation)[ : , 1])
      - dot_product(x_loc, theta);
  real b_mucar_x1 = theta[1];  // x1
  real b_mutrain_Intercept  // mean of mutrain, moved to X_mutrain = 0
    = mutrain_loc
      + mean(outputs(H, p_bar + Pi * phi, widths, activation)[ : , 2])
      - dot_product(x_loc_mutrain, theta_mutrain);
  real b_mutrain_x1 = theta_mutrain[1];  // x1
}
