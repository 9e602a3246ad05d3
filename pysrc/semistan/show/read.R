
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

# Several subspaces have a folder each; the posterior is the mixture of theirs.
folders <- if (subspaces > 1) file.path(run, "subspaces", seq_len(subspaces)) else run
files <- file.path(rep(folders, each = chains), "chains",
                   sprintf("chain-%d.csv", rep(seq_len(chains), subspaces)))
subspace_of <- rep(seq_len(subspaces), each = chains)  # of each file
absent <- files[!file.exists(files)]
if (length(absent) > 0) {
  stop("these chains are missing: ", paste(absent, collapse = ", "),
       "\nComplete the run with 'semistan sample', or set `run` in this script.")
}

# One file's draws; the first line of ADVI and Laplace is the approximation's centre.
read_table <- function(file) {
  table <- read.csv(file, comment.char = "#", check.names = FALSE, colClasses = "numeric")
  if (method %in% c("meanfield", "fullrank", "laplace")) table <- table[-1, ]
  names(table) <- gsub(".", ",", sub("^([^.]+)\\.(.+)$", "\\1[\\2]", names(table)), fixed = TRUE)
  as_draws_matrix(as.matrix(table))
}

# rstan takes what is set in a file for numbers, where newer releases of CmdStan write true and
# false: these it reads from a copy. The files of the run stay as they are.
numbers_for_rstan <- function(file) {
  lines <- readLines(file)
  set <- grepl("^#.*= (true|false)\\b", lines)
  if (!any(set)) return(file)
  lines[set] <- sub("= true\\b", "= 1", sub("= false\\b", "= 0", lines[set]))
  copy <- tempfile(fileext = ".csv")
  writeLines(lines, copy)
  copy
}

# The chains of one subspace, whose warm-up may differ from that of another.
read_fit <- function(files) {
  if (requireNamespace("cmdstanr", quietly = TRUE)) {
    cmdstanr::as_cmdstan_fit(files)
  } else {
    rstan::read_stan_csv(vapply(files, numbers_for_rstan, ""))
  }
}
draws_of <- function(fit) {
  as_draws_array(if (inherits(fit, "stanfit")) as.array(fit) else fit$draws())
}

if (method != "nuts") {
  tables <- lapply(files, read_table)
} else {
  fits <- lapply(split(files, subspace_of), read_fit)
  tables <- lapply(fits, draws_of)
}
draws <- as_draws_array(do.call(bind_draws, c(unname(tables), along = "chain")))
draws_df <- as_draws_df(draws)  # a row for each draw

# With unequal weights, the draws that count are at even distances in each chain.
counts <- sapply(kept[subspace_of], function(n) {
  seq_len(niterations(draws)) %in% (1 + round(seq(0, niterations(draws) - 1, length.out = n)))
})

cat(if (prior_only) "prior" else "posterior", "draws:", ndraws(draws), "\n")
cat("chains:", nchains(draws), "\n")
for (reservation in reservations) cat("not the posterior:", reservation, "\n")

if (method == "nuts") {
  nuts <- do.call(rbind, Map(function(fit, before) {
    transform(nuts_params(fit), Chain = as.integer(Chain) + before)
  }, fits, chains * (seq_len(subspaces) - 1)))
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

# A quantity's draws as a matrix, a column for each chain; and those of them that count.
by_chain <- function(x) matrix(as.numeric(x), ncol = length(files))
counted <- function(x) by_chain(x)[counts]

# What `f` says of the chains of each subspace that counts.
by_subspace <- function(f, x) {
  sapply(which(kept > 0), function(m) f(by_chain(x)[, subspace_of == m, drop = FALSE]))
}
share <- (kept / niterations(draws))[kept > 0]  # of a subspace's draws that count

# brms's table: posterior mean, sd, 95% interval, and convergence: the largest Rhat within a
# subspace, and effective sample sizes summed over the subspaces.
brms_table <- function(draws) {
  summarise_draws(
    draws,
    Estimate = function(x) mean(counted(x)),
    Est.Error = function(x) sd(counted(x)),
    "l-95% CI" = function(x) quantile(counted(x), 0.025, names = FALSE),
    "u-95% CI" = function(x) quantile(counted(x), 0.975, names = FALSE),
    Rhat = function(x) max(by_subspace(posterior::rhat, x)),
    Bulk_ESS = function(x) sum(share * by_subspace(posterior::ess_bulk, x)),
    Tail_ESS = function(x) sum(share * by_subspace(posterior::ess_tail, x))
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
generated <- file.path(dirname(dirname(files)), "generated", basename(files))
has_generated <- all(file.exists(generated))
if (has_generated) {
  columns <- do.call(rbind, lapply(generated, read.csv, comment.char = "#",
                                   colClasses = "numeric"))
  columns <- columns[as.vector(counts), ]
  log_lik <- as.matrix(columns[startsWith(names(columns), "log_lik.")])
  y_rep <- as.matrix(columns[startsWith(names(columns), "y_rep.")])
} else {
  cat("\nFor loo and posterior predictive checks, write log_lik and y_rep with\n",
      "  semistan export ", shQuote(run), " --to generated\n", sep = "")
}

if (has_generated && !prior_only && temperature != 1) {
  cat("\nNo PSIS-LOO: loo() takes the draws as those of temperature 1, these have temperature ",
      temperature, ".\nUse\n  semistan loo ", shQuote(run), "\n", sep = "")
} else if (has_generated && !prior_only) {
  # Relative efficiencies are taken as 1, the default of loo since 2.7.
  loo_result <- loo::loo(log_lik, r_eff = rep(1, ncol(log_lik)))
  cat("\nPSIS-LOO", if (subspace) ", given a subspace trained on all rows: optimistic", "\n", sep = "")
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
if (nchains(draws) > 1) {
  save_figure("densities", mcmc_dens_overlay(few))
  save_figure("ranks", mcmc_rank_overlay(few))
} else {
  save_figure("densities", mcmc_dens(few))
}

if (has_generated && !prior_only) {
  lines <- readLines(file.path(folders[1], "data.json"))
  y <- scan(text = gsub('^"y":|[][]|,$', "", grep('^"y":', lines, value = TRUE)),
            sep = ",", quiet = TRUE)
  some <- unique(round(seq(1, nrow(y_rep), length.out = 50)))
  check <- if (whole_numbers) ppc_bars else ppc_dens_overlay
  if (length(categories) > 0) {  # one column of y_rep for each row and category, rows running fastest
    y <- as.vector(matrix(y, ncol = length(categories), byrow = TRUE))
    check <- function(y, y_rep) {
      ppc_bars_grouped(y, y_rep, group = rep(categories, each = length(y) / length(categories)))
    }
  }
  save_figure("responses", check(y, y_rep[some, , drop = FALSE]))
}
