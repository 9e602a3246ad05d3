// generated with semistan 0.1.0
// formula: y ~ x1 + (1 | g) + nn(u1, u2) + z:nn(v)
// family: gaussian, link: identity
//
// The model of each row:
//   y ~ normal(eta, sigma)
//   eta = eta_loc + eta_scale (f_1(u1, u2; w_1) + (z / 0.2948) f_2(v; w_2)) +
//     (x - x_loc)' theta + (1 | g)
//   x = (x1)
//   b_z = eta_scale mean(f_2(...; w_2)) / 0.2948, over the rows
//   w = (w_1, w_2)
//   w = p_bar + Pi phi
//   Integrated out, and drawn given y in the generated quantities, is beta:
//   y ~ normal(known + A beta, sigma), beta ~ normal(m, S), so that what is
//     sampled has
//   y ~ multi_normal(known + A m, sigma^2 I + A S^2 A')
//   beta = theta and the standardised coefficients of (1 | g)
//   Completed, in the generated quantities, by the weights outside the
//     subspace, which have their normal approximation at a mode inside it, to
//     first order:
//   f(u; w) + (d f / d w) delta, delta = shift_w (1, psi), psi ~ normal(0, 1)
//   and coefficients and intercepts move with it, by their shift (1, psi)
// Priors as used, in the units of the data:
//   w ~ normal(0, 2 / sqrt(inputs of the layer)), normal(0, 2) of biases
//   output biases ~ normal(0, 2.5)
//   b_x1 ~ normal(0, 36.9692)
//   sigma ~ student_t(3, 0, 50.3138)
//   sd_g__Intercept ~ student_t(3, 0, 50.3138)
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

  // What effects (levels, columns) multiply in each row, in the order of their
  // to_vector: the row's Z at the place of its level, and zeros at those of the
  // others.
  matrix columns_by_level(data matrix Z, data array[] int level, int n_levels) {
    matrix[rows(Z), n_levels * cols(Z)] found
      = rep_matrix(0, rows(Z), n_levels * cols(Z));
    for (n in 1 : rows(Z)) {
      for (j in 1 : cols(Z)) {
        found[n, (j - 1) * n_levels + level[n]] = Z[n, j];
      }
    }
    return found;
  }

  // What the linear predictor is linear in, integrated out of
  //
  //   y ~ normal(known + A z, 1 / tau),   z ~ normal(0, 1),
  //
  // which leaves y ~ N(known, diag(1 / tau^2) + A A'). With
  //
  //   r = tau (y - known),  Z = diag(tau) A,  M = I + Z' Z,  b = Z' r,
  //
  // of which M is only as large as z, Woodbury's identity and the determinant
  // lemma give the logarithm of its density,
  //
  //   sum(log(tau / sqrt(2 pi))) - 1/2 (r' r + log det M - b' M^(-1) b),
  //
  // and z given y ~ N(M^(-1) b, M^(-1)).

  // The products [Z, r]' [Z, r]. `part` has `known` in its first column and
  // behind it those columns of A that depend on what is sampled. The others are
  // XZ, in units that `in_units` brings in. `gram` is XZ' XZ with the rows'
  // weights, which are tau^2 divided by `precision`.
  matrix integral_products(vector y, matrix part, data matrix XZ,
                           data matrix gram, vector tau, real precision) {
    int n = cols(part) - 1;
    int m = n + cols(XZ);
    vector[rows(part)] r = tau .* (y - part[ : , 1]);
    matrix[m + 1, m + 1] products;
    products[m + 1, m + 1] = dot_self(r);
    if (n > 0) {
      matrix[rows(part), n] Z = diag_pre_multiply(tau, part[ : , 2 : n + 1]);
      products[1 : n, 1 : n] = crossprod(Z);
      products[1 : n, m + 1] = Z' * r;
      if (m > n) {
        products[1 : n, n + 1 : m] = diag_pre_multiply(tau, Z)' * XZ;
        products[n + 1 : m, 1 : n] = products[1 : n, n + 1 : m]';
      }
    }
    if (m > n) {
      products[n + 1 : m, n + 1 : m] = precision * gram;
      products[n + 1 : m, m + 1] = XZ' * (tau .* r);
    }
    products[m + 1, 1 : m] = products[1 : m, m + 1]';
    return products;
  }

  // The logarithm but for its first sum.
  real log_integral(matrix products) {
    int m = rows(products) - 1;
    matrix[m, m] L
      = cholesky_decompose(add_diag(products[1 : m, 1 : m], 1));
    return (dot_self(mdivide_left_tri_low(L, products[1 : m, m + 1]))
            - products[m + 1, m + 1]) / 2
           - sum(log(diagonal(L)));
  }

  // A draw of z given y.
  vector given_y_rng(matrix products) {
    int m = rows(products) - 1;
    matrix[m, m] L
      = cholesky_decompose(add_diag(products[1 : m, 1 : m], 1));
    vector[m] z = mdivide_left_tri_low(L, products[1 : m, m + 1])
                  + to_vector(normal_rng(rep_vector(0, m), 1));
    return mdivide_right_tri_low(z', L)';
  }

  // Products of which the columns before the last are multiplied by prior
  // standard deviations.
  matrix in_units(matrix products, vector sd) {
    vector[rows(products) - 1 - size(sd)] ones
      = rep_vector(1, rows(products) - 1 - size(sd));
    return quad_form_diag(products, append_row(ones, append_row(sd, 1)));
  }

  // The linear predictor with what is integrated out at its prior mean.
  matrix linear_part(data matrix Xc, data matrix H, data array[,] int widths,
                     data array[] int activation, data matrix times,
                     data vector p_bar, data matrix Pi, data real eta_loc,
                     data real eta_scale, vector phi, vector theta) {
    matrix[rows(H), 2] F  // outputs of the networks, times what they multiply
      = outputs(H, p_bar + Pi * phi, widths, activation)
        .* times;
    return to_matrix(
      eta_loc
        + eta_scale
          * (F[ : , 1] + F[ : , 2])
        + Xc * theta
    );
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
  int<lower=1> n_networks;  // networks
  int<lower=1> n_layers;  // layers, the output layer included, of the deepest
  // of each: inputs, hidden units, outputs
  array[n_networks, n_layers + 1] int<lower=0> widths;
  array[n_networks] int<lower=1, upper=5> activation;  // 1 tanh ... 5 identity
  int<lower=1> n_by;  // columns that networks multiply
  matrix[N, n_by] by;  // these columns
  vector<lower=0>[n_by] by_scale;  // standard deviation of each
  array[n_by] int<lower=1, upper=2> of_by;  // the output that each is of

  // Subspace: w = p_bar + Pi phi
  int<lower=1> d;  // Bayesian weights
  int<lower=1> k;  // dimension of the subspace
  vector[d] p_bar;  // weights at phi = 0
  matrix[d, k] Pi;  // directions of the subspace
  vector<lower=0>[k] phi_scale;  // unit of each coordinate

  // Other terms and predictors
  int<lower=1> N_1;  // levels of g
  array[N] int<lower=1, upper=N_1> J_1;  // level of each row

  // Completion: a step, and the change with each element of psi
  int<lower=1> n_psi;  // directions outside the subspace
  matrix[P, 1 + n_psi] shift_theta;  // of theta
  row_vector[1 + n_psi] shift_b_Intercept;  // of b_Intercept
  row_vector[1 + n_psi] shift_b_z;  // of b_z

  // Priors
  vector[k] prior_phi_location;  // normal prior on phi: location
  vector<lower=0>[k] prior_phi_scale;  // normal prior on phi: scale
  vector[P] prior_b_location;  // normal prior on theta: location
  vector<lower=0>[P] prior_b_scale;  // normal prior on theta: scale
  real<lower=0> prior_sigma_df;  // student_t prior on sigma: degrees of freedom
  real prior_sigma_location;  // student_t prior on sigma: location
  real<lower=0> prior_sigma_scale;  // student_t prior on sigma: scale
  // student_t prior on sd_g__Intercept: degrees of freedom
  real<lower=0> prior_sd_g__Intercept_df;
  // student_t prior on sd_g__Intercept: location
  real prior_sd_g__Intercept_location;
  // student_t prior on sd_g__Intercept: scale
  real<lower=0> prior_sd_g__Intercept_scale;

  // How to sample
  int<lower=0, upper=1> prior_only;  // leave the likelihood out?
}
transformed data {
  matrix[N, P] Xc;  // structured design, centred
  matrix[N, Q] H;  // input of the first Bayesian layer
  // what each output is multiplied by
  matrix[N, 2] times = rep_matrix(1, N, 2);
  for (j in 1 : P) Xc[ : , j] = X[ : , j] - x_loc[j];
  for (j in 1 : Q) H[ : , j] = (U[ : , j] - u_loc[j]) / u_scale[j];
  for (j in 1 : n_by) times[ : , of_by[j]] = by[ : , j] / by_scale[j];
  // Columns that what is integrated out multiplies
  matrix[N, P + N_1] XZ  // of theta, and of terms
    = append_col(Xc, columns_by_level(rep_matrix(1, N, 1), J_1, N_1));
  matrix[cols(XZ), cols(XZ)] gram = crossprod(XZ);
}
parameters {
  vector<multiplier=phi_scale>[k] phi;  // subspace coordinates
  real<lower=0> sigma;  // residual standard deviation
  real<lower=0> sd_g__Intercept;  // standard deviation of Intercept by g
}
model {
  if (!prior_only) {
    vector[P + N_1] sd_XZ  // prior sd of what they multiply
      = append_row(prior_b_scale,
        to_vector(rep_matrix(sd_g__Intercept, N_1, 1)));
    target += N * normal_lpdf(0 | 0, sigma)
      + log_integral(in_units(
        integral_products(y,
                          linear_part(Xc, H, widths, activation, times, p_bar,
                                      Pi, eta_loc, eta_scale, phi,
                                      prior_b_location),
                          XZ, gram,
                          rep_vector(inv(sigma), N), inv_square(sigma)),
        sd_XZ));
  }
  target += normal_lpdf(phi | prior_phi_location, prior_phi_scale);
  target += student_t_lpdf(sigma | prior_sigma_df, prior_sigma_location,
                           prior_sigma_scale)
    - student_t_lccdf(0 | prior_sigma_df, prior_sigma_location,
                      prior_sigma_scale);
  target += student_t_lpdf(sd_g__Intercept | prior_sd_g__Intercept_df,
                           prior_sd_g__Intercept_location,
                           prior_sd_g__Intercept_scale)
    - student_t_lccdf(0 | prior_sd_g__Intercept_df,
                      prior_sd_g__Intercept_location,
                      prior_sd_g__Intercept_scale);
}
generated quantities {
  vector[P] theta;  // structured coefficients
  matrix[N_1, 1] z_1;  // effects of g, standardised
  {
    vector[P + N_1] sd_XZ  // prior sd of what they multiply
      = append_row(prior_b_scale,
        to_vector(rep_matrix(sd_g__Intercept, N_1, 1)));
    // What is integrated out, standardised, from its prior or given y
    vector[P + N_1] z
      = to_vector(normal_rng(rep_vector(0, P + N_1), 1));
    if (!prior_only) {
      z = given_y_rng(in_units(
        integral_products(y,
                          linear_part(Xc, H, widths, activation, times, p_bar,
                                      Pi, eta_loc, eta_scale, phi,
                                      prior_b_location),
                          XZ, gram,
                          rep_vector(inv(sigma), N), inv_square(sigma)),
        sd_XZ));
    }
    theta = prior_b_location + prior_b_scale .* segment(z, 1, P);
    z_1 = to_matrix(segment(z, 1 + P, N_1), N_1, 1);
  }
  matrix[N_1, 1] r_1  // effects of the levels of g
    = sd_g__Intercept * z_1;
  real lprior = 0;  // log prior density
  lprior += normal_lpdf(phi | prior_phi_location, prior_phi_scale);
  lprior += normal_lpdf(theta | prior_b_location, prior_b_scale);
  lprior += student_t_lpdf(sigma | prior_sigma_df, prior_sigma_location,
                           prior_sigma_scale)
    - student_t_lccdf(0 | prior_sigma_df, prior_sigma_location,
                      prior_sigma_scale);
  lprior += student_t_lpdf(sd_g__Intercept | prior_sd_g__Intercept_df,
                           prior_sd_g__Intercept_location,
                           prior_sd_g__Intercept_scale)
    - student_t_lccdf(0 | prior_sd_g__Intercept_df,
                      prior_sd_g__Intercept_location,
                      prior_sd_g__Intercept_scale);
  vector[n_psi] psi  // outside the subspace, standard normal
    = to_vector(normal_rng(rep_vector(0, n_psi), 1));
  vector[P] theta_completed
    = theta + shift_theta * append_row(1, psi);
  real b_Intercept  // mean of networks and x' theta, moved to X = 0
    = eta_loc
      + eta_scale
        * mean(outputs(H, p_bar + Pi * phi, widths, activation)[ : , 1])
      - dot_product(x_loc, theta)
      + shift_b_Intercept * append_row(1, psi);
  real b_x1 = theta_completed[1];
  real b_z  // mean coefficient of z
    = eta_scale / by_scale[1]
      * mean(outputs(H, p_bar + Pi * phi, widths, activation)[ : , 2])
      + shift_b_z * append_row(1, psi);
}
