# Fitting, and what a fit is in R.

semistan <- function(formula, data, family = "gaussian", priors = NULL, ..., out = NULL,
                     overwrite = FALSE, progress = TRUE) {
  call <- match.call()
  text <- formula_text(formula)
  settings <- settings_of(..., family = family_text(family, text), priors = priors)
  folder <- folder_of(out)
  python <- ask("fit", text, columns_of(data, text), settings, out = folder$path,
                overwrite = overwrite, progress = progress)
  new_fit(python, folder, formula, data, call)
}

settings_of <- function(..., priors = NULL) {
  settings <- list(...)
  if (length(settings) && (is.null(names(settings)) || any(!nzchar(names(settings))))) {
    stop("settings have names, as chains = 2; see ?semistan", call. = FALSE)
  }
  if (!is.null(priors)) {
    if (is.null(names(priors)) || !all(vapply(priors, is.character, NA))) {
      stop("priors are text with names, as list(b = \"normal(0, 1)\", sigma = \"exponential(1)\")",
           call. = FALSE)
    }
    settings$priors <- as.list(priors)
  }
  if (!length(settings)) return(stats::setNames(list(), character(0)))  # a dict in Python
  lapply(settings, plain)
}

# A run's folder: a temporary one is deleted with the last fit that has it.
folder_of <- function(out) {
  folder <- new.env(parent = emptyenv())
  folder$path <- if (is.null(out)) tempfile("semistan-") else path.expand(out)
  folder$temporary <- is.null(out)
  if (folder$temporary) reg.finalizer(folder, function(f) unlink(f$path, recursive = TRUE))
  folder
}

new_fit <- function(python, folder, formula, data, call) {
  facts <- ask("describe", python)
  handle <- new.env(parent = emptyenv())
  handle$python <- python
  handle$folder <- folder
  structure(
    list(
      formula = if (is.null(formula)) formula_of(facts$formula) else formula,
      family = family_object(facts$family, facts$link),
      data = data,
      path = facts$path,
      facts = lapply(facts, function(x) if (is.list(x)) as.character(unlist(x)) else x),
      call = call,
      handle = handle
    ),
    class = "semistanfit"
  )
}

# The fit in Python, which is read again from its folder after R was started anew.
python_of <- function(fit) {
  handle <- fit$handle
  if (is.null(handle$python) || reticulate::py_is_null_xptr(handle$python)) {
    if (!dir.exists(fit$path)) {
      stop("the run's folder ", fit$path, " is gone, with it the draws: keep fits by semistan(..., ",
           "out = \"folder\") or save_semistan(fit, \"folder\")", call. = FALSE)
    }
    handle$python <- ask("read", fit$path)
  }
  handle$python
}

python_fit <- function(fit) python_of(check_fit(fit))

check_fit <- function(fit) {
  if (!inherits(fit, "semistanfit")) {
    stop("expected what semistan() has fitted, got ", class(fit)[1], call. = FALSE)
  }
  fit
}

read_semistan <- function(path) {
  python <- ask("read", path.expand(path))
  new_fit(python, folder_of(path), NULL, frame_of(ask("table", python)), match.call())
}

save_semistan <- function(fit, path, overwrite = FALSE) {
  python <- ask("save", python_of(check_fit(fit)), path.expand(path), overwrite)
  new_fit(python, folder_of(path), fit$formula, fit$data, fit$call)
}

resume_semistan <- function(fit, more = NULL, progress = TRUE) {
  if (!is.character(fit)) {
    python <- ask("resume", python_of(check_fit(fit)), whole_or_null(more), progress)
    return(new_fit(python, fit$handle$folder, fit$formula, fit$data, fit$call))
  }
  python <- ask("resume", path.expand(fit), whole_or_null(more), progress)
  new_fit(python, folder_of(fit), NULL, frame_of(ask("table", python)), match.call())
}

update.semistanfit <- function(object, formula. = NULL, newdata = NULL, ..., family = NULL,
                               priors = NULL, out = NULL, overwrite = FALSE, progress = TRUE) {
  call <- match.call()
  formula <- object$formula
  if (inherits(formula., "formula")) formula <- changed_formula(formula, formula.)
  else if (!is.null(formula.)) formula <- formula.
  text <- if (is.null(formula.)) NULL else formula_text(formula)
  settings <- list(..., priors = priors)
  if (!is.null(family)) {
    settings$family <- family_text(family, if (is.null(text)) object$facts$formula else text)
  }
  data <- if (is.null(newdata)) object$data else newdata
  columns <- columns_of(data, if (is.null(text)) object$facts$formula else text)
  folder <- folder_of(out)
  python <- ask("update", python_of(object), text, columns, do.call(settings_of, settings),
                out = folder$path, overwrite = overwrite, progress = progress)
  new_fit(python, folder, formula, data, call)
}

formula.semistanfit <- function(x, ...) x$formula
family.semistanfit <- function(object, ...) object$family
nobs.semistanfit <- function(object, ...) object$facts$nobs

print.semistanfit <- function(x, ...) {
  cat(ask("shown", python_of(x)), "\n", sep = "")
  invisible(x)
}

summary.semistanfit <- function(object, prob = 0.95, ...) {
  found <- ask("summary", python_of(object), prob)
  table <- frame_of(found$table)
  coefficients <- as.matrix(table[-1])
  rownames(coefficients) <- table$variable
  structure(
    list(head = found$head, coefficients = coefficients, remarks = as.character(found$remarks),
         passed = found$passed, checks = frame_of(found$checks), prob = prob),
    class = "summary.semistanfit"
  )
}

print.summary.semistanfit <- function(x, ...) {
  cat(x$head, "\n\n", sep = "")
  before <- options(width = 500)  # a coefficient is one line, as Python has it
  on.exit(options(before))
  print(shown_table(x$coefficients), quote = FALSE, right = TRUE)
  cat("\n", paste(x$remarks, collapse = "\n\n"), "\n", sep = "")
  invisible(x)
}

# Two significant digits of the error, as Python shows them.
shown_table <- function(table) {
  decimals <- function(error) {
    if (!is.finite(error) || error <= 0) 2 else max(0, 1 - floor(log10(signif(error, 2))))
  }
  shown <- table
  storage.mode(shown) <- "character"
  for (i in seq_len(nrow(table))) {
    shown[i, 1:4] <- formatC(table[i, 1:4], format = "f", digits = decimals(table[i, 2]))
    shown[i, 5] <- formatC(table[i, 5], format = "f", digits = 3)
    shown[i, 6:7] <- formatC(table[i, 6:7], format = "f", digits = 0)
  }
  shown
}

stancode <- function(object, ...) UseMethod("stancode")
stancode.semistanfit <- function(object, ...) {
  structure(ask("stan_code", python_of(object)), class = "semistancode")
}
print.semistancode <- function(x, ...) {
  cat(x, "\n", sep = "")
  invisible(x)
}

standata <- function(object, ...) UseMethod("standata")
standata.semistanfit <- function(object, ...) {
  lapply(ask("stan_data", python_of(object)), array_of)
}

prior_summary.semistanfit <- function(object, ...) frame_of(ask("priors", python_of(object)))
