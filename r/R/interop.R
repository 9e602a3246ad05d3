# What other packages ask of a fit: insight, emmeans and marginaleffects.

get_data.semistanfit <- function(x, ...) x$data
find_response.semistanfit <- function(x, combine = TRUE, ...) x$facts$response

predictors_formula <- function(object) {
  names <- lapply(object$facts$columns, as.name)
  stats::as.formula(call("~", Reduce(function(a, b) call("+", a, b), names)), env = globalenv())
}

find_formula.semistanfit <- function(x, ...) {
  right <- predictors_formula(x)[[2]]
  formula <- stats::as.formula(call("~", as.name(x$facts$response), right), env = globalenv())
  structure(list(conditional = formula), class = c("insight_formula", "list"))
}

# emmeans: the grid's linear predictor itself is what is averaged, as it is no sum of products.
recover_data.semistanfit <- function(object, data = NULL, ...) {
  terms <- stats::terms(predictors_formula(object))
  emmeans::recover_data(object$call, terms, NULL, data = if (is.null(data)) object$data else data,
                        ...)
}

emm_basis.semistanfit <- function(object, trms, xlev, grid, ...) {
  if (object$family$family %in% c("categorical", "multinomial", "dirichlet")) {
    stop("a response of unordered categories has no single linear predictor to average; see ",
         "conditional_effects()", call. = FALSE)
  }
  draws <- posterior_linpred.semistanfit(object, newdata = grid)
  rows <- ncol(draws)
  misc <- list()
  if (object$family$link != "identity" && !is.null(object$family$linkinv)) {
    misc <- list(tran = object$family$link, inv.lbl = "response")
  }
  list(X = diag(1, rows), bhat = colMeans(draws), nbasis = matrix(NA), V = stats::cov(draws),
       dffun = function(k, dfargs) Inf, dfargs = list(), misc = misc, post.beta = unname(draws))
}

# marginaleffects: the draws of predictions, of which it makes everything else.
get_predict.semistanfit <- function(model, newdata = NULL, type = "response", ...) {
  data <- if (is.null(newdata)) model$data else as.data.frame(newdata)
  draws <- if (type %in% c("link", "linear")) posterior_linpred.semistanfit(model, newdata = data)
  else if (type == "prediction") posterior_predict.semistanfit(model, data)
  else posterior_epred.semistanfit(model, data)
  rows <- if ("rowid" %in% names(data)) data$rowid else seq_len(nrow(data))
  if (length(dim(draws)) == 3) {
    groups <- model$facts$categories
    found <- data.frame(rowid = rep(rows, length(groups)), group = rep(groups, each = length(rows)))
    draws <- matrix(draws, nrow(draws))
  } else {
    found <- data.frame(rowid = rows)
  }
  found$estimate <- apply(draws, 2, stats::median)
  attr(found, "posterior_draws") <- t(unname(draws))
  found
}

get_coef.semistanfit <- function(model, ...) fixef.semistanfit(model)[, "Estimate"]
get_vcov.semistanfit <- function(model, ...) NULL  # uncertainty is in the draws
