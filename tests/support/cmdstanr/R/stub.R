# The functions of cmdstanr that our scripts call, with the arguments that it documents.

cmdstan_model <- function(stan_file = NULL, exe_file = NULL, compile = TRUE, quiet = TRUE,
                          dir = NULL, pedantic = FALSE, include_paths = NULL, user_header = NULL,
                          cpp_options = list(), stanc_options = list(),
                          force_recompile = FALSE) {
  stopifnot(file.exists(c(stan_file, include_paths, user_header)), is.list(cpp_options))
  list(sample = sample_by_nuts)
}

sample_by_nuts <- function(data = NULL, refresh = NULL, init = NULL, save_latent_dynamics = FALSE,
                           output_dir = NULL, output_basename = NULL, sig_figs = NULL,
                           chains = 4, parallel_chains = 1, chain_ids = seq_len(chains),
                           threads_per_chain = NULL, opencl_ids = NULL, iter_warmup = NULL,
                           iter_sampling = NULL, save_warmup = FALSE, thin = NULL,
                           max_treedepth = NULL, adapt_engaged = TRUE, adapt_delta = NULL,
                           step_size = NULL, metric = NULL, metric_file = NULL,
                           inv_metric = NULL, init_buffer = NULL, term_buffer = NULL,
                           window = NULL, fixed_param = FALSE, show_messages = TRUE,
                           show_exceptions = TRUE, diagnostics = NULL, save_metric = NULL,
                           save_cmdstan_config = NULL, seed = NULL) {
  stopifnot(file.exists(data), file.exists(init), length(init) == chains,
            file.exists(as.character(metric_file)), length(metric_file) %in% c(0, chains),
            metric %in% c("unit_e", "diag_e", "dense_e"))
  given <- c("iter_warmup", "iter_sampling", "adapt_delta", "max_treedepth", "metric", "seed",
             "init_buffer", "term_buffer", "window", "sig_figs", "chains")
  for (name in given) cat(name, "=", format(get(name)), "\n")
  list(summary = function() data.frame(), cmdstan_diagnose = function() invisible())
}
