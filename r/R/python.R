# The Python module; an error says what to do where it is not found.
module <- function() {
  python <- getOption("semistan.python")
  if (!is.null(python)) reticulate::use_python(python, required = TRUE)
  tryCatch(reticulate::import("semistan", convert = FALSE), error = function(e) {
    stop("Python with the module semistan was not found. Install it with 'pip install semistan' ",
         "and name its Python, before anything else uses Python: ",
         "options(semistan.python = \"/path/to/python\"), or the variable RETICULATE_PYTHON.\n",
         "Python said: ", conditionMessage(e), call. = FALSE)
  })
}

# Evaluate a call of Python; its errors have their message only.
python <- function(call) {
  tryCatch(call, error = function(e) {
    text <- sub("\n*(Run `?reticulate::|Detailed traceback).*$", "", conditionMessage(e))
    stop(sub("^[A-Za-z_.]*(Error|Exception): ", "", text), call. = FALSE)
  })
}

absent_as_none <- function(x) lapply(seq_along(x), function(i) if (is.na(x[[i]])) NULL else x[[i]])

# A column for pandas. Levels keep their order, whole numbers and truth values stay what they are.
column <- function(x, pd) {
  if (is.factor(x)) {
    pd$Categorical(absent_as_none(as.character(x)), categories = as.list(levels(x)),
                   ordered = is.ordered(x))
  } else if (inherits(x, c("Date", "POSIXt"))) {
    pd$to_datetime(absent_as_none(format(x)))
  } else if (is.character(x)) {
    absent_as_none(x)
  } else if ((is.integer(x) || is.logical(x)) && anyNA(x)) {
    pd$array(absent_as_none(x), dtype = if (is.integer(x)) "Int64" else "boolean")
  } else if (is.numeric(x) || is.logical(x)) {
    if (length(x) == 1) as.list(x) else as.vector(x)
  } else {
    stop("a column of class ", class(x)[1], " cannot be used; expected numbers, truth values, ",
         "strings, a factor or dates", call. = FALSE)
  }
}

rows <- function(data) {
  if (is.null(data)) return(NULL)
  pd <- reticulate::import("pandas", convert = FALSE)
  pd$DataFrame(lapply(as.data.frame(data), column, pd = pd))
}

# Tables and arrays come as lists: reticulate's own way needs the NumPy that it was built for.
table_of <- function(table) {
  frame <- as.data.frame(reticulate::py_to_r(table$to_dict("list")), optional = TRUE)
  if (!is.null(reticulate::py_to_r(table$index$name))) {
    rownames(frame) <- reticulate::py_to_r(table$index$tolist())
  }
  frame
}

array_of <- function(values) {
  shape <- unlist(reticulate::py_to_r(values$shape))
  aperm(array(reticulate::py_to_r(values$ravel()$tolist()), rev(shape)))
}

# A setting as Python expects it: whole numbers are integers, hidden and channels are lists.
setting <- function(name, value) {
  if (is.numeric(value) && all(is.finite(value)) && all(abs(value) < 2^31) &&
      all(value == round(value))) {
    value <- as.integer(value)
  }
  if (name %in% c("hidden", "channels", "priors")) as.list(value) else value
}
