// generated with semistan 0.1.0
// formula: late | trials(flights) ~ rain_hours + wind + s(day, k=6) + (1 |
//   date) + nn(humidity, visibility, pressure)
// family: binomial, link: logit
//
// The model of each row:
//   y ~ binomial_by_logit(trials, eta)
//   eta = eta_loc + eta_scale f(humidity, visibility, pressure; w) +
//     (x - x_loc)' theta + s(day) + (1 | date)
//   x = (rain_hours, wind, day)
//   w = p_bar + phi, all weights
// Priors as used, in the units of the data:
//   w ~ normal(0, 2 / sqrt(inputs of the layer)), normal(0, 2) of biases
//   output biases ~ normal(0, 2.5)
//   b_rain_hours ~ normal(0, 0.935126)
//   b_wind ~ normal(0, 1.31923)
//   b_day ~ normal(0, 0.0235655)
//   sds_sday_1 ~ normal(0, 0.5)
//   sd_date__Intercept ~ normal(0, 1)
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

  // Units of standardised coefficients z, r = sd * z, that the sampler moves.
  // It is at ease with z where the rows say little of r (non-centred), and with
  // r itself where they say much (centred); this is between them, by the rows'
  // information on each coefficient. The posterior is the same.
  vector partly_centred(vector sd, vector information) {
    return inv_sqrt(1 + square(sd) .* information);
  }

  // Units of standardised coefficients z, r = sd * z, that the sampler moves.
  // It is at ease with z where the rows say little of r (non-centred), and with
  // r itself where they say much (centred); this is between them, by the rows'
  // information on each coefficient. The posterior is the same.
  matrix partly_centred_rows(matrix sd, matrix information) {
    return inv_sqrt(1 + square(sd) .* information);
  }

  // Successes among n trials by the logit of their probability. Stan's own
  // takes the logs of inv_logit(eta) and of 1 less it, infinite far out.
  real binomial_by_logit_lpmf(int y, int n, real eta) {
    return lchoose(n, y) + n * log_inv_logit(eta) - (n - y) * eta;
  }

  // Log-likelihood of rows start to end, the slice that one thread computes.
  real partial_log_lik(array[] int slice, int start, int end,
                       data array[] int y, data matrix Xc, data matrix H,
                       data array[] int widths, data int activation,
                       data vector p_bar, data real eta_loc,
                       data real eta_scale, data array[] int trials,
                       data matrix Zs_1, data array[] int J_1, vector phi,
                       vector theta, vector s_1, matrix r_1) {
    vector[end - start + 1] f
      = network(H[start : end], p_bar + phi, widths, activation);
    vector[end - start + 1] eta  // linear predictor
      = eta_loc + eta_scale * f + Xc[start : end] * theta
        + Zs_1[start : end] * s_1
        + r_1[J_1[start : end], 1];
    real total = 0;
    for (n in start : end) {
      total += binomial_by_logit_lpmf(y[n] | trials[n], eta[n - start + 1]);
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

  // Subspace: w = p_bar + phi, all weights
  int<lower=1> d;  // Bayesian weights
  int<lower=d, upper=d> k;  // dimension of the subspace
  vector[d] p_bar;  // weights at phi = 0
  vector<lower=0>[k] phi_scale;  // unit of each coordinate

  // Known of each row
  array[N] int<lower=0> trials;  // number of trials

  // Other terms and predictors
  int<lower=1> m_1;  // penalised coefficients of s(day)
  matrix[N, m_1] Zs_1;  // basis of s(day)
  int<lower=1> N_1;  // levels of date
  array[N] int<lower=1, upper=N_1> J_1;  // level of each row
  vector<lower=0>[m_1] Is_1;  // information of the rows on s_1
  matrix<lower=0>[N_1, 1] I_1;  // information of the rows on r_1

  // Priors
  vector[k] prior_phi_location;  // normal prior on phi: location
  vector<lower=0>[k] prior_phi_scale;  // normal prior on phi: scale
  vector[P] prior_b_location;  // normal prior on theta: location
  vector<lower=0>[P] prior_b_scale;  // normal prior on theta: scale
  real prior_sds_sday_1_location;  // normal prior on sds_sday_1: location
  real<lower=0> prior_sds_sday_1_scale;  // normal prior on sds_sday_1: scale
  // normal prior on sd_date__Intercept: location
  real prior_sd_date__Intercept_location;
  // normal prior on sd_date__Intercept: scale
  real<lower=0> prior_sd_date__Intercept_scale;

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
  real<lower=0> sds_sday_1;  // standard deviation of s(day)
  real<lower=0> sd_date__Intercept;  // standard deviation of Intercept by date
  // s(day), standardised
  vector<multiplier=partly_centred(rep_vector(sds_sday_1, m_1), Is_1)>[m_1]
    zs_1;
  // effects of date, standardised
  matrix<multiplier=partly_centred_rows(rep_matrix(sd_date__Intercept, N_1, 1),
    I_1)>[N_1, 1] z_1;
}
transformed parameters {
  vector[m_1] s_1 = sds_sday_1 * zs_1;  // penalised coefficients of s(day)
  matrix[N_1, 1] r_1  // effects of the levels of date
    = sd_date__Intercept * z_1;
  real lprior = 0;  // log prior density
  lprior += normal_lpdf(phi | prior_phi_location, prior_phi_scale);
  lprior += normal_lpdf(theta | prior_b_location, prior_b_scale);
  lprior += normal_lpdf(sds_sday_1 | prior_sds_sday_1_location,
                        prior_sds_sday_1_scale)
    - normal_lccdf(0 | prior_sds_sday_1_location, prior_sds_sday_1_scale);
  lprior += normal_lpdf(sd_date__Intercept | prior_sd_date__Intercept_location,
                        prior_sd_date__Intercept_scale)
    - normal_lccdf(0 | prior_sd_date__Intercept_location,
                   prior_sd_date__Intercept_scale);
}
model {
  if (!prior_only) {
    target += reduce_sum(partial_log_lik, slice, grainsize, y, Xc, H, widths,
                         activation, p_bar, eta_loc, eta_scale, trials, Zs_1,
                         J_1, phi, theta, s_1, r_1);
  }
  target += std_normal_lpdf(zs_1);
  target += std_normal_lpdf(to_vector(z_1));
  target += lprior;
}
generated quantities {
  real b_Intercept  // mean of network and x' theta, moved to X = 0
    = eta_loc
      + eta_scale
        * mean(network(H, p_bar + phi, widths, activation))
      - dot_product(x_loc, theta);
  real b_rain_hours = theta[1];
  real b_wind = theta[2];
  real b_day = theta[3];
}
