# The Python process: how it is found, and how it is asked.

state <- new.env(parent = emptyenv())

#' The Python side of this package; started on first use, and then kept.
bridge <- function() {
  if (is.null(state$bridge)) {
    start_python()
    folder <- system.file("python", package = "semistan", mustWork = TRUE)
    state$bridge <- tryCatch(
      reticulate::import_from_path("semistan_r", folder, convert = FALSE),
      error = function(e) stop(not_found(conditionMessage(e)), call. = FALSE)
    )
    check_version()
  }
  state$bridge
}

start_python <- function() {
  if (reticulate::py_available()) return(invisible())
  chosen <- getOption("semistan.python")
  if (!is.null(chosen)) {
    return(use_place(chosen))
  }
  if (nzchar(Sys.getenv("RETICULATE_PYTHON"))) return(invisible())
  # reticulate would otherwise offer to install a Python of its own.
  if (is.na(Sys.getenv("RETICULATE_MINICONDA_ENABLED", NA))) {
    Sys.setenv(RETICULATE_MINICONDA_ENABLED = "FALSE")
  }
  command <- python_of_command(Sys.which("semistan"))
  if (nzchar(command)) reticulate::use_python(command, required = FALSE)
  invisible()
}

use_place <- function(place) {
  place <- path.expand(place)
  if (!file.exists(place)) {
    stop("options(semistan.python = \"", place, "\"): there is nothing there. Name a Python, or the ",
         "folder of a virtual environment.", call. = FALSE)
  }
  if (dir.exists(place)) reticulate::use_virtualenv(place, required = TRUE)
  else reticulate::use_python(place, required = TRUE)
  invisible()
}

# The Python that a command written in Python begins with: "#!/path/to/python".
python_of_command <- function(command) {
  if (!nzchar(command)) return("")
  first <- tryCatch(readLines(command, n = 1, warn = FALSE), error = function(e) "")
  python <- sub("^#!\\s*(\\S+).*", "\\1", first)
  if (startsWith(first, "#!") && grepl("python", basename(python)) && file.exists(python)) python
  else ""
}

not_found <- function(reason) {
  used <- tryCatch(reticulate::py_config()$python, error = function(e) NULL)
  paste0(
    if (is.null(used)) "Python was not found. "
    else paste0("Python's package semistan cannot be used from ", used, " (",
                strsplit(reason, "\n")[[1]][1], "). "),
    "Install it into a virtual environment, and before the first use of this package say where it ",
    "is: options(semistan.python = \"~/my-environment\"), or reticulate::use_virtualenv(). A ",
    "Python that R has started stays until R ends."
  )
}

check_version <- function() {
  theirs <- ask("version")
  ours <- as.character(utils::packageVersion("semistan"))
  if (theirs != ours) {
    warning("this is semistan ", ours, " for R, and semistan ", theirs, " of Python: install the ",
            "same version of both", call. = FALSE)
  }
}

#' Ask the Python side, and raise its errors as R's.
ask <- function(verb, ...) {
  found <- reticulate::py_to_r(bridge()$attempt(verb, ...))
  if (isTRUE(found$interrupted)) {
    message("interrupted")
    invokeRestart("abort")
  }
  if (!is.null(found$error)) stop(in_r(found$error), call. = FALSE)
  found$value
}

# Advice in the words of R: an argument in place of the command line's flag.
in_r <- function(text) {
  text <- gsub("--drop-missing", "drop_missing = TRUE", text, fixed = TRUE)
  text <- gsub("--allow-new-levels", "allow_new_levels = TRUE", text, fixed = TRUE)
  gsub("--groups ([a-z]+)", "groups = \"\\1\"", text)
}

semistan_available <- function() {
  found <- tryCatch(!is.null(suppressWarnings(bridge())), error = function(e) FALSE)
  isTRUE(found)
}

# A Python value of an R one: whole numbers are whole there, and vectors are lists.
plain <- function(value) {
  if (is.numeric(value) && all(is.finite(value)) && all(value == round(value)) &&
      all(abs(value) < 2^31)) {
    value <- stats::setNames(as.integer(value), names(value))
  }
  if (is.atomic(value) && (length(value) != 1 || !is.null(names(value)))) value <- as.list(value)
  value
}
