library(testthat)
library(semistan)

test_check("semistan")
