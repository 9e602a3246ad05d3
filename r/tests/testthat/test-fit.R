module_or_skip <- function() {
  found <- tryCatch(reticulate::py_module_available("semistan"), error = function(e) FALSE)
  skip_if_not(found, "Python with semistan")
}

test_that("formulas and families are written as Python reads them", {
  expect_equal(semistan:::formula_text(y ~ x + nn(u) + (1 | g)), "y ~ x + nn(u) + (1 | g)")
  expect_equal(semistan:::formula_text(list(y ~ nn(u), sigma ~ z)), "y ~ nn(u), sigma ~ z")
  expect_equal(semistan:::family_text(binomial("probit")), "bernoulli(probit)")
  expect_equal(semistan:::family_text(Gamma("log")), "gamma(log)")
})

test_that("columns keep levels, their order, missing values and dates", {
  module_or_skip()
  data <- data.frame(g = factor(c("b", NA, "a"), levels = c("b", "a")), i = c(1L, NA, 3L),
                     day = as.Date("2020-01-01") + 0:2, s = c("u", "v", NA), l = c(TRUE, NA, FALSE))
  table <- semistan:::rows(data)
  text <- function(x) as.character(reticulate::py_to_r(x))
  expect_equal(text(table$g$cat$categories$tolist()), c("b", "a"))
  expect_equal(text(table$g$cat$codes$tolist()), c("0", "-1", "1"))
  expect_equal(text(table$i$dtype$name), "Int64")
  expect_equal(text(table$l$dtype$name), "boolean")
  expect_match(text(table$day$dtype$name), "datetime64")
  expect_equal(text(table$s$isna()$tolist()), c("FALSE", "FALSE", "TRUE"))
})

test_that("errors are Python's messages alone", {
  module_or_skip()
  data <- data.frame(y = rnorm(20), u = rnorm(20))
  message <- tryCatch(semistan(y ~ nn(absent), data), error = conditionMessage)
  expect_match(message, "absent")
  expect_false(grepl("Traceback|Error:|reticulate", message))
})

test_that("a fit of counts agrees with Python, and its methods have their shapes", {
  module_or_skip()
  set.seed(1)
  data <- data.frame(x = rnorm(100), u = runif(100), g = factor(rep(c("b", "a"), 50), c("b", "a")))
  data$y <- rpois(100, exp(0.5 * data$x + data$u))
  fit <- semistan(y ~ x + g + nn(u), data, family = poisson(), hidden = 4, method = "laplace",
                  seed = 1, progress = FALSE)
  table <- summary(fit)
  expect_equal(rownames(coef(fit)), c("b_Intercept", "b_x", "b_ga"))
  expect_equal(unname(coef(fit)[, "Estimate"]), table[rownames(coef(fit)), "Estimate"],
               tolerance = 1e-6)
  mean <- posterior_epred(fit)
  expect_equal(dim(mean), c(nrow(as_draws_df(fit)), 100L))
  expect_equal(colMeans(mean), predict(fit)$Estimate, tolerance = 1e-6)
  expect_equal(exp(posterior_linpred(fit, newdata = data[3, ])), mean[, 3, drop = FALSE])
  expect_equal(dim(posterior_predict(fit)), dim(mean))
  expect_equal(log_lik(fit)[, 1], dpois(data$y[1], mean[, 1], log = TRUE), tolerance = 1e-6)
  expect_s3_class(suppressWarnings(loo(fit)), "loo")
  expect_match(stancode(fit), "poisson")
  expect_output(print(fit), "b_ga")
})
