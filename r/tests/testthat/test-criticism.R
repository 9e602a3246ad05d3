test_that("R2 is that of Python", {
  skip_without_semistan()
  found <- bayes_R2(fits("gaussian"))
  expect_equal(dimnames(found), list("R2", c("Estimate", "Est.Error", "Q2.5", "Q97.5")))
  draws <- posterior_epred(fits("gaussian"))
  spread <- apply(draws, 1, function(x) mean((x - mean(x))^2))
  ours <- spread / (spread + as.matrix(fits("gaussian"))[, "sigma"]^2)
  expect_equal(found[, "Estimate"], mean(ours), ignore_attr = TRUE, tolerance = 1e-8)
  expect_error(loo_R2(fits("gaussian")), "no LOO-R2")
})

test_that("an approximation has no leave-one-out", {
  skip_without_semistan()
  expect_error(loo(fits("gaussian")), "approximation")
})

test_that("checks are bayesplot's", {
  skip_without_semistan()
  fit <- fits("groups")
  figure <- pp_check(fit, "stat", stat = "max", ndraws = 50)
  expect_s3_class(figure, "ggplot")
  expect_equal(nrow(pp_check(fit)$data), 11 * nrow(rows))
  expect_s3_class(pp_check(fit, "stat_grouped", group = "g", stat = "mean"), "ggplot")
  expect_error(pp_check(fit, "nonsense"), "no check of type 'nonsense'")
  expect_error(pp_check(fit, "loo_pit_qq"), "leave-one-out")
  expect_error(pp_check(fit, "stat_grouped", group = "none"), "no column 'none'")
})

test_that("draws are plotted page by page", {
  skip_without_semistan()
  file <- tempfile(fileext = "%d.png")
  grDevices::png(file)
  pages <- plot(fits("groups"), N = 4)
  grDevices::dev.off()
  expect_length(pages, 2)
  expect_true(all(file.exists(sprintf(file, 1:2))) && !file.exists(sprintf(file, 3)))
})

test_that("emmeans averages the linear predictor", {
  skip_without_semistan()
  skip_if_not_installed("emmeans")
  skip_if_not_installed("coda")
  grid <- emmeans::emmeans(fits("groups"), "g")
  expect_equal(as.data.frame(grid)$g, factor(levels(rows$g), levels(rows$g)))
  draws <- as.matrix(fits("groups"))
  differences <- as.data.frame(emmeans::contrast(grid, "trt.vs.ctrl"))
  expect_equal(differences$estimate, c(median(draws[, "b_gmid"]), median(draws[, "b_ghi"])),
               tolerance = 1e-6)
  expect_error(emmeans::emmeans(fits("classes"), "x"))
})

test_that("marginaleffects gets draws of predictions", {
  skip_without_semistan()
  found <- get_predict.semistanfit(fits("gaussian"), rows[1:3, ])
  expect_equal(names(found), c("rowid", "estimate"))
  expect_equal(attr(found, "posterior_draws"), t(posterior_epred(fits("gaussian"), rows[1:3, ])),
               ignore_attr = TRUE)
  expect_equal(nrow(get_predict.semistanfit(fits("classes"), rows[1:3, ])), 9)
})

test_that("a whole fit by NUTS has all of it", {
  skip_without_semistan()
  skip_if_not(nzchar(Sys.getenv("SEMISTAN_TEST_NUTS")), "SEMISTAN_TEST_NUTS is not set, for minutes")
  fit <- semistan(y ~ x + nn(u), rows, hidden = 3, chains = 2, draws = 200, warmup = 200,
                  max_treedepth = 6, progress = FALSE)
  ours <- loo(fit)
  theirs <- python_fit(fit)$loo()
  expect_equal(ours$estimates["elpd_loo", "Estimate"], sum(array_of(
    reticulate::py_to_r(bridge()$array_of(theirs$elpd)))), tolerance = 1e-6)
  expect_equal(nrow(loo_compare(ours, loo(fit))), 2)
  expect_gt(loo_R2(fit)[, "Estimate"], 0.5)
  expect_true("divergent__" %in% nuts_params(fit)$Parameter)
  expect_equal(log_posterior(fit)$Value, as_draws_df(fit)$lp__)
  longer <- resume_semistan(fit, more = 100, progress = FALSE)
  expect_equal(c(ndraws(longer), ndraws(fit)), c(600, 400))
})

test_that("Ctrl-C stops Python and leaves R usable", {
  skip_without_semistan()
  skip_on_os("windows")
  fits("gaussian")
  system(sprintf("(sleep 2; kill -INT %d) &", Sys.getpid()))
  stopped <- withRestarts(
    semistan(y ~ x + nn(u), rows, chains = 2, draws = 100000, max_treedepth = 12, progress = FALSE),
    abort = function() "stopped"
  )
  expect_equal(stopped, "stopped")
  heard <- tryCatch({
    system(sprintf("(sleep 1; kill -INT %d) &", Sys.getpid()))
    Sys.sleep(10)
    "not heard"
  }, interrupt = function(e) "heard")
  expect_equal(heard, "heard")
  expect_equal(nrow(fixef(fits("gaussian"))), 3)
})
