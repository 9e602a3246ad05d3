
has <- function(package) requireNamespace(package, quietly = TRUE)
if (!has("posterior")) {
  stop("read.R needs the R package posterior: install.packages(\"posterior\")")
}
suppressPackageStartupMessages(library(posterior))

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

# One file's draws, warm-up left out; the first line of ADVI and Laplace is the approximation's
# centre. Columns are named as in Stan: r_1[2,1] of r_1.2.1.
read_chain <- function(file) {
  table <- read.csv(file, comment.char = "#", check.names = FALSE, colClasses = "numeric")
  if (method %in% c("meanfield", "fullrank", "laplace")) table <- table[-1, ]
  names(table) <- gsub(".", ",", sub("^([^.]+)\\.(.+)$", "\\1[\\2]", names(table)), fixed = TRUE)
  as_draws_matrix(as.matrix(table))
}
draws <- as_draws_array(do.call(bind_draws, c(lapply(files, read_chain), along = "chain")))

# Names as in the coefficient table and in brms, as b_x and r_g[a,Intercept].
renamed <- function(found) {
  known <- match(found, names(c(parameter_names, level_names)))
  ifelse(is.na(known), found, unname(c(parameter_names, level_names))[known])
}
variables(draws) <- renamed(variables(draws))
draws_df <- as_draws_df(draws)  # a row for each draw

# With unequal weights, the draws that count are at even distances in each chain.
counts <- sapply(kept[subspace_of], function(n) {
  seq_len(niterations(draws)) %in% (1 + round(seq(0, niterations(draws) - 1, length.out = n)))
})

cat(if (prior_only) "prior" else "posterior", "draws:", ndraws(draws), "\n")
cat("chains:", nchains(draws), "\n")
for (reservation in reservations) cat("not the posterior:", reservation, "\n")

if ("divergent__" %in% variables(draws)) {
  sampler <- function(name) extract_variable_matrix(draws, name)  # a column for each chain
  divergences <- sum(sampler("divergent__"))
  deepest <- sum(sampler("treedepth__") >= max_treedepth)
  ebfmi <- apply(sampler("energy__"), 2, function(e) mean(diff(e)^2) / mean((e - mean(e))^2))
  cat("divergent transitions:", divergences, "\n")
  cat("transitions at the limit of the tree depth:", deepest, "\n")
  cat("smallest E-BFMI:", format(min(ebfmi), digits = 3), "\n")
}

# ---- Coefficients ----------------------------------------------------------

# A quantity's draws as a matrix, a column for each chain; and those of them that count.
by_chain <- function(x) matrix(as.numeric(x), ncol = length(files))
counted <- function(x) by_chain(x)[counts]

# What `f` says of the chains of each subspace that counts.
by_subspace <- function(f, x) {
  sapply(which(kept > 0), function(m) f(by_chain(x)[, subspace_of == m, drop = FALSE]))
}
share <- (kept / niterations(draws))[kept > 0]  # of a subspace's draws that count

# brms's table: posterior mean, sd, 95% interval, and convergence: the root mean square of Rhat
# within each subspace, and effective sample sizes summed over the subspaces.
brms_table <- function(draws) {
  summarise_draws(
    draws,
    Estimate = function(x) mean(counted(x)),
    Est.Error = function(x) sd(counted(x)),
    "l-95% CI" = function(x) quantile(counted(x), 0.025, names = FALSE),
    "u-95% CI" = function(x) quantile(counted(x), 0.975, names = FALSE),
    Rhat = function(x) sqrt(weighted.mean(by_subspace(posterior::rhat, x)^2, share)),
    Bulk_ESS = function(x) sum(share * by_subspace(posterior::ess_bulk, x)),
    Tail_ESS = function(x) sum(share * by_subspace(posterior::ess_tail, x))
  )
}

coefficients <- subset_draws(draws, variable = unname(parameter_names))
coefficient_table <- brms_table(coefficients)
cat("\nCoefficients\n")
wide <- options(width = 120)
print(as.data.frame(coefficient_table), digits = 4, row.names = FALSE)
options(wide)

