"""Tables of images beside their files."""

import pandas as pd
from PIL import Image

from support.small import small_config


def written(folder, images, generator, **columns):
    """Write images beside ``table.csv``, which has an age, their paths and other columns."""
    (folder / "images").mkdir(parents=True)
    for i, image in enumerate(images):
        Image.fromarray(image).save(folder / "images" / f"{i}.png")
    frame = pd.DataFrame(
        columns
        | {
            "age": generator.normal(50, 10, len(images)),
            "path": [f"images/{i}.png" for i in range(len(images))],
        }
    )
    frame.to_csv(folder / "table.csv", index=False)
    return frame


def quick_config(folder, formula, **settings):
    """A small network of the images of a table in a folder, trained for some epochs."""
    plain = {
        "network__hidden": [4], "subspace__k": 3, "train__epochs": 10,
        "data": None if folder is None else str(folder / "table.csv"),
    }  # fmt: skip
    return small_config(formula, **(plain | settings))
