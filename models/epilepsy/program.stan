// generated with semistan 0.1.0
// formula: y ~ trt + V4 + nn(lbase, lage) + (1 | subject)
// family: poisson, link: log
//
// The model of each row:
//   y ~ poisson_log(eta)
//   eta = eta_loc + eta_scale f(lbase, lage; w) + (x - x_loc)' theta +
//     (1 | subject)
//   x = (trt[T.progabide], V4)
//   w = p_bar + Pi phi, and single weights that move by themselves
//   Completed, in the generated quantities, by the weights outside the
//     subspace, which have their normal approximation at a mode inside it, to
//     first order:
//   f(u; w) + (d f / d w) delta, delta = shift_w (1, psi), psi ~ normal(0, 1)
//   and coefficients and intercepts move with it, by their shift (1, psi)
// Priors as used, in the units of the data:
//   w ~ normal(0, 2 / sqrt(inputs of the layer)), normal(0, 2) of biases
//   output biases ~ normal(0, 2.5)
//   b_trtprogabide ~ normal(0, 4.99586)
//   b_V4 ~ normal(0, 5.76126)
//   sd_subject__Intercept ~ student_t(3, 0, 2.5)
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

  // Weights at phi, which moves those at `axes`.
  vector move(vector phi, vector p_bar, array[] int axes) {
    vector[num_elements(p_bar)] w = p_bar;
    w[axes] += phi;
    return w;
  }

  // Weights at phi: its first elements move those at `axes`, the others move
  // all weights along the columns of Pi.
  vector move_along(vector phi, vector p_bar, array[] int axes, matrix Pi) {
    int a = size(axes);
    return move(phi[1 : a], p_bar + Pi * phi[a + 1 : num_elements(phi)], axes);
  }

  // Units of standardised coefficients z, r = sd * z, that the sampler moves.
  // It is at ease with z where the rows say little of r (non-centred), and with
  // r itself where they say much (centred); this is between them, by the rows'
  // information on each coefficient. The posterior is the same.
  matrix partly_centred_rows(matrix sd, matrix information) {
    return inv_sqrt(1 + square(sd) .* information);
  }

  // Log-likelihood of rows start to end, the slice that one thread computes.
  real partial_log_lik(array[] int slice, int start, int end,
                       data array[] int y, data matrix Xc, data matrix H,
                       data array[] int widths, data int activation,
                       data vector p_bar, data array[] int axes, data matrix Pi,
                       data real eta_loc, data real eta_scale,
                       data array[] int J_1, vector phi, vector theta,
                       matrix r_1) {
    vector[end - start + 1] f
      = network(H[start : end], move_along(phi, p_bar, axes, Pi), widths,
                activation);
    vector[end - start + 1] alpha  // without x' theta
      = eta_loc + eta_scale * f
        + r_1[J_1[start : end], 1];
    return poisson_log_glm_lpmf(
      y[start : end] | Xc[start : end], alpha,
      theta);
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

  // Subspace: w = p_bar + Pi phi, and single weights that move by themselves
  int<lower=1> d;  // Bayesian weights
  int<lower=1> k;  // dimension of the subspace
  vector[d] p_bar;  // weights at phi = 0
  int<lower=1, upper=k> n_axes;  // weights that move by themselves
  array[n_axes] int<lower=1, upper=d> axes;  // which
  matrix[d, k - n_axes] Pi;  // directions of the subspace
  vector<lower=0>[k] phi_scale;  // unit of each coordinate

  // Other terms and predictors
  int<lower=1> N_1;  // levels of subject
  array[N] int<lower=1, upper=N_1> J_1;  // level of each row
  matrix<lower=0>[N_1, 1] I_1;  // information of the rows on r_1

  // Completion: a step, and the change with each element of psi
  int<lower=1> n_psi;  // directions outside the subspace
  matrix[P, 1 + n_psi] shift_theta;  // of theta
  row_vector[1 + n_psi] shift_b_Intercept;  // of b_Intercept

  // Priors
  vector[k] prior_phi_location;  // normal prior on phi: location
  vector<lower=0>[k] prior_phi_scale;  // normal prior on phi: scale
  vector[P] prior_b_location;  // normal prior on theta: location
  vector<lower=0>[P] prior_b_scale;  // normal prior on theta: scale
  // student_t prior on sd_subject__Intercept: degrees of freedom
  real<lower=0> prior_sd_subject__Intercept_df;
  // student_t prior on sd_subject__Intercept: location
  real prior_sd_subject__Intercept_location;
  // student_t prior on sd_subject__Intercept: scale
  real<lower=0> prior_sd_subject__Intercept_scale;

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
  // standard deviation of Intercept by subject
  real<lower=0> sd_subject__Intercept;
  // effects of subject, standardised
  matrix<multiplier=partly_centred_rows(rep_matrix(sd_subject__Intercept, N_1,
    1), I_1)>[N_1, 1] z_1;
}
transformed parameters {
  matrix[N_1, 1] r_1  // effects of the levels of subject
    = sd_subject__Intercept * z_1;
  real lprior = 0;  // log prior density
  lprior += normal_lpdf(phi | prior_phi_location, prior_phi_scale);
  lprior += normal_lpdf(theta | prior_b_location, prior_b_scale);
  lprior += student_t_lpdf(sd_subject__Intercept |
    prior_sd_subject__Intercept_df,
                           prior_sd_subject__Intercept_location,
                           prior_sd_subject__Intercept_scale)
    - student_t_lccdf(0 | prior_sd_subject__Intercept_df,
                      prior_sd_subject__Intercept_location,
                      prior_sd_subject__Intercept_scale);
}
model {
  if (!prior_only) {
    target += reduce_sum(partial_log_lik, slice, grainsize, y, Xc, H, widths,
                         activation, p_bar, axes, Pi, eta_loc, eta_scale, J_1,
                         phi, theta, r_1);
  }
  target += std_normal_lpdf(to_vector(z_1));
  target += lprior;
}
generated quantities {
  vector[n_psi] psi  // outside the subspace, standard normal
    = to_vector(normal_rng(rep_vector(0, n_psi), 1));
  vector[P] theta_completed
    = theta + shift_theta * append_row(1, psi);
  real b_Intercept  // mean of network and x' theta, moved to X = 0
    = eta_loc
      + eta_scale
        * mean(network(H, move_along(phi, p_bar, axes, Pi), widths,
                       activation))
      - dot_product(x_loc, theta)
      + shift_b_Intercept * append_row(1, psi);
  real b_trtprogabide = theta_completed[1];  // trt[T.progabide]
  real b_V4 = theta_completed[2];
}
