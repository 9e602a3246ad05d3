skip_without_semistan <- function() {
  skip_if_not(semistan_available(), "Python's package semistan is not there")
}

rows <- local({
  set.seed(1)
  n <- 120
  data <- data.frame(
    x = rnorm(n), u = runif(n, -2, 2), flag = rep(c(TRUE, FALSE), n / 2),
    g = factor(sample(c("lo", "mid", "hi"), n, TRUE), c("lo", "mid", "hi")),
    site = sample(letters[1:6], n, TRUE)
  )
  data$y <- 1 + 0.8 * data$x + sin(2 * data$u) + rnorm(n, sd = 0.4)
  data$count <- rpois(n, exp(0.5 + 0.3 * data$x + 0.4 * (data$g == "hi")))
  data
})

# An approximation, which takes seconds.
quick <- function(formula, data = rows, ...) {
  semistan(formula, data, ..., method = "laplace", hidden = 3, draws = 100, chains = 2,
           progress = FALSE)
}

once <- new.env()
fits <- function(name) {
  if (is.null(once[[name]])) {
    once[[name]] <- switch(
      name,
      gaussian = quick(y ~ x + flag + nn(u), family = gaussian()),
      groups = quick(count ~ x + g + (1 + x | site) + nn(u), family = poisson()),
      sigma = quick(list(y ~ x + nn(u), sigma ~ x)),
      classes = quick(g ~ x + nn(u), family = "categorical")
    )
  }
  once[[name]]
}
