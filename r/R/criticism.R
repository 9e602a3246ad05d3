# Leave-one-out, explained variance and posterior predictive checks.

loo.semistanfit <- function(x, ...) {
  said <- ask("loo_obstacle", python_of(x))$caveat
  matrix <- log_lik.semistanfit(x)
  # Python takes relative efficiencies as 1, too, and so does loo since its version 2.7.
  found <- loo::loo(matrix, r_eff = rep(1, ncol(matrix)), ...)
  if (nzchar(said)) message(said)
  attr(found, "model_name") <- x$facts$formula
  found
}

bayes_R2.semistanfit <- function(object, prob = 0.95, ...) r2_of(object, "R2", prob)
loo_R2.semistanfit <- function(object, prob = 0.95, ...) r2_of(object, "LOO-R2", prob)

r2_of <- function(object, measure, prob) {
  table <- frame_of(ask("r2", python_of(object), prob))
  line <- table[table$measure == measure, -1]
  if (!nrow(line)) stop("this fit has no ", measure, call. = FALSE)
  tail <- 100 * (1 - prob) / 2
  matrix(unlist(line), 1, dimnames = list(measure, c("Estimate", "Est.Error",
                                                     paste0("Q", c(tail, 100 - tail)))))
}

pp_check.semistanfit <- function(object, type = "dens_overlay", ndraws = NULL, group = NULL,
                                 x = NULL, seed = 1, ...) {
  check <- tryCatch(getExportedValue("bayesplot", paste0("ppc_", type)), error = function(e) {
    known <- sub("^ppc_", "", as.character(bayesplot::available_ppc()))
    stop("bayesplot has no check of type '", type, "'; it has ", paste(known, collapse = ", "),
         call. = FALSE)
  })
  arguments <- names(formals(check))
  if ("lw" %in% arguments || "psis_object" %in% arguments) {
    stop("checks by leave-one-out are not drawn here: give ", paste0("ppc_", type), "() of bayesplot",
         " response, posterior_predict(fit) and weights of loo(fit, save_psis = TRUE)",
         call. = FALSE)
  }
  if (is.null(ndraws)) ndraws <- if (type %in% OF_SOME) 10 else min(1000, object$facts$draws)
  replicated <- posterior_predict.semistanfit(object, ndraws = ndraws, seed = seed)
  if (length(dim(replicated)) == 3) {
    stop("counts of several categories have no such check; see posterior_predict()", call. = FALSE)
  }
  given <- list(y = response_of(object), yrep = replicated, ...)
  if (!is.null(group)) given$group <- column_for(object, group)
  if (!is.null(x)) given$x <- column_for(object, x)
  do.call(check, given)
}

OF_SOME <- c("dens_overlay", "dens_overlay_grouped", "hist", "boxplot", "freqpoly", "dens",
             "ecdf_overlay", "ecdf_overlay_grouped", "error_hist", "error_scatter", "scatter")

column_for <- function(object, name) {
  column <- object$data[[name]]
  if (is.null(column)) stop("the data have no column '", name, "'", call. = FALSE)
  if (length(column) != object$facts$nobs) {
    stop("the fit left rows out, so that column '", name, "' is longer than the response",
         call. = FALSE)
  }
  column
}

plot.semistanfit <- function(x, variable = NULL, combo = c("dens", "trace"), N = 5, ask = NULL,
                             ...) {
  if (is.null(variable)) variable <- x$facts$interpreted
  draws <- as_draws_array.semistanfit(x, variable = variable)
  names <- posterior::variables(draws)
  pages <- split(names, (seq_along(names) - 1) %/% N)
  if (is.null(ask)) ask <- interactive() && length(pages) > 1
  found <- lapply(pages, function(page) {
    of_page <- posterior::subset_draws(draws, variable = page)
    off_screen(bayesplot::mcmc_combo(of_page, combo = combo, ...))
  })
  show_pages(found, graphics::plot, ask)
}

# bayesplot opens a page while it measures legends, which would stay empty.
off_screen <- function(figure) {
  grDevices::pdf(NULL)
  on.exit(grDevices::dev.off())
  figure
}

show_pages <- function(figures, show, ask) {
  before <- grDevices::devAskNewPage(FALSE)
  on.exit(grDevices::devAskNewPage(before))
  for (i in seq_along(figures)) {
    if (i > 1) grDevices::devAskNewPage(ask)
    show(figures[[i]])
  }
  invisible(figures)
}
