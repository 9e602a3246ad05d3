formula_text <- function(formula) {
  one <- function(f) {
    if (is.character(f)) f else paste(deparse(f, width.cutoff = 500L), collapse = " ")
  }
  paste(vapply(if (is.list(formula)) formula else list(formula), one, ""), collapse = ", ")
}

# The name that Python has for a family: binomial() is of 0 and 1, as in glm.
family_text <- function(family) {
  if (is.character(family)) return(family)
  if (is.function(family)) family <- family()
  known <- c(gaussian = "gaussian", poisson = "poisson", binomial = "bernoulli", Gamma = "gamma")
  if (!family$family %in% names(known)) {
    stop("the family ", family$family, " is not known as an object; name it by a string, as ",
         "family = \"negbinomial\"", call. = FALSE)
  }
  paste0(known[[family$family]], "(", family$link, ")")
}

semistan <- function(formula, data, family = "gaussian", ..., progress = interactive()) {
  settings <- list(...)
  if (length(settings) && (is.null(names(settings)) || any(names(settings) == ""))) {
    stop("settings need names, as chains = 2", call. = FALSE)
  }
  settings <- Map(setting, names(settings), settings)
  text <- formula_text(formula)
  module <- module()
  call <- c(list(text, rows(data), family = family_text(family), progress = progress), settings)
  structure(list(fit = python(do.call(module$fit, call)), formula = formula), class = "semistan")
}

stancode <- function(object, ...) UseMethod("stancode")

stancode.semistan <- function(object, ...) reticulate::py_to_r(object$fit$stan_code)

represented <- function(x) reticulate::import_builtins()$repr(x)

print.semistan <- function(x, ...) {
  cat(represented(x$fit), "\n", sep = "")
  invisible(x)
}

summary.semistan <- function(object, ...) {
  found <- object$fit$summary()
  table <- table_of(found$table())
  attr(table, "text") <- represented(found)
  class(table) <- c("summary.semistan", class(table))
  table
}

print.summary.semistan <- function(x, ...) {
  cat(attr(x, "text"), "\n", sep = "")
  invisible(x)
}