if (length(level_names) > 0) {
  level_table <- brms_table(subset_draws(draws, variable = unname(level_names)))
  cat("\n", length(level_names), " effects of levels, as ", level_names[1],
      ", are in `draws` and `level_table`.\n", sep = "")
}
if (length(uncompleted) > 0) {
  cat("Without what the weights outside the subspace add: ", paste(uncompleted, collapse = ", "),
      ".\nWith it they are written by\n  semistan export ", shQuote(run), " --to draws\n", sep = "")
}

# ---- Log-likelihood and replicated responses -------------------------------

# CmdStan's generated quantities, one column for each row of the data.
generated <- file.path(dirname(dirname(files)), "generated", basename(files))
has_generated <- all(file.exists(generated))
if (has_generated) {
  of_rows <- do.call(rbind, lapply(generated, read.csv, comment.char = "#",
                                   colClasses = "numeric"))
  of_rows <- of_rows[as.vector(counts), ]
  log_lik <- as.matrix(of_rows[startsWith(names(of_rows), "log_lik.")])
  y_rep <- as.matrix(of_rows[startsWith(names(of_rows), "y_rep.")])
} else {
  cat("\nFor loo and posterior predictive checks, write log_lik and y_rep with\n",
      "  semistan export ", shQuote(run), " --to generated\n", sep = "")
}

if (has_generated && !prior_only && temperature != 1) {
  cat("\nNo PSIS-LOO: loo() takes the draws as those of temperature 1, these have temperature ",
      temperature, ".\nUse\n  semistan loo ", shQuote(run), "\n", sep = "")
} else if (has_generated && !prior_only) {
  # Relative efficiencies are taken as 1, the default of loo since 2.7.
  if (has("loo")) {
    loo_result <- loo::loo(log_lik, r_eff = rep(1, ncol(log_lik)))
    cat("\nPSIS-LOO", if (subspace) ", given a subspace trained on all rows: optimistic", "\n", sep = "")
    print(loo_result)
  } else {
    cat("\nFor PSIS-LOO, install the R package loo.\n")
  }
}

if (has_generated && !prior_only) {
  lines <- readLines(file.path(folders[1], "data.json"))
  y <- scan(text = gsub('^"y":|[][]|,$', "", grep('^"y":', lines, value = TRUE)),
            sep = ",", quiet = TRUE)
  # Of several categories y_rep has a column for each row and category, rows running fastest.
  if (length(categories) > 0) y <- as.vector(matrix(y, ncol = length(categories), byrow = TRUE))
}

# ---- Figures ---------------------------------------------------------------

save_figures <- function() {
  figures <- file.path(run, "figures-r")
  dir.create(figures, showWarnings = FALSE)
  save_figure <- function(name, figure) {
    path <- file.path(figures, paste0(name, ".pdf"))
    ggplot2::ggsave(path, figure, width = 8, height = 6)
    cat(" ", path, "\n")
  }

  cat("\nFigures\n")
  # Intercepts and scales are in units of their own.
  slopes <- grep("^b_", variables(coefficients), value = TRUE)
  slopes <- grep("Intercept(\\[[0-9]+\\])?$", slopes, value = TRUE, invert = TRUE)
  if (length(slopes) > 0) {
    save_figure("coefficients",
                bayesplot::mcmc_intervals(coefficients, pars = slopes, prob_outer = 0.95))
  }
  few <- subset_draws(coefficients, variable = head(variables(coefficients), 12))
  save_figure("trace", bayesplot::mcmc_trace(few))
  if (nchains(draws) > 1) {
    save_figure("densities", bayesplot::mcmc_dens_overlay(few))
    save_figure("ranks", bayesplot::mcmc_rank_overlay(few))
  } else {
    save_figure("densities", bayesplot::mcmc_dens(few))
  }
  if (!has_generated || prior_only) return(invisible())
  some <- y_rep[unique(round(seq(1, nrow(y_rep), length.out = 50))), , drop = FALSE]
  if (length(categories) > 0) {
    of <- rep(categories, each = length(y) / length(categories))
    compared <- if (whole_numbers) bayesplot::ppc_bars_grouped
                else bayesplot::ppc_dens_overlay_grouped
    save_figure("responses", compared(y, some, group = of))
  } else if (whole_numbers) {
    save_figure("responses", bayesplot::ppc_bars(y, some))
  } else {
    save_figure("responses", bayesplot::ppc_dens_overlay(y, some))
  }
}
if (has("bayesplot")) save_figures() else cat("\nFor figures, install the R package bayesplot.\n")
