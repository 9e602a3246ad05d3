test_that("formulas are written in semistan's words", {
  expect_equal(formula_text(y ~ x + s(z, k = 5L, bs = "cr") + nn(u, hidden = c(8, 8), skip = TRUE)),
               "y ~ x + s(z, k=5, bs='cr') + nn(u, hidden=[8, 8], skip=True)")
  expect_equal(formula_text(late | trials(n) ~ a:b + I(x^2) + offset(log(n)) + nn(.)),
               "late | trials(n) ~ a:b + I(x^2) + offset(log(n)) + nn(.)")
  expect_equal(formula_text(y ~ `body mass` + Sepal.Length + (x || g/h) + x %in% g + brms::mo(z)),
               "y ~ `body mass` + Sepal.Length + (x || g / h) + x %in% g + mo(z)")
  expect_equal(formula_text(y ~ (1 | mm(g, h, weights = cbind(v, w), scale = FALSE)) + nn(u)),
               "y ~ (1 | mm(g, h, weights=cbind(v, w), scale=False)) + nn(u)")
  expect_equal(formula_text(y ~ (1 | gr(g, cov = "A.csv")) + nn(u)),
               "y ~ (1 | gr(g, cov='A.csv')) + nn(u)")
  expect_equal(formula_text(list(y ~ x + nn(u), sigma ~ -x)), "y ~ x + nn(u), sigma ~ -x")
  expect_equal(formula_text("y ~ nn(emb_*)"), "y ~ nn(emb_*)")
  expect_error(formula_text(~ x), "nothing to the left")
  expect_error(formula_text(3), "the model is a formula")
})

test_that("what brms's bf() gives is a formula", {
  bf <- structure(list(formula = y ~ x + nn(u), pforms = list(sigma = sigma ~ z), pfix = list()),
                  class = c("brmsformula", "bform"))
  expect_equal(formula_text(bf), "y ~ x + nn(u), sigma ~ z")
})

test_that("a formula's text is read back", {
  formula <- y ~ x + nn(u, hidden = c(3, 3), skip = TRUE)
  expect_equal(formula_of(formula_text(formula)), formula, ignore_attr = TRUE)
  expect_equal(formula_of("y ~ x + nn(u), sigma ~ z")[[2]], sigma ~ z, ignore_attr = TRUE)
  expect_equal(formula_of("y ~ nn(emb_*)"), "y ~ nn(emb_*)")
})

test_that("update() changes a formula", {
  old <- y ~ x + (1 | g) + nn(u, hidden = c(3, 3))
  expect_equal(changed_formula(old, . ~ . - x + z), y ~ (1 | g) + nn(u, hidden = c(3, 3)) + z,
               ignore_attr = TRUE)
  expect_equal(changed_formula(old, log(.) ~ x + nn(v)), log(y) ~ x + nn(v), ignore_attr = TRUE)
  expect_equal(changed_formula(list(old, sigma ~ x), . ~ .), list(old, sigma ~ x),
               ignore_attr = TRUE)
  expect_error(changed_formula(old, . ~ . - x - (1 | g) - nn(u, hidden = c(3, 3))), "no term")
})

test_that("families are R's", {
  expect_equal(family_text(poisson(), "y ~ nn(u)"), "poisson(log)")
  expect_equal(family_text(poisson, "y ~ nn(u)"), "poisson(log)")
  expect_equal(family_text(Gamma("log"), "y ~ nn(u)"), "gamma(log)")
  expect_equal(family_text(binomial("probit"), "y ~ nn(u)"), "bernoulli(probit)")
  expect_equal(family_text(binomial(), "y | trials(n) ~ nn(u)"), "binomial(logit)")
  expect_equal(family_text("student", "y ~ nn(u)"), "student")
  expect_error(family_text(3, "y ~ nn(u)"), "family is text")
  object <- family_object("bernoulli", "probit")
  expect_equal(object$linkinv(object$linkfun(0.3)), 0.3)
})

test_that("settings and priors have names", {
  expect_equal(settings_of(chains = 2, k = "auto", hidden = c(8, 4), skip = TRUE, adapt_delta = 0.9),
               list(chains = 2L, k = "auto", hidden = list(8L, 4L), skip = TRUE, adapt_delta = 0.9))
  expect_equal(settings_of(priors = c(b = "normal(0, 1)"))$priors, list(b = "normal(0, 1)"))
  expect_error(settings_of(2), "have names")
  expect_error(settings_of(priors = list(b = 3)), "priors are text")
})
