# What columns do to the response, as tables and pictures.

conditional_effects <- function(x, ...) UseMethod("conditional_effects")

conditional_effects.semistanfit <- function(x, effects = NULL, conditions = NULL, prob = 0.95,
                                            method = c("conditional", "average"),
                                            scale = c("response", "linear"), resolution = NULL,
                                            category = NULL, groups = "known", ...) {
  no_others(..., .of = "conditional_effects")
  method <- match.arg(method)
  scale <- match.arg(scale)
  if (is.null(effects)) effects <- x$facts$shown
  at <- if (length(conditions)) as.data.frame(as.list(conditions), optional = TRUE)
  if (!is.null(at) && (nrow(at) != 1 || method == "average")) {
    stop("conditions are one value for each column that is held, of method = \"conditional\"",
         call. = FALSE)
  }
  found <- lapply(effects, function(effect) {
    varied <- strsplit(effect, ":", fixed = TRUE)[[1]]
    one <- ask("effect", python_of(x), as.list(varied), interval = prob, at = columns_of(at),
               kind = if (method == "average") "pd" else "conditional",
               scale = if (scale == "linear") "linpred" else "response",
               resolution = whole_or_null(resolution), category = category, groups = groups)
    table <- frame_of(one$table)
    names(table)[match("Estimate", names(table)) + 0:3] <-
      c("estimate__", "se__", "lower__", "upper__")
    for (name in varied) table[[name]] <- as_in_data(table[[name]], x$data[[name]])
    table$effect1__ <- table[[varied[1]]]
    if (length(varied) > 1) table$effect2__ <- table[[varied[2]]]
    structure(table, effects = varied, held = one$reference, categorical = !is.null(table$category))
  })
  structure(stats::setNames(found, effects), class = "semistan_conditional_effects",
            response = if (scale == "linear") paste(x$family$link, "of", x$facts$response)
            else x$facts$response)
}

# Levels in the order that they have in the data, and days since the first date as dates.
as_in_data <- function(values, column) {
  if (is.factor(column)) return(factor(values, levels(column), ordered = is.ordered(column)))
  if (is.character(values)) return(factor(values, unique(values)))
  if (inherits(column, "Date") && is.numeric(values)) return(min(column, na.rm = TRUE) + values)
  if (inherits(column, "POSIXct") && is.numeric(values)) {
    return(min(column, na.rm = TRUE) + 86400 * values)
  }
  values
}

print.semistan_conditional_effects <- function(x, ...) {
  plot(x, ask = interactive() && length(x) > 1)
  invisible(x)
}

plot.semistan_conditional_effects <- function(x, points = FALSE, data = NULL, ask = FALSE,
                                              plot = TRUE, ...) {
  found <- lapply(x, effect_plot, response = attr(x, "response"), data = if (points) data)
  if (plot) show_pages(found, print, ask)
  invisible(found)
}

effect_plot <- function(table, response, data) {
  varied <- attr(table, "effects")
  second <- if (length(varied) > 1) "effect2__" else if (attr(table, "categorical")) "category"
  if (length(varied) > 1 && is.numeric(table$effect2__)) table <- at_three_values(table)
  if (length(varied) > 1 && attr(table, "categorical")) {
    table <- table[table$category == table$category[nrow(table)], ]
    response <- paste0("P(", response, " = ", table$category[1], ")")
  }
  discrete <- !is.numeric(table$effect1__) && !inherits(table$effect1__, c("Date", "POSIXct"))
  mapping <- ggplot2::aes(x = .data$effect1__, y = .data$estimate__, ymin = .data$lower__,
                          ymax = .data$upper__)
  if (!is.null(second)) {
    table$second__ <- factor(table[[second]], unique(table[[second]]))
    mapping <- utils::modifyList(mapping, ggplot2::aes(colour = .data$second__,
                                                       fill = .data$second__,
                                                       group = .data$second__))
    class(mapping) <- "uneval"
  }
  figure <- ggplot2::ggplot(table, mapping)
  if (!is.null(data) && is.numeric(data[[response]])) {
    figure <- figure + ggplot2::geom_point(
      ggplot2::aes(x = .data[[varied[1]]], y = .data[[response]]), data,
      inherit.aes = FALSE, alpha = 0.4
    )
  }
  figure <- figure + if (discrete) {
    ggplot2::geom_pointrange(position = ggplot2::position_dodge(width = 0.4))
  } else {
    list(ggplot2::geom_ribbon(alpha = 0.25, colour = NA), ggplot2::geom_line())
  }
  title <- if (length(varied) > 1) varied[2] else response
  figure + ggplot2::labs(x = varied[1], y = response, colour = title, fill = title)
}

# A second number at its lowest, middle and highest value of the grid.
at_three_values <- function(table) {
  values <- sort(unique(table$effect2__))
  kept <- values[unique(round(c(1, (length(values) + 1) / 2, length(values))))]
  found <- table[table$effect2__ %in% kept, ]
  found$effect2__ <- factor(signif(found$effect2__, 3), signif(kept, 3))
  structure(found, effects = attr(table, "effects"), categorical = attr(table, "categorical"))
}

utils::globalVariables(".data")
