as.data.frame.semistan <- function(x, ...) table_of(python(x$fit$draws()))

as_draws_df.semistan <- function(x, ...) posterior::as_draws_df(as.data.frame(x))

as_draws.semistan <- function(x, ...) as_draws_df(x)

coefficient_draws <- function(object) {
  draws <- as.data.frame(object)
  as.matrix(draws[startsWith(names(draws), "b_")])
}

coef.semistan <- function(object, ...) {
  t(apply(coefficient_draws(object), 2, function(x) {
    c(Estimate = mean(x), Est.Error = sd(x), Q2.5 = quantile(x, 0.025, names = FALSE),
      Q97.5 = quantile(x, 0.975, names = FALSE))
  }))
}

fixef.semistan <- function(object, ...) coef(object)

vcov.semistan <- function(object, ...) cov(coefficient_draws(object))

ranef.semistan <- function(object, ...) table_of(python(object$fit$terms("ranef")))

predict.semistan <- function(object, newdata = NULL, ...) {
  table_of(python(object$fit$predict(rows(newdata), ...)))
}

fitted.semistan <- function(object, ...) predict(object)$Estimate

posterior_epred.semistan <- function(object, newdata = NULL, dpar = NULL, ...) {
  array_of(python(object$fit$epred(rows(newdata), dpar = dpar)))
}

posterior_linpred.semistan <- function(object, transform = FALSE, newdata = NULL, dpar = NULL,
                                       part = "all", ...) {
  if (transform) return(posterior_epred(object, newdata, dpar))
  array_of(python(object$fit$linpred(rows(newdata), part = part, dpar = dpar)))
}

posterior_predict.semistan <- function(object, newdata = NULL, seed = 1, ...) {
  array_of(python(object$fit$replicate(rows(newdata), seed = as.integer(seed))))
}

log_lik.semistan <- function(object, newdata = NULL, ...) {
  array_of(python(object$fit$log_lik(rows(newdata))))
}

loo.semistan <- function(x, ...) {
  values <- log_lik(x)
  loo::loo(values, r_eff = rep(1, ncol(values)), ...)
}
