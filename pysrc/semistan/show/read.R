
suppressPackageStartupMessages({
  library(posterior)
  library(bayesplot)
})

# ---- Where the run is ------------------------------------------------------

# The folder of this script, whether it is run by Rscript or by source().
script_folder <- function() {
  sourced <- Filter(function(frame) !is.null(frame$ofile), sys.frames())
  if (length(sourced) > 0) return(dirname(sourced[[length(sourced)]]$ofile))
  file <- sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE))
  if (length(file) == 1) dirname(gsub("~+~", " ", file, fixed = TRUE)) else "."
}

# Set this to the run's folder if the script was moved.
run <- normalizePath(file.path(script_folder(), run_from_here), mustWork = TRUE)

# ---- Draws and diagnostics -------------------------------------------------

files <- file.path(run, "chains", sprintf("chain-%d.csv", seq_len(chains)))
absent <- files[!file.exists(files)]
if (length(absent) > 0) {
  stop("these chains are missing: ", paste(absent, collapse = ", "),
       "\nComplete the run with 'semistan sample', or set `run` in this script.")
}

# One file's draws; the first line of ADVI and Laplace is the approximation's centre.
read_table <- function(file) {
  table <- read.csv(file, comment.char = "#", check.names = FALSE, colClasses = "numeric")
  if (method %in% c("meanfield", "fullrank", "laplace")) table <- table[-1, ]
  names(table) <- sub("\\.([0-9]+)$", "[\\1]", names(table))
  as_draws_matrix(as.matrix(table))
}

if (method != "nuts") {
  draws <- as_draws_array(do.call(bind_draws, c(lapply(files, read_table), along = "chain")))
} else if (requireNamespace("cmdstanr", quietly = TRUE)) {
  fit <- cmdstanr::as_cmdstan_fit(files)
  draws <- as_draws_array(fit$draws())
} else {
  fit <- rstan::read_stan_csv(files)
  draws <- as_draws_array(as.array(fit))
}

cat(if (prior_only) "prior" else "posterior", "draws:", ndraws(draws), "\n")
cat("chains:", nchains(draws), "\n")
for (reservation in reservations) cat("not the posterior:", reservation, "\n")

if (method == "nuts") {
  nuts <- nuts_params(fit)
  sampler <- function(name) subset(nuts, Parameter == name)
  divergences <- sum(sampler("divergent__")$Value)
  deepest <- sum(sampler("treedepth__")$Value >= max_treedepth)
  ebfmi <- tapply(sampler("energy__")$Value, sampler("energy__")$Chain,
                  function(e) mean(diff(e)^2) / mean((e - mean(e))^2))
  cat("divergent transitions:", divergences, "\n")
  cat("transitions at the limit of the tree depth:", deepest, "\n")
  cat("smallest E-BFMI:", format(min(ebfmi), digits = 3), "\n")
}

# ---- Coefficients ----------------------------------------------------------

# The coefficients under the names of the design's columns.
coefficients <- subset_draws(draws, variable = names(labels))
variables(coefficients) <- unname(labels)

# brms's table: posterior mean, sd, 95% interval, and convergence.
brms_table <- function(draws) {
  summarise_draws(
    draws,
    Estimate = mean,
    Est.Error = sd,
    "l-95% CI" = function(x) quantile(x, 0.025, names = FALSE),
    "u-95% CI" = function(x) quantile(x, 0.975, names = FALSE),
    Rhat = rhat,
    Bulk_ESS = ess_bulk,
    Tail_ESS = ess_tail
  )
}

coefficient_table <- brms_table(coefficients)
cat("\nCoefficients\n")
print(as.data.frame(coefficient_table), digits = 4, row.names = FALSE)

if (length(dispersion) > 0) {
  dispersion_table <- brms_table(subset_draws(draws, variable = dispersion))
  cat("\nDispersion\n")
  print(as.data.frame(dispersion_table), digits = 4, row.names = FALSE)
}

# ---- Log-likelihood and replicated responses -------------------------------

# CmdStan's generated quantities, one column for each row of the data.
generated <- file.path(run, "generated", basename(files))
has_generated <- all(file.exists(generated))
if (has_generated) {
  columns <- do.call(rbind, lapply(generated, read.csv, comment.char = "#",
                                   colClasses = "numeric"))
  log_lik <- as.matrix(columns[startsWith(names(columns), "log_lik.")])
  y_rep <- as.matrix(columns[startsWith(names(columns), "y_rep.")])
} else {
  cat("\nFor loo and posterior predictive checks, write log_lik and y_rep with\n",
      "  semistan generate ", shQuote(run), "\n", sep = "")
}

if (has_generated && !prior_only && temperature != 1) {
  cat("\nNo PSIS-LOO: loo() takes the draws as those of temperature 1, these have temperature ",
      temperature, ".\nUse\n  semistan loo ", shQuote(run), "\n", sep = "")
} else if (has_generated && !prior_only) {
  # Relative efficiencies are taken as 1, the default of loo since 2.7.
  loo_result <- loo::loo(log_lik, r_eff = rep(1, ncol(log_lik)))
  cat("\nPSIS-LOO, given a subspace trained on all rows: optimistic\n")
  print(loo_result)
}

# ---- Figures ---------------------------------------------------------------

figures <- file.path(run, "figures-r")
dir.create(figures, showWarnings = FALSE)

save_figure <- function(name, figure) {
  path <- file.path(figures, paste0(name, ".pdf"))
  ggplot2::ggsave(path, figure, width = 8, height = 6)
  cat(" ", path, "\n")
}

cat("\nFigures\n")
# Intercepts are on a scale of their own.
slopes <- grep("(^|: )Intercept(\\[[0-9]+\\])?$", variables(coefficients),
               value = TRUE, invert = TRUE)
few <- subset_draws(coefficients, variable = head(variables(coefficients), 12))
if (length(slopes) > 0) {
  save_figure("coefficients",
              mcmc_intervals(coefficients, pars = slopes, prob_outer = 0.95))
}
save_figure("trace", mcmc_trace(few))
if (chains > 1) {
  save_figure("densities", mcmc_dens_overlay(few))
  save_figure("ranks", mcmc_rank_overlay(few))
} else {
  save_figure("densities", mcmc_dens(few))
}

if (has_generated && !prior_only) {
  lines <- readLines(file.path(run, "data.json"))
  y <- scan(text = gsub('^"y": \\[|\\],?$', "", grep('^"y":', lines, value = TRUE)),
            sep = ",", quiet = TRUE)
  some <- unique(round(seq(1, nrow(y_rep), length.out = 50)))
  check <- if (whole_numbers) ppc_bars else ppc_dens_overlay
  save_figure("responses", check(y, y_rep[some, , drop = FALSE]))
}
