# Tables and arrays on their way to Python and back: columns as bytes, text as codes and levels.

#' The columns of a data frame as Python reads them. What is no column of a model is left out where
#' the formula does not name it.
columns_of <- function(data, formula = ".") {
  if (is.null(data)) return(NULL)
  if (!is.data.frame(data)) {
    stop("data are a data frame, got ", class(data)[1], call. = FALSE)
  }
  twice <- names(data)[duplicated(names(data))]
  if (length(twice)) {
    stop("the data have two columns called '", twice[1], "'; rename one", call. = FALSE)
  }
  named <- names(data) %in% names_in(formula)
  kept <- vapply(data, is_column, NA)
  if (any(named & !kept)) {
    first <- which(named & !kept)[1]
    stop("column '", names(data)[first], "' is of class ", class(data[[first]])[1],
         ", and a column holds numbers, text, factors, logical values, dates or times. Make a ",
         "matrix a column for each of its own.", call. = FALSE)
  }
  unname(Map(function(name, column) c(list(name = enc2utf8(name)), column_of(column)),
             names(data)[kept], unclass(data)[kept]))
}

# The words of a formula's text, and what stands in its backticks.
names_in <- function(formula) {
  unlist(regmatches(formula, gregexpr("(?<=`)[^`]+(?=`)|[\\p{L}\\p{N}._]+", formula, perl = TRUE)))
}

is_column <- function(x) {
  if (is.matrix(x)) return(ncol(x) == 1 && is.numeric(x))  # as scale() makes them
  inherits(x, c("POSIXt", "difftime")) || is.factor(x) || is.character(x) || is.logical(x) ||
    is.numeric(x) || inherits(x, "Date")
}

column_of <- function(x) {
  if (is.matrix(x)) x <- x[, 1]
  if (is.factor(x)) return(coded("factor", as.integer(x) - 1L, levels(x), is.ordered(x)))
  if (inherits(x, "Date")) return(numbers("date", x))
  if (inherits(x, "POSIXt")) return(numbers("time", as.POSIXct(x)))
  if (inherits(x, "integer64")) {
    return(list(kind = "long", bytes = writeBin(as.double(unclass(x)), raw())))
  }
  if (is.character(x)) {
    levels <- unique(x[!is.na(x)])
    return(coded("text", match(x, levels) - 1L, levels, FALSE))
  }
  if (is.logical(x)) {
    return(list(kind = "truth", bytes = writeBin(ifelse(is.na(x), -1L, as.integer(x)), raw())))
  }
  if (is.integer(x) && !anyNA(x)) {
    return(list(kind = "whole", bytes = writeBin(as.integer(unclass(x)), raw())))
  }
  numbers("number", x)
}

coded <- function(kind, codes, levels, ordered) {
  codes[is.na(codes)] <- -1L
  list(kind = kind, bytes = writeBin(as.integer(codes), raw()),
       levels = as.list(enc2utf8(levels)), ordered = ordered)
}

numbers <- function(kind, x) list(kind = kind, bytes = writeBin(as.double(unclass(x)), raw()))

#' A data frame of the columns that Python gives.
frame_of <- function(columns) {
  found <- lapply(columns, read_column)
  names(found) <- vapply(columns, `[[`, "", "name")
  size <- if (length(found)) length(found[[1]]) else 0L
  structure(found, class = "data.frame", row.names = seq_len(size))
}

read_column <- function(column) {
  whole <- function() readBin(column$bytes, "integer", length(column$bytes) / 4)
  double <- function() readBin(column$bytes, "double", length(column$bytes) / 8)
  levels <- as.character(unlist(column$levels))
  switch(
    column$kind,
    truth = c(NA, FALSE, TRUE)[whole() + 2L],
    time = as.POSIXct(double(), origin = "1970-01-01", tz = "UTC"),
    number = without_point(double()),
    factor = factor(levels[ifelse(whole() < 0, NA, whole() + 1L)], levels,
                    ordered = column$ordered),
    text = levels[ifelse(whole() < 0, NA, whole() + 1L)]
  )
}

without_point <- function(x) {
  if (all(is.finite(x)) && all(x == round(x)) && all(abs(x) < 2^31)) as.integer(x) else x
}

#' An array that Python gives, or a vector if it has one dimension.
array_of <- function(found) {
  shape <- as.integer(unlist(found$shape))
  values <- readBin(found$bytes, "double", length(found$bytes) / 8)
  if (length(shape) > 1) array(values, shape) else values
}
