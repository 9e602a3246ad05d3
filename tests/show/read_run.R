# Source a run's read.R and write what it computed: Rscript read_run.R read.R out [draws.csv].

args <- commandArgs(trailingOnly = TRUE)
out <- args[2]
source(args[1])

# write.csv writes numbers with 15 digits.
write_table <- function(table, name) {
  table <- as.data.frame(table)
  table[] <- lapply(table, function(x) if (is.numeric(x)) as.numeric(x) else x)
  write.csv(table, file.path(out, paste0(name, ".csv")), row.names = FALSE)
}

write_table(coefficient_table, "coefficients")
if (length(level_names) > 0) write_table(level_table, "levels")
write_table(data.frame(name = variables(draws)), "variables")
if (exists("ebfmi")) {
  write_table(data.frame(
    draws = ndraws(draws),
    divergent = divergences,
    deepest = deepest,
    ebfmi = min(ebfmi)
  ), "diagnostics")
}

write_table(data.frame(rows = nrow(draws_df), iterations = max(draws_df$.iteration)), "frame")

if (exists("loo_result")) {
  write_table(data.frame(loo_result$pointwise,
                         pareto_k = loo_result$diagnostics$pareto_k), "pointwise")
  write_table(loo_result$estimates, "estimates")
  write_table(data.frame(y = y), "responses")

  # The same draws with noise that makes the weights heavy-tailed.
  set.seed(1)
  heavy <- log_lik + 3 * matrix(rnorm(length(log_lik)), nrow(log_lik))
  write_table(heavy, "heavy")
  heavy_loo <- suppressWarnings(loo::loo(heavy, r_eff = rep(1, ncol(heavy))))
  write_table(data.frame(heavy_loo$pointwise,
                         pareto_k = heavy_loo$diagnostics$pareto_k), "heavy_pointwise")
}

if (length(args) > 2) {
  exported <- as_draws_df(read.csv(args[3], check.names = FALSE))
  write_table(brms_table(subset_draws(exported, variable = unname(parameter_names))), "exported")
  write_table(data.frame(chains = nchains(exported), iterations = niterations(exported),
                         phi_2 = mean(extract_variable(exported, "phi[2]"))), "layout")
}
