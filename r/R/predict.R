# Predictions: draws by rows, and their summaries as brms has them.

draws_by_rows <- function(object, what, newdata, ...) {
  found <- ask("predictions", python_of(object), what, columns_of(newdata, object$facts$formula),
               ...)
  if (prod(unlist(found$shape)) * 8 > 2^31 - 1) {
    stop("these are more numbers than R reads at once: ask for fewer draws by ndraws =, or for ",
         "some rows at a time", call. = FALSE)
  }
  values <- array_of(found)
  names_of_rows <- if (is.null(newdata)) NULL else rownames(newdata)
  if (length(names_of_rows) == ncol(values) && is.character(attr(newdata, "row.names"))) {
    dimnames(values) <- c(list(NULL, names_of_rows),
                          if (length(dim(values)) == 3) list(object$facts$categories))
  } else if (length(dim(values)) == 3) {
    dimnames(values) <- list(NULL, NULL, object$facts$categories)
  }
  values
}

no_others <- function(..., .of) {
  others <- names(list(...))
  if ("re_formula" %in% others) {
    stop("re_formula is not available: groups = \"none\" is brms's re_formula = NA, without group-",
         "level effects; see ?predictions", call. = FALSE)
  }
  if (...length()) {
    shown <- if (is.null(others) || !nzchar(others[1])) "an argument without a name" else others[1]
    stop(.of, "() has no argument '", shown, "'", call. = FALSE)
  }
}

whole_or_null <- function(ndraws) if (is.null(ndraws)) NULL else as.integer(ndraws)

posterior_epred.semistanfit <- function(object, newdata = NULL, dpar = NULL, ndraws = NULL,
                                        allow_new_levels = FALSE, drop_missing = FALSE, seed = 1,
                                        groups = "known", ...) {
  no_others(..., .of = "posterior_epred")
  draws_by_rows(object, "epred", newdata, dpar = dpar, ndraws = whole_or_null(ndraws),
                seed = as.integer(seed), allow_new_levels = allow_new_levels,
                drop_missing = drop_missing, groups = groups)
}

posterior_linpred.semistanfit <- function(object, transform = FALSE, newdata = NULL, part = "all",
                                          dpar = NULL, ndraws = NULL, allow_new_levels = FALSE,
                                          drop_missing = FALSE, seed = 1, groups = "known", ...) {
  no_others(..., .of = "posterior_linpred")
  if (is.data.frame(transform)) stop("give new rows by name: newdata = ...", call. = FALSE)
  if (transform) {
    if (part != "all") stop("only the whole predictor can be transformed", call. = FALSE)
    return(posterior_epred.semistanfit(object, newdata, dpar, ndraws, allow_new_levels,
                                       drop_missing, seed, groups))
  }
  draws_by_rows(object, "linpred", newdata, part = part, dpar = dpar,
                ndraws = whole_or_null(ndraws), seed = as.integer(seed),
                allow_new_levels = allow_new_levels, drop_missing = drop_missing, groups = groups)
}

posterior_predict.semistanfit <- function(object, newdata = NULL, ndraws = NULL,
                                          allow_new_levels = FALSE, drop_missing = FALSE, seed = 1,
                                          groups = "known", ...) {
  no_others(..., .of = "posterior_predict")
  draws_by_rows(object, "replicate", newdata, ndraws = whole_or_null(ndraws),
                seed = as.integer(seed), allow_new_levels = allow_new_levels,
                drop_missing = drop_missing, groups = groups)
}

log_lik.semistanfit <- function(object, newdata = NULL, ndraws = NULL, allow_new_levels = FALSE,
                                seed = 1, ...) {
  no_others(..., .of = "log_lik")
  draws_by_rows(object, "log_lik", newdata, ndraws = whole_or_null(ndraws),
                seed = as.integer(seed), allow_new_levels = allow_new_levels)
}

predict.semistanfit <- function(object, newdata = NULL, probs = c(0.025, 0.975), summary = TRUE,
                                ...) {
  draws <- posterior_predict.semistanfit(object, newdata, ...)
  if (!summary) return(draws)
  if (!length(object$facts$categories) || length(dim(draws)) == 3) {
    return(summary_of(draws, probs))
  }
  categories <- object$facts$categories
  first <- if (object$family$family == "cumulative") 1 else min(1, min(draws))
  shares <- vapply(seq_along(categories), function(k) colMeans(draws == k - 1 + first),
                   numeric(ncol(draws)))
  matrix(shares, ncol(draws), dimnames = list(colnames(draws), paste0("P(Y = ", categories, ")")))
}

fitted.semistanfit <- function(object, newdata = NULL, scale = c("response", "linear"),
                               dpar = NULL, probs = c(0.025, 0.975), summary = TRUE, ...) {
  scale <- match.arg(scale)
  draws <- if (scale == "response") posterior_epred.semistanfit(object, newdata, dpar, ...)
  else posterior_linpred.semistanfit(object, newdata = newdata, dpar = dpar, ...)
  if (summary) summary_of(draws, probs) else draws
}

residuals.semistanfit <- function(object, type = c("ordinary", "pearson"),
                                  probs = c(0.025, 0.975), summary = TRUE, ndraws = NULL, ...) {
  no_others(..., .of = "residuals")
  type <- match.arg(type)
  if (length(object$facts$categories)) {
    stop("a response of categories has no residuals", call. = FALSE)
  }
  y <- response_of(object)
  draws <- posterior_epred.semistanfit(object, ndraws = ndraws)
  found <- matrix(y, nrow(draws), length(y), byrow = TRUE) - draws
  if (type == "pearson") {
    replicated <- posterior_predict.semistanfit(object, ndraws = ndraws)
    sds <- apply(replicated - draws, 2, function(x) sqrt(mean(x^2)))
    found <- sweep(found, 2, sds, "/")
  }
  if (summary) summary_of(found, probs) else found
}

response_of <- function(object) array_of(ask("response", python_of(object)))

# Rows by Estimate, Est.Error and quantiles, and by categories if there are some.
summary_of <- function(draws, probs = c(0.025, 0.975)) {
  of_matrix <- function(x) {
    quantiles <- t(apply(x, 2, stats::quantile, probs, names = FALSE))
    if (length(probs) == 1) quantiles <- t(quantiles)
    found <- cbind(colMeans(x), apply(x, 2, stats::sd), quantiles)
    dimnames(found) <- list(colnames(x), c("Estimate", "Est.Error", paste0("Q", 100 * probs)))
    found
  }
  if (length(dim(draws)) < 3) return(of_matrix(draws))
  found <- lapply(seq_len(dim(draws)[3]), function(k) {
    of_matrix(matrix(draws[, , k], nrow(draws), dimnames = dimnames(draws)[1:2]))
  })
  array(unlist(found), c(dim(found[[1]]), length(found)),
        c(list(rownames(found[[1]]), colnames(found[[1]])), list(dimnames(draws)[[3]])))
}
