test_that("draws are by rows, and agree with each other", {
  skip_without_semistan()
  fit <- fits("groups")
  new <- rows[1:5, ]
  eta <- posterior_linpred(fit, newdata = new)
  mean <- posterior_epred(fit, new)
  expect_equal(dim(mean), c(200, 5))
  expect_equal(mean, exp(eta))
  expect_equal(posterior_linpred(fit, transform = TRUE, newdata = new), mean)
  expect_equal(log_lik(fit, new),
               matrix(dpois(rep(new$count, each = 200), mean, log = TRUE), 200), tolerance = 1e-8)
  expect_equal(posterior_epred(fit)[, 1:5], mean, tolerance = 1e-10)
  parts <- lapply(c("structured", "nn", "penalised"), function(part) {
    posterior_linpred(fit, newdata = new, part = part)
  })
  rest <- eta - Reduce(`+`, parts)
  expect_equal(rest, rest[, rep(1, 5)], tolerance = 1e-8)
  replicated <- posterior_predict(fit, new, seed = 4)
  expect_true(all(replicated >= 0 & replicated == round(replicated)))
  expect_identical(replicated, posterior_predict(fit, new, seed = 4))
  expect_error(posterior_linpred(fit, new), "by name")
  expect_error(posterior_epred(fit, re_formula = NA), "re_formula")
  expect_error(posterior_epred(fit, draws = 3), "no argument 'draws'")
  expect_lte(abs(nrow(posterior_epred(fit, ndraws = 20)) - 20), 2)
})

test_that("summaries are of the draws", {
  skip_without_semistan()
  fit <- fits("gaussian")
  draws <- posterior_epred(fit)
  found <- fitted(fit)
  expect_equal(dimnames(found)[[2]], c("Estimate", "Est.Error", "Q2.5", "Q97.5"))
  expect_equal(found[, "Est.Error"], apply(draws, 2, sd))
  expect_equal(residuals(fit)[, "Estimate"], rows$y - colMeans(draws))
  expect_equal(predict(fit, summary = FALSE), posterior_predict(fit))
  expect_gt(mean(predict(fit)[, "Est.Error"]), mean(found[, "Est.Error"]))
  expect_equal(dim(fitted(fit, rows[1, ], probs = 0.5)), c(1, 3))
  expect_equal(fitted(fits("sigma"), rows[1:3, ], scale = "linear", dpar = "sigma")[, "Estimate"],
               colMeans(log(posterior_epred(fits("sigma"), rows[1:3, ], dpar = "sigma"))))
  pearson <- residuals(fit, type = "pearson")[, "Estimate"]
  expect_equal(pearson, residuals(fit)[, "Estimate"] / mean(as.matrix(fit)[, "sigma"]), tolerance = 0.2)
})

test_that("rows have the names that the user gave them", {
  skip_without_semistan()
  new <- rows[1:2, ]
  rownames(new) <- c("first", "second")
  expect_equal(rownames(fitted(fits("gaussian"), new)), c("first", "second"))
  expect_null(rownames(fitted(fits("gaussian"), rows[1:2, ])))
})

test_that("categories have probabilities", {
  skip_without_semistan()
  fit <- fits("classes")
  draws <- posterior_epred(fit, rows[1:4, ])
  expect_equal(dim(draws), c(200, 4, 3))
  expect_setequal(dimnames(draws)[[3]], c("lo", "mid", "hi"))
  expect_equal(apply(draws, 1:2, sum), matrix(1, 200, 4), ignore_attr = TRUE)
  expect_equal(fitted(fit, rows[1:4, ])[, "Estimate", "hi"], colMeans(draws[, , "hi"]))
  shares <- predict(fit, rows[1:4, ])
  expect_equal(rowSums(shares), rep(1, 4))
  expect_equal(shares, apply(draws, 2:3, mean), tolerance = 0.2, ignore_attr = TRUE)
  expect_error(residuals(fit), "categories")
})

test_that("new levels are allowed on request", {
  skip_without_semistan()
  new <- transform(rows[1:3, ], site = "new")
  expect_error(fitted(fits("groups"), new), "allow_new_levels = TRUE", fixed = TRUE)
  wide <- fitted(fits("groups"), new, allow_new_levels = TRUE)
  expect_gt(mean(wide[, "Est.Error"]), mean(fitted(fits("groups"), rows[1:3, ])[, "Est.Error"]))
})

test_that("effects of groups can be left out, drawn anew or integrated out", {
  skip_without_semistan()
  fit <- fits("groups")
  new <- rows[1:3, setdiff(names(rows), "site")]
  expect_error(fitted(fit, new), "site")
  centre <- posterior_epred(fit, new, groups = "none")
  expect_equal(log(centre), posterior_linpred(fit, newdata = new, groups = "none"))
  draws <- as.matrix(fit)
  level <- draws[, "sd_site__Intercept"]
  slope <- outer(draws[, "sd_site__x"], new$x)
  variance <- level^2 + 2 * draws[, "cor_site__Intercept__x"] * level * slope + slope^2
  expect_equal(posterior_epred(fit, new, groups = "marginal"), centre * exp(variance / 2),
               tolerance = 1e-8)
  drawn <- posterior_linpred(fit, newdata = new, groups = "new") - log(centre)
  expect_equal(unname(apply(drawn, 2, sd)), unname(sqrt(colMeans(variance))), tolerance = 0.3)
  twice <- posterior_linpred(fit, newdata = new[c(1, 1), ], groups = "new")
  expect_equal(twice[, 1], twice[, 2], ignore_attr = TRUE)
  expect_error(predict(fit, new, groups = "marginal"), 'groups = "new"', fixed = TRUE)
  expect_error(fitted(fit, new, groups = "mean"), "marginal")
  mean <- conditional_effects(fit, "x", groups = "marginal")$x
  expect_true(all(mean$estimate__ > conditional_effects(fit, "x")$x$estimate__))
})

test_that("effects vary one or two columns", {
  skip_without_semistan()
  fit <- fits("groups")
  found <- conditional_effects(fit)
  expect_equal(names(found), c("x", "g", "u"))
  expect_equal(found$g$g, factor(levels(rows$g), levels(rows$g)))
  expect_true(all(found$x$lower__ < found$x$estimate__ & found$x$estimate__ < found$x$upper__))
  held <- conditional_effects(fit, "x", conditions = list(g = "hi"))
  ratio <- held$x$estimate__ / found$x$estimate__
  expect_equal(ratio, rep(exp(fixef(fit)["ghi", 1]), length(ratio)), tolerance = 0.1)
  both <- conditional_effects(fit, "x:g", method = "average", scale = "linear", resolution = 4)[[1]]
  expect_equal(nrow(both), 12)
  figures <- plot(conditional_effects(fit, c("g", "x:u")), plot = FALSE)
  expect_s3_class(figures[[2]], "ggplot")
  expect_equal(nrow(ggplot2::ggplot_build(figures[[1]])$data[[1]]), 3)
  expect_equal(nrow(conditional_effects(fits("classes"), "x", resolution = 5)[[1]]), 15)
  expect_error(conditional_effects(fit, "nonsense"), "does not use a column 'nonsense'")
  expect_error(conditional_effects(fit, "x", conditions = list(g = c("hi", "lo"))), "one value")
})

test_that("dates stay dates", {
  skip_without_semistan()
  data <- transform(rows, day = as.Date("2024-01-01") + seq_len(nrow(rows)))
  found <- conditional_effects(quick(y ~ x + days(day) + nn(u), data), "day")$day
  expect_equal(range(found$day), range(data$day))
})
