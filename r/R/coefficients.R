# Coefficients, the effects of levels, and standard deviations, as brms has them.

#' Draws of the coefficients, without b_.
coefficient_draws <- function(object) {
  names <- grep("^(b|bsp)_", object$facts$interpreted, value = TRUE)
  draws <- as.matrix.semistanfit(object, variable = names)
  colnames(draws) <- sub("^(b|bsp)_", "", colnames(draws))
  draws
}

fixef.semistanfit <- function(object, summary = TRUE, probs = c(0.025, 0.975), ...) {
  draws <- coefficient_draws(object)
  if (summary) summary_of(draws, probs) else draws
}

vcov.semistanfit <- function(object, correlation = FALSE, ...) {
  draws <- coefficient_draws(object)
  if (correlation) stats::cor(draws) else stats::cov(draws)
}

has_groups <- function(object) {
  is_sd <- grepl("^sd_", object$facts$interpreted)
  any(is_sd)
}

ranef.semistanfit <- function(object, prob = 0.95, ...) levels_of(object, "ranef", prob)

coef.semistanfit <- function(object, prob = 0.95, ...) {
  if (has_groups(object)) levels_of(object, "coef", prob)
  else fixef.semistanfit(object)[, "Estimate"]
}

#' Arrays of levels, statistics and effects, one for each group.
levels_of <- function(object, kind, prob) {
  table <- frame_of(ask("terms", python_of(object), kind, prob))
  if (!is.null(table$predictor)) {
    others <- !table$predictor %in% table$predictor[1]
    table$effect[others] <- paste0(table$predictor[others], "_", table$effect[others])
  }
  tail <- 100 * (1 - prob) / 2
  statistics <- c("Estimate", "Est.Error", paste0("Q", c(tail, 100 - tail)))
  columns <- match("Estimate", names(table)) + 0:3
  groups <- unique(table$group)
  found <- lapply(groups, function(group) {
    lines <- table[table$group == group, ]
    levels <- unique(lines$level)
    effects <- unique(lines$effect)
    values <- array(NA_real_, c(length(levels), 4, length(effects)),
                    list(levels, statistics, effects))
    places <- cbind(match(lines$level, levels), match(lines$effect, effects))
    for (j in 1:4) {
      values[cbind(places[, 1], j, places[, 2])] <- lines[[columns[j]]]
    }
    values
  })
  stats::setNames(found, groups)
}

VarCorr.semistanfit <- function(x, sigma = 1, probs = c(0.025, 0.975), ...) {
  draws <- as.matrix.semistanfit(x)
  groups <- if (has_groups(x)) ranef.semistanfit(x) else list()
  found <- lapply(names(groups), function(group) {
    effects <- dimnames(groups[[group]])[[3]]
    place <- gsub("[^[:alnum:]_]+", "_", group)
    names_of_sd <- grep(paste0("^sd_", place, "__"), x$facts$interpreted, value = TRUE)
    names <- sub(paste0("^sd_", place, "__"), "", names_of_sd)
    sd <- summary_of(draws[, names_of_sd, drop = FALSE], probs)
    rownames(sd) <- names
    if (length(names) < 2 || !setequal(names, effects)) return(list(sd = sd))
    correlation <- function(i, j) {
      if (i == j) return(rep(1, nrow(draws)))
      either <- paste0("cor_", place, "__", c(names[i], names[j]), "__", c(names[j], names[i]))
      known <- intersect(either, colnames(draws))
      if (length(known)) draws[, known[1]] else rep(0, nrow(draws))
    }
    k <- length(names)
    over <- function(f) {
      pairs <- lapply(seq_len(k), function(j) {
        summary_of(vapply(seq_len(k), function(i) f(i, j), numeric(nrow(draws))), probs)
      })
      values <- array(unlist(pairs), c(k, 2 + length(probs), k))
      dimnames(values) <- list(names, colnames(sd), names)
      values
    }
    list(
      sd = sd,
      cor = over(correlation),
      cov = over(function(i, j) {
        correlation(i, j) * draws[, names_of_sd[i]] * draws[, names_of_sd[j]]
      })
    )
  })
  names(found) <- names(groups)
  if ("sigma" %in% colnames(draws)) {
    found$residual__ <- list(sd = summary_of(draws[, "sigma", drop = FALSE], probs))
  }
  found
}
