python_table <- function(fit) {
  python_fit(fit)$summary()$table()$to_csv(float_format = "%.17g")
}

test_that("the summary has Python's numbers", {
  skip_without_semistan()
  fit <- fits("groups")
  theirs <- read.csv(text = python_table(fit), check.names = FALSE)
  ours <- summary(fit)
  expect_equal(rownames(ours$coefficients), theirs$variable)
  expect_equal(ours$coefficients, as.matrix(theirs[-1]), ignore_attr = TRUE, tolerance = 1e-12)
  expect_equal(colnames(ours$coefficients), names(theirs)[-1])
  printed <- capture.output(print(ours))
  by_python <- strsplit(reticulate::py_to_r(bridge()$shown(python_fit(fit))), "\n")[[1]]
  squeezed <- function(lines) gsub(" +", " ", lines)
  expect_true(all(squeezed(by_python) %in% squeezed(printed)))
  expect_output(print(fit), "Family: poisson, link log")
})

test_that("another interval is wider or narrower", {
  skip_without_semistan()
  found <- summary(fits("gaussian"), prob = 0.5)$coefficients
  expect_equal(colnames(found)[3:4], c("l-50% CI", "u-50% CI"))
  expect_true(all(found[, 3] < found[, 1] & found[, 1] < found[, 4]))
  expect_error(summary(fits("gaussian"), prob = 2), "between 0 and 1")
})

test_that("coefficients are those of the draws", {
  skip_without_semistan()
  fit <- fits("gaussian")
  draws <- as.matrix(fit)
  expect_equal(rownames(fixef(fit)), c("Intercept", "x", "flag"))
  expect_equal(fixef(fit)[, "Estimate"], colMeans(draws[, c("b_Intercept", "b_x", "b_flag")]),
               ignore_attr = TRUE)
  expect_equal(coef(fit), fixef(fit)[, "Estimate"])
  expect_equal(vcov(fit), cov(fixef(fit, summary = FALSE)))
  expect_equal(diag(vcov(fit, correlation = TRUE)), c(Intercept = 1, x = 1, flag = 1))
  expect_equal(rownames(fixef(fits("sigma"))), c("Intercept", "x", "sigma_Intercept", "sigma_x"))
})

test_that("effects of levels are those of the draws", {
  skip_without_semistan()
  fit <- fits("groups")
  draws <- as.matrix(fit)
  found <- ranef(fit)$site
  expect_equal(dim(found), c(6, 4, 2))
  for (effect in c("Intercept", "x")) {
    names <- paste0("r_site[", rownames(found), ",", effect, "]")
    expect_equal(found[, "Estimate", effect], colMeans(draws[, names]), ignore_attr = TRUE)
    expect_equal(found[, "Q97.5", effect],
                 apply(draws[, names], 2, quantile, 0.975), ignore_attr = TRUE)
    expect_equal(coef(fit)$site[, "Estimate", effect],
                 found[, "Estimate", effect] + mean(draws[, paste0("b_", effect)]))
  }
  variances <- VarCorr(fit)$site
  expect_equal(variances$sd["x", "Estimate"], mean(draws[, "sd_site__x"]))
  expect_equal(variances$cor["x", "Estimate", "Intercept"],
               mean(draws[, "cor_site__Intercept__x"]))
  expect_equal(variances$cov["x", "Estimate", "x"], mean(draws[, "sd_site__x"]^2))
  expect_equal(VarCorr(fits("gaussian"))$residual__$sd["sigma", "Estimate"],
               mean(as.matrix(fits("gaussian"))[, "sigma"]))
  expect_error(ranef(fits("gaussian")), "no group-level terms")
})

test_that("draws are posterior's", {
  skip_without_semistan()
  fit <- fits("groups")
  draws <- as_draws_df(fit)
  expect_s3_class(draws, "draws_df")
  expect_equal(c(ndraws(fit), nchains(fit), niterations(fit)), c(200, 2, 100))
  expect_equal(posterior::niterations(draws), 100)
  expect_true(all(c("b_ghi", "sd_site__x", "r_site[a,x]", "lprior") %in% variables(fit)))
  expect_false(any(grepl("__$", setdiff(variables(fit), "lp__"))))
  expect_equal(variables(as_draws_array(fit, variable = "^b_", regex = TRUE)),
               c("b_Intercept", "b_x", "b_gmid", "b_ghi"))
  expect_equal(dim(as_draws_matrix(fit, variable = "b_x")), c(200, 1))
  expect_s3_class(as_draws_rvars(fit)$b_x, "rvar")
  expect_s3_class(as_draws_list(fit), "draws_list")
  expect_equal(names(as.data.frame(fit))[1:2], c("sd_site__Intercept", "sd_site__x"))
  expect_error(log_posterior(fit), "no lp__")
})

