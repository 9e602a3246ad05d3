"""The training table as a run stores it, and the rows that are made of it again."""

import pandas as pd

from semistan.model.design import apply_design


def read_back(bundle, rows, folder):
    """Return the rows of the stored table."""
    rows.frame.to_parquet(folder / "training.parquet", index=False)
    return apply_design(bundle.design, pd.read_parquet(folder / "training.parquet"), response=True)
