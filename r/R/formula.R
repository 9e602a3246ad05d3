# R's formulas and families in semistan's words, and back.

#' The text of a formula, a list of formulas, a brmsformula, or of text itself.
formula_text <- function(formula) {
  if (is.character(formula) && length(formula) == 1) return(formula)
  if (inherits(formula, "brmsformula")) {
    if (!is.null(formula$pfix) && length(formula$pfix)) {
      stop("parameters are not fixed in a formula here: use priors = list(sigma = \"constant(1)\")",
           call. = FALSE)
    }
    formula <- c(list(formula$formula), formula$pforms)
  }
  if (inherits(formula, "formula")) formula <- list(formula)
  if (!is.list(formula) || !length(formula) || !all(vapply(formula, inherits, NA, "formula"))) {
    stop("the model is a formula, as y ~ x + nn(u), a list of them, as list(y ~ x + nn(u), ",
         "sigma ~ x), or text", call. = FALSE)
  }
  lacking <- vapply(formula, length, 1L) < 3
  if (any(lacking)) {
    stop("'", deparse1(formula[[which(lacking)[1]]]), "' has nothing to the left of ~", call. = FALSE)
  }
  paste(vapply(formula, written, ""), collapse = ", ")
}

# As R writes an expression, but for vectors, truth values and whole numbers.
written <- function(e) {
  if (is.name(e)) return(deparse1(e, backtick = TRUE))
  if (is.null(e)) return("None")
  if (is.logical(e)) return(if (e) "True" else "False")
  if (is.character(e)) return(encodeString(e, quote = "'"))
  if (is.numeric(e)) return(deparse1(as.numeric(e)))
  if (!is.call(e)) stop("a formula cannot hold '", deparse1(e), "'", call. = FALSE)
  head <- if (is.name(e[[1]])) as.character(e[[1]]) else ""
  arguments <- as.list(e)[-1]
  if (head == "(") return(paste0("(", written(arguments[[1]]), ")"))
  if (head == "c") return(paste0("[", paste(vapply(arguments, written, ""), collapse = ", "), "]"))
  if (head == ":" && all(vapply(arguments, is.numeric, NA))) {
    return(written(as.call(c(quote(c), eval(e)))))
  }
  if (head %in% OPERATORS && length(arguments) == 2) {
    between <- if (head %in% c(":", "^")) head else paste0(" ", head, " ")
    return(paste0(written(arguments[[1]]), between, written(arguments[[2]])))
  }
  if (head %in% c("-", "+", "!", "~") && length(arguments) == 1) {
    return(paste0(head, written(arguments[[1]])))
  }
  function_name <- if (is.call(e[[1]]) && deparse1(e[[1]][[1]]) %in% c("::", ":::")) {
    deparse1(e[[1]][[3]])  # brms::s(x), mgcv::s(x)
  } else {
    deparse1(e[[1]])
  }
  named <- if (is.null(names(arguments))) rep("", length(arguments)) else names(arguments)
  inside <- paste0(named, ifelse(nzchar(named), "=", ""), vapply(arguments, written, ""))
  paste0(function_name, "(", paste(inside, collapse = ", "), ")")
}

OPERATORS <- c("~", "+", "-", "*", "/", "^", ":", "|", "||", "%in%", "==", "<", ">", "<=", ">=")

#' The name of a family, with its link, of one of R's family objects, functions or text.
family_text <- function(family, formula) {
  if (is.function(family)) family <- family()
  if (is.character(family) && length(family) == 1) return(family)
  if (!inherits(family, "family") && !inherits(family, "brmsfamily")) {
    stop("family is text, as \"poisson\" or \"bernoulli(probit)\", or a family of R, as poisson()",
         call. = FALSE)
  }
  name <- tolower(family$family)
  # R's binomial() of 0 and 1 is the bernoulli of Stan; trials() makes it one of several.
  if (name == "binomial" && !grepl("trials(", formula, fixed = TRUE)) name <- "bernoulli"
  if (name %in% c("categorical", "multinomial", "dirichlet")) name else paste0(name, "(", family$link, ")")
}

family_object <- function(name, link) {
  functions <- tryCatch(stats::make.link(link), error = function(e) NULL)
  structure(
    list(family = name, link = link, linkfun = functions$linkfun, linkinv = functions$linkinv,
         mu.eta = functions$mu.eta),
    class = "family"
  )
}

#' The formula of a text, where R can read it, or else the text.
formula_of <- function(text) {
  vectors <- gsub("\\[([^][]*)\\]", "c(\\1)", text)
  vectors <- gsub("\\bTrue\\b", "TRUE", gsub("\\bFalse\\b", "FALSE", vectors))
  parsed <- tryCatch(as.list(str2lang(paste0("list(", vectors, ")")))[-1], error = function(e) NULL)
  is_formula <- function(e) is.call(e) && identical(e[[1]], quote(`~`))
  if (is.null(parsed) || !all(vapply(parsed, is_formula, NA))) return(text)
  found <- lapply(parsed, function(e) stats::as.formula(e, env = globalenv()))
  if (length(found) == 1) found[[1]] else unname(found)
}

#' A formula in which `.` on either side of `new` is that side of `old`.
changed_formula <- function(old, new) {
  if (is.list(old)) {
    return(c(list(changed_formula(old[[1]], new)), old[-1]))
  }
  if (!inherits(old, "formula")) {
    stop("the old formula is text: give the whole new one", call. = FALSE)
  }
  left <- if (length(new) == 3) new[[2]] else quote(.)
  right <- new[[length(new)]]
  left <- do.call(substitute, list(left, list(. = old[[2]])))
  summands <- Reduce(function(so_far, term) {
    if (term$minus) Filter(function(e) !identical(e, term$e), so_far) else c(so_far, list(term$e))
  }, signed_terms(right, old[[3]]), list())
  if (!length(summands)) stop("no term is left in the formula", call. = FALSE)
  sum <- Reduce(function(a, b) call("+", a, b), summands)
  stats::as.formula(call("~", left, sum), env = environment(old))
}

signed_terms <- function(e, old, minus = FALSE) {
  if (identical(e, quote(.))) return(signed_terms(old, NULL, minus))
  if (is.call(e) && length(e) == 3 && as.character(e[[1]])[1] %in% c("+", "-")) {
    flip <- identical(e[[1]], quote(`-`))
    return(c(signed_terms(e[[2]], old, minus), signed_terms(e[[3]], old, xor(minus, flip))))
  }
  list(list(e = e, minus = minus))
}