test_that("a fit says what it is of", {
  skip_without_semistan()
  fit <- fits("sigma")
  expect_equal(nobs(fit), nrow(rows))
  expect_equal(formula(fit), list(y ~ x + nn(u), sigma ~ x), ignore_attr = TRUE)
  expect_equal(family(fits("groups"))[c("family", "link")], list(family = "poisson", link = "log"))
  expect_match(unclass(stancode(fit)), "parameters {", fixed = TRUE)
  expect_equal(standata(fit)$y, rows$y)
  expect_true("b_sigma_x" %in% prior_summary(fit)$parameter)
})

test_that("a fit is kept, read, updated and gone on with", {
  skip_without_semistan()
  fit <- fits("gaussian")
  folder <- file.path(tempfile(), "kept")
  dir.create(dirname(folder))
  saved <- save_semistan(fit, folder)
  expect_equal(as.matrix(saved), as.matrix(fit))
  expect_error(save_semistan(fit, folder), "exists")
  again <- read_semistan(folder)
  expect_equal(as.matrix(again), as.matrix(fit))
  expect_equal(formula(again), formula(fit), ignore_attr = TRUE)
  expect_equal(again$data[c("x", "u", "y")], rows[c("x", "u", "y")])
  file <- tempfile()
  saveRDS(saved, file)
  expect_equal(as.matrix(readRDS(file)), as.matrix(fit))
  other <- update(fit, . ~ . - flag + g, seed = 2, progress = FALSE)
  expect_equal(rownames(fixef(other)), c("Intercept", "x", "gmid", "ghi"))
  expect_equal(ndraws(other), 200)
  fewer <- update(fit, newdata = rows[1:80, ], family = "student", progress = FALSE)
  expect_equal(nobs(fewer), 80)
  expect_true("nu" %in% variables(fewer))
})

test_that("a temporary folder ends with the fit", {
  skip_without_semistan()
  fit <- quick(y ~ x + nn(u))
  path <- fit$path
  expect_true(dir.exists(path))
  expect_error(read_semistan(file.path(path, "none")), "none")
  rm(fit)
  gc()
  gc()
  expect_false(dir.exists(path))
})

test_that("errors of Python are errors of R, in R's words", {
  skip_without_semistan()
  expect_error(semistan(y ~ x + nn(zz), rows), "column 'zz', which the data do not have")
  expect_error(semistan(y ~ x + nn(u), rows, chain = 2), "Did you mean 'chains'")
  expect_error(semistan(y ~ x + nn(u), rows, priors = list(b = "nrmal(0, 1)")), "Did you mean 'normal'")
  expect_error(semistan(y ~ x + nn(u), rows, family = "poison"), "Did you mean 'poisson'")
  lacking <- rows
  lacking$x[3] <- NA
  error <- expect_error(semistan(y ~ x + nn(u), lacking), "drop_missing = TRUE", fixed = TRUE)
  expect_no_match(conditionMessage(error), "Traceback|--drop")
  expect_equal(nobs(quick(y ~ x + nn(u), lacking, drop_missing = TRUE)), nrow(rows) - 1)
})

test_that("levels keep their order, and numbers as labels their text", {
  skip_without_semistan()
  data <- rows
  data$g <- factor(data$g, c("hi", "lo", "mid", "unused"))
  data$id <- factor(rep(c(10, 9, 8), nrow(data) / 3), c(10, 9, 8))
  data$rank <- factor(data$g, c("lo", "mid", "hi"), ordered = TRUE)
  expect_equal(rownames(fixef(quick(y ~ g + id + nn(u), data))),
               c("Intercept", "glo", "gmid", "id9", "id8"))
  expect_equal(rownames(fixef(quick(y ~ rank + nn(u), data))), c("Intercept", "rank_L", "rank_Q"))
})

test_that("no settings are a dict in Python, which an empty list is not", {
  expect_identical(names(settings_of()), character(0))
})
