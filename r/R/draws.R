# Draws, in the formats of posterior.

#' All draws with the columns that the sampler reports, once for a fit.
raw_draws <- function(x) {
  if (is.null(x$handle$draws)) x$handle$draws <- frame_of(ask("draws", python_of(x)))
  x$handle$draws
}

as_draws_df.semistanfit <- function(x, variable = NULL, ...) {
  draws <- raw_draws(x)
  own <- c(".chain", ".iteration", ".draw")
  of_sampler <- grepl("__$", names(draws)) & names(draws) != "lp__"
  draws <- draws[!of_sampler]
  found <- posterior::as_draws_df(as.data.frame(draws[setdiff(names(draws), own)],
                                                optional = TRUE))
  found$.chain <- draws$.chain
  found$.iteration <- draws$.iteration
  found$.draw <- draws$.draw
  if (is.null(variable)) found else posterior::subset_draws(found, variable = variable, ...)
}

as_draws.semistanfit <- function(x, variable = NULL, ...) as_draws_df.semistanfit(x, variable, ...)
as_draws_array.semistanfit <- function(x, variable = NULL, ...) {
  posterior::as_draws_array(as_draws_df.semistanfit(x, variable, ...))
}
as_draws_matrix.semistanfit <- function(x, variable = NULL, ...) {
  posterior::as_draws_matrix(as_draws_df.semistanfit(x, variable, ...))
}
as_draws_list.semistanfit <- function(x, variable = NULL, ...) {
  posterior::as_draws_list(as_draws_df.semistanfit(x, variable, ...))
}
as_draws_rvars.semistanfit <- function(x, variable = NULL, ...) {
  posterior::as_draws_rvars(as_draws_df.semistanfit(x, variable, ...))
}
as.matrix.semistanfit <- function(x, ...) unclass_draws(as_draws_matrix.semistanfit(x, ...))
as.data.frame.semistanfit <- function(x, row.names = NULL, optional = TRUE, ...) {
  as.data.frame(as.matrix.semistanfit(x, ...), row.names = row.names, optional = optional)
}

unclass_draws <- function(draws) {
  matrix(as.vector(draws), nrow(draws), dimnames = list(NULL, colnames(draws)))
}

variables.semistanfit <- function(x, ...) posterior::variables(as_draws_df.semistanfit(x))
ndraws.semistanfit <- function(x) x$facts$draws
nchains.semistanfit <- function(x) x$facts$chains
niterations.semistanfit <- function(x) x$facts$draws %/% x$facts$chains
nvariables.semistanfit <- function(x, ...) length(variables.semistanfit(x))

nuts_params.semistanfit <- function(object, pars = NULL, ...) {
  draws <- raw_draws(object)
  names <- grep("__$", names(draws), value = TRUE)
  names <- setdiff(if (is.null(pars)) names else intersect(pars, names), "lp__")
  pieces <- lapply(names, function(name) {
    data.frame(Chain = draws$.chain, Iteration = draws$.iteration, Parameter = name,
               Value = as.numeric(draws[[name]]))
  })
  found <- do.call(rbind, pieces)
  if (is.null(found)) stop("the method of this fit reports nothing of its steps", call. = FALSE)
  found$Parameter <- factor(found$Parameter, names)
  found
}

log_posterior.semistanfit <- function(object, ...) {
  draws <- raw_draws(object)
  if (is.null(draws$lp__)) stop("the method of this fit has no lp__", call. = FALSE)
  data.frame(Chain = draws$.chain, Iteration = draws$.iteration, Value = draws$lp__)
}
