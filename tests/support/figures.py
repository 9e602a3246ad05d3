"""What a matplotlib figure shows, and what is untidy about it."""

import numpy as np


def lines(axes, **properties):
    """Return data of the lines that have these properties, as (x, y)."""
    return [
        tuple(np.asarray(part, dtype=float) for part in line.get_data())
        for line in axes.get_lines()
        if all(getattr(line, f"get_{key}")() == value for key, value in properties.items())
    ]


def legend(figure):
    return [text.get_text() for item in figure.legends for text in item.get_texts()]


def ticks(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def texts(figure):
    return " ".join(text.get_text() for text in figure.texts)


def untidy(figure):
    """Return what leaves the figure, and panels that meet title, legend or caption."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    box, (width, height) = figure.get_tightbbox(renderer), figure.get_size_inches()
    beyond = max(-box.x0, -box.y0, box.x1 - width, box.y1 - height)
    around = [item for item in (*figure.texts, *figure.legends) if item.get_tightbbox(renderer)]
    met = [
        str(item)
        for item in around
        for axes in figure.axes
        if axes.get_tightbbox(renderer).overlaps(item.get_window_extent(renderer))
    ]
    return [*met, *([f"{beyond:.2f} inches cut off"] if beyond > 0.01 else [])]
