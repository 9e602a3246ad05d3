# What Python reads of a data frame and gives back.
there_and_back <- function(data) {
  python <- bridge()
  frame_of(reticulate::py_to_r(python$columns_of(python$table_of(columns_of(data)))))
}

test_that("columns cross without loss", {
  skip_without_semistan()
  data <- data.frame(
    number = c(1.5, NA, -Inf, 1e300), whole = c(1L, -5L, 2147483647L, 0L), gaps = c(1L, NA, 3L, 4L),
    beyond = c(2^31, 2^40 + 1, 0.5, 3e9), truth = c(TRUE, FALSE, TRUE, TRUE),
    perhaps = c(TRUE, NA, FALSE, TRUE), text = c("a", NA, "\u00e4 \U1F600", ""),
    level = factor(c("z", "a", NA, "z"), c("z", "a", "unused")),
    rank = factor(c("lo", "hi", "lo", "lo"), c("lo", "hi"), ordered = TRUE)
  )
  data$`odd name` <- 1:4
  back <- there_and_back(data)
  expect_equal(back, data)
  expect_identical(back$level, data$level)
  expect_identical(back$whole, data$whole)
})

test_that("dates and times are moments", {
  skip_without_semistan()
  data <- data.frame(day = as.Date(c("2024-02-29", NA, "1969-12-31")))
  data$time <- as.POSIXct(c("2024-02-29 23:30:00", NA, "1999-01-01 00:00:01"), tz = "America/Lima")
  data$list <- as.POSIXlt(data$time)
  back <- there_and_back(data)
  expect_equal(as.Date(back$day), data$day)
  expect_equal(as.numeric(back$time), as.numeric(data$time))
  expect_equal(back$list, back$time)
})

test_that("whole numbers of bit64 are exact", {
  skip_without_semistan()
  skip_if_not_installed("bit64")
  data <- data.frame(id = bit64::as.integer64(c("9007199254740993", NA)))
  table <- bridge()$table_of(columns_of(data))
  expect_match(as.character(reticulate::py_str(table)), "9007199254740993")
})

test_that("what is no column is left out where it is not named", {
  data <- data.frame(y = 1:2)
  data$m <- cbind(1:2, 3:4)
  data$s <- scale(1:2)
  data$l <- list(1, 2)
  expect_equal(vapply(columns_of(data, "y ~ nn(s)"), `[[`, "", "name"), c("y", "s"))
  expect_error(columns_of(data, "y ~ nn(m)"), "column 'm' is of class matrix")
  expect_error(columns_of(list(1)), "data frame")
  expect_error(columns_of(setNames(data.frame(1, 2), c("a", "a"))), "two columns called 'a'")
})

test_that("names are found in a formula", {
  expect_setequal(names_in("y ~ x.1 + `b c` + nn(gr\u00f6\u00dfe)"),
                  c("y", "x.1", "b c", "nn", "gr\u00f6\u00dfe"))
})
