// generated with semistan 0.1.0
// formula: y ~ x1 + (1 + x1 | g) + (v || h) + (1 | g:h) + nn(u1, u2, u3)
// family: bernoulli, link: logit
//
// The model of each row:
//   y ~ bernoulli_logit(eta)
//   eta = eta_loc + eta_scale f(u1, u2, u3; w) + (x - x_loc)' theta +
//     (1 + x1 | g) + (1 + v || h) + (1 | g:h)
//   x = (x1)
//   w = p_bar + Pi phi
// Priors as used, in the units of the data:
//   phi ~ normal(0, 5)
//   b_x1 ~ normal(0, 1.83693)
//   sd_g__Intercept ~ student_t(3, 0, 2.5)
//   sd_g__x1 ~ student_t(3, 0, 1.83693)
//   sd_h__Intercept ~ student_t(3, 0, 2.5)
//   sd_h__v ~ student_t(3, 0, 1.34315)
//   sd_g_h__Intercept ~ student_t(3, 0, 2.5)
//   cor ~ lkj(1)
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

  // Units of standardised effects z, r = diag(sd) L z at each level, that the
  // sampler moves. It is at ease with z where the rows say little of r
  // (non-centred), and with r itself where they say much (centred); this is
  // between them, by the rows' information on the effects. The posterior is
  // the same.
  matrix partly_centred_effects(vector sd, matrix L,
                                array[] matrix information) {
    matrix[size(sd), size(sd)] root = diag_pre_multiply(sd, L);
    matrix[size(information), size(sd)] units;
    for (j in 1 : size(information)) {
      units[j] = inv_sqrt(1 + columns_dot_product(root, information[j] * root));
    }
    return units;
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
                       data vector p_bar, data matrix Pi, data real eta_loc,
                       data real eta_scale, data array[] int J_1,
                       data matrix Z_1, data array[] int J_2, data matrix Z_2,
                       data array[] int J_3, vector phi, vector theta,
                       matrix r_1, matrix r_2, matrix r_3) {
    vector[end - start + 1] f
      = network(H[start : end], p_bar + Pi * phi, widths, activation);
    vector[end - start + 1] alpha  // without x' theta
      = eta_loc + eta_scale * f
        + rows_dot_product(Z_1[start : end], r_1[J_1[start : end]])
        + rows_dot_product(Z_2[start : end], r_2[J_2[start : end]])
        + r_3[J_3[start : end], 1];
    return bernoulli_logit_glm_lpmf(
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

  // Subspace: w = p_bar + Pi phi
  int<lower=1> d;  // Bayesian weights
  int<lower=1> k;  // dimension of the subspace
  vector[d] p_bar;  // weights at phi = 0
  matrix[d, k] Pi;  // directions of the subspace
  vector<lower=0>[k] phi_scale;  // unit of each coordinate

  // Other terms and predictors
  int<lower=1> N_1;  // levels of g
  array[N] int<lower=1, upper=N_1> J_1;  // level of each row
  int<lower=1> M_1;  // effects that vary by level
  matrix[N, M_1] Z_1;  // what they multiply
  int<lower=1> N_2;  // levels of h
  array[N] int<lower=1, upper=N_2> J_2;  // level of each row
  int<lower=1> M_2;  // effects that vary by level
  matrix[N, M_2] Z_2;  // what they multiply
  int<lower=1> N_3;  // levels of g:h
  array[N] int<lower=1, upper=N_3> J_3;  // level of each row
  array[N_1] matrix[M_1, M_1] I_1;  // information of the rows on r_1
  matrix<lower=0>[N_2, M_2] I_2;  // information of the rows on r_2
  matrix<lower=0>[N_3, 1] I_3;  // information of the rows on r_3

  // Priors
  vector[k] prior_phi_location;  // normal prior on phi: location
  vector<lower=0>[k] prior_phi_scale;  // normal prior on phi: scale
  vector[P] prior_b_location;  // normal prior on theta: location
  vector<lower=0>[P] prior_b_scale;  // normal prior on theta: scale
  // student_t prior on sd_g__Intercept: degrees of freedom
  real<lower=0> prior_sd_g__Intercept_df;
  // student_t prior on sd_g__Intercept: location
  real prior_sd_g__Intercept_location;
  // student_t prior on sd_g__Intercept: scale
  real<lower=0> prior_sd_g__Intercept_scale;
  // student_t prior on sd_g__x1: degrees of freedom
  real<lower=0> prior_sd_g__x1_df;
  real prior_sd_g__x1_location;  // student_t prior on sd_g__x1: location
  real<lower=0> prior_sd_g__x1_scale;  // student_t prior on sd_g__x1: scale
  // student_t prior on sd_h__Intercept: degrees of freedom
  real<lower=0> prior_sd_h__Intercept_df;
  // student_t prior on sd_h__Intercept: location
  real prior_sd_h__Intercept_location;
  // student_t prior on sd_h__Intercept: scale
  real<lower=0> prior_sd_h__Intercept_scale;
  // student_t prior on sd_h__v: degrees of freedom
  real<lower=0> prior_sd_h__v_df;
  real prior_sd_h__v_location;  // student_t prior on sd_h__v: location
  real<lower=0> prior_sd_h__v_scale;  // student_t prior on sd_h__v: scale
  // student_t prior on sd_g_h__Intercept: degrees of freedom
  real<lower=0> prior_sd_g_h__Intercept_df;
  // student_t prior on sd_g_h__Intercept: location
  real prior_sd_g_h__Intercept_location;
  // student_t prior on sd_g_h__Intercept: scale
  real<lower=0> prior_sd_g_h__Intercept_scale;
  real<lower=0> prior_cor_shape;  // lkj prior on the correlations: shape

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
  real<lower=0> sd_g__Intercept;  // standard deviation of Intercept by g
  real<lower=0> sd_g__x1;  // standard deviation of x1 by g
  real<lower=0> sd_h__Intercept;  // standard deviation of Intercept by h
  real<lower=0> sd_h__v;  // standard deviation of v by h
  real<lower=0> sd_g_h__Intercept;  // standard deviation of Intercept by g:h
  cholesky_factor_corr[M_1] L_1;  // Cholesky factor of the correlations of g
  // effects of g, standardised
  matrix<multiplier=partly_centred_effects([sd_g__Intercept, sd_g__x1]', L_1,
    I_1)>[N_1, M_1] z_1;
  // effects of h, standardised
  matrix<multiplier=partly_centred_rows(rep_matrix([sd_h__Intercept, sd_h__v],
    N_2), I_2)>[N_2, M_2] z_2;
  // effects of g_h, standardised
  matrix<multiplier=partly_centred_rows(rep_matrix(sd_g_h__Intercept, N_3, 1),
    I_3)>[N_3, 1] z_3;
}
transformed parameters {
  matrix[N_1, M_1] r_1  // effects of the levels of g
    = z_1 * diag_pre_multiply([sd_g__Intercept, sd_g__x1]', L_1)';
  matrix[N_2, M_2] r_2  // effects of the levels of h
    = diag_post_multiply(z_2, [sd_h__Intercept, sd_h__v]');
  matrix[N_3, 1] r_3  // effects of the levels of g_h
    = sd_g_h__Intercept * z_3;
  real lprior = 0;  // log prior density
  lprior += normal_lpdf(phi | prior_phi_location, prior_phi_scale);
  lprior += normal_lpdf(theta | prior_b_location, prior_b_scale);
  lprior += student_t_lpdf(sd_g__Intercept | prior_sd_g__Intercept_df,
                           prior_sd_g__Intercept_location,
                           prior_sd_g__Intercept_scale)
    - student_t_lccdf(0 | prior_sd_g__Intercept_df,
                      prior_sd_g__Intercept_location,
                      prior_sd_g__Intercept_scale);
  lprior += student_t_lpdf(sd_g__x1 | prior_sd_g__x1_df,
                           prior_sd_g__x1_location, prior_sd_g__x1_scale)
    - student_t_lccdf(0 | prior_sd_g__x1_df, prior_sd_g__x1_location,
                      prior_sd_g__x1_scale);
  lprior += student_t_lpdf(sd_h__Intercept | prior_sd_h__Intercept_df,
                           prior_sd_h__Intercept_location,
                           prior_sd_h__Intercept_scale)
    - student_t_lccdf(0 | prior_sd_h__Intercept_df,
                      prior_sd_h__Intercept_location,
                      prior_sd_h__Intercept_scale);
  lprior += student_t_lpdf(sd_h__v | prior_sd_h__v_df, prior_sd_h__v_location,
                           prior_sd_h__v_scale)
    - student_t_lccdf(0 | prior_sd_h__v_df, prior_sd_h__v_location,
                      prior_sd_h__v_scale);
  lprior += student_t_lpdf(sd_g_h__Intercept | prior_sd_g_h__Intercept_df,
                           prior_sd_g_h__Intercept_location,
                           prior_sd_g_h__Intercept_scale)
    - student_t_lccdf(0 | prior_sd_g_h__Intercept_df,
                      prior_sd_g_h__Intercept_location,
                      prior_sd_g_h__Intercept_scale);
  lprior += lkj_corr_cholesky_lpdf(L_1 | prior_cor_shape);
}
model {
  if (!prior_only) {
    target += reduce_sum(partial_log_lik, slice, grainsize, y, Xc, H, widths,
                         activation, p_bar, Pi, eta_loc, eta_scale, J_1, Z_1,
                         J_2, Z_2, J_3, phi, theta, r_1, r_2, r_3);
  }
  target += std_normal_lpdf(to_vector(z_1));
  target += std_normal_lpdf(to_vector(z_2));
  target += std_normal_lpdf(to_vector(z_3));
  target += lprior;
}
generated quantities {
  real b_Intercept  // mean of network and x' theta, moved to X = 0
    = eta_loc
      + eta_scale
        * mean(network(H, p_bar + Pi * phi, widths, activation))
      - dot_product(x_loc, theta);
  real b_x1 = theta[1];
  real cor_g__Intercept__x1 = dot_product(L_1[1], L_1[2]);
}
