.onLoad <- function(libname, pkgname) {
  if (is.null(getOption("marginaleffects_model_classes"))) {
    options(marginaleffects_model_classes = "semistanfit")
  } else {
    known <- getOption("marginaleffects_model_classes")
    options(marginaleffects_model_classes = union(known, "semistanfit"))
  }
  invisible()
}
