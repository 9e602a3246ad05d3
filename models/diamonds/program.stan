// generated with semistan 0.1.0
// formula: log(price) ~ cut + color + clarity + nn(log(carat), depth, table,
//   x, y, z)
// family: gaussian, link: identity
//
// The model of each row:
//   y ~ normal(eta, sigma)
//   eta = eta_loc + eta_scale f(log(carat), depth, table, x, y, z; w) +
//     (x - x_loc)' theta
//   x = (cut[T.Good], cut[T.Ideal], cut[T.Premium], cut[T.Very Good],
//     color[T.E], color[T.F], color[T.G], color[T.H], color[T.I], color[T.J],
//     clarity[T.IF], ..., clarity[T.VVS2])
//   w = p_bar + Pi phi
//   Completed, in the generated quantities, by the weights outside the
//     subspace, which have their normal approximation at a mode inside it, to
//     first order:
//   f(u; w) + (d f / d w) delta, delta = shift_w (1, psi), psi ~ normal(0, 1)
//   and coefficients and intercepts move with it, by their shift (1, psi)
// Priors as used, in the units of the data:
//   w ~ normal(0, 2 / sqrt(inputs of the layer)), normal(0, 2) of biases
//   output biases ~ normal(0, 2.5)
//   b_cutGood ~ normal(0, 8.82229)
//   b_cutIdeal ~ normal(0, 5.17807)
//   b_cutPremium ~ normal(0, 5.81495)
//   b_cutVery_Good ~ normal(0, 6.08301)
//   b_colorE ~ normal(0, 6.57813)
//   b_colorF ~ normal(0, 6.64684)
//   b_colorG ~ normal(0, 6.23488)
//   b_colorH ~ normal(0, 7.02901)
//   b_colorI ~ normal(0, 8.43412)
//   b_colorJ ~ normal(0, 11.4152)
//   b_clarityIF ~ normal(0, 14.1571)
//   b_claritySI1 ~ normal(0, 5.91962)
//   ... and 5 more of this kind
//   sigma ~ student_t(3, 0, 2.53636)
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

  // Completion: a step, and the change with each element of psi
  int<lower=1> n_psi;  // directions outside the subspace
  matrix[P, 1 + n_psi] shift_theta;  // of theta
  row_vector[1 + n_psi] shift_b_Intercept;  // of b_Intercept

  // Priors
  vector[k] prior_phi_location;  // normal prior on phi: location
  vector<lower=0>[k] prior_phi_scale;  // normal prior on phi: scale
  vector[P] prior_b_location;  // normal prior on theta: location
  vector<lower=0>[P] prior_b_scale;  // normal prior on theta: scale
  real<lower=0> prior_sigma_df;  // student_t prior on sigma: degrees of freedom
  real prior_sigma_location;  // student_t prior on sigma: location
  real<lower=0> prior_sigma_scale;  // student_t prior on sigma: scale

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
  real<lower=0> sigma;  // residual standard deviation
}
transformed parameters {
  real lprior = 0;  // log prior density
  lprior += normal_lpdf(phi | prior_phi_location, prior_phi_scale);
  lprior += normal_lpdf(theta | prior_b_location, prior_b_scale);
  lprior += student_t_lpdf(sigma | prior_sigma_df, prior_sigma_location,
                           prior_sigma_scale)
    - student_t_lccdf(0 | prior_sigma_df, prior_sigma_location,
                      prior_sigma_scale);
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
  vector[n_psi] psi  // outside the subspace, standard normal
    = to_vector(normal_rng(rep_vector(0, n_psi), 1));
  vector[P] theta_completed
    = theta + shift_theta * append_row(1, psi);
  real b_Intercept  // mean of eta over the rows, moved to X = 0
    = eta_loc
      + eta_scale
        * mean(network(H, p_bar + Pi * phi, widths, activation))
      - dot_product(x_loc, theta)
      + shift_b_Intercept * append_row(1, psi);
  real b_cutGood = theta_completed[1];  // cut[T.Good]
  real b_cutIdeal = theta_completed[2];  // cut[T.Ideal]
  real b_cutPremium = theta_completed[3];  // cut[T.Premium]
  real b_cutVery_Good = theta_completed[4];  // cut[T.Very Good]
  real b_colorE = theta_completed[5];  // color[T.E]
  real b_colorF = theta_completed[6];  // color[T.F]
  real b_colorG = theta_completed[7];  // color[T.G]
  real b_colorH = theta_completed[8];  // color[T.H]
  real b_colorI = theta_completed[9];  // color[T.I]
  real b_colorJ = theta_completed[10];  // color[T.J]
  real b_clarityIF = theta_completed[11];  // clarity[T.IF]
  real b_claritySI1 = theta_completed[12];  // clarity[T.SI1]
  real b_claritySI2 = theta_completed[13];  // clarity[T.SI2]
  real b_clarityVS1 = theta_completed[14];  // clarity[T.VS1]
  real b_clarityVS2 = theta_completed[15];  // clarity[T.VS2]
  real b_clarityVVS1 = theta_completed[16];  // clarity[T.VVS1]
  real b_clarityVVS2 = theta_completed[17];  // clarity[T.VVS2]
}
