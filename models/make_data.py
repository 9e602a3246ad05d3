"""Write the data.csv of each worked model from the package that ships its source.

python models/make_data.py      # needs scikit-learn and statsmodels
"""

from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels.api as sm
from sklearn.datasets import load_diabetes

HERE = Path(__file__).parent


def diabetes() -> pd.DataFrame:
    """All 442 patients, in the units in which they were measured."""
    return load_diabetes(as_frame=True, scaled=False).frame


def anes96() -> pd.DataFrame:
    """All 944 respondents; every column is a whole number."""
    columns = ["vote", "age", "educ", "income", "selfLR", "ClinLR", "DoleLR", "PID"]
    return sm.datasets.anes96.load_pandas().data[columns].astype(int)


def fair() -> pd.DataFrame:
    """Every fourth woman; 5.5 children are counted as 5."""
    columns = ["children", "religious", "educ", "age", "yrs_married"]
    data = sm.datasets.fair.load_pandas().data[columns].iloc[::4]
    whole = {name: np.floor(data[name]).astype(int) for name in ("children", "religious", "educ")}
    return data.assign(**whole)


def closed_form() -> pd.DataFrame:
    """80 simulated rows, residual standard deviation 1."""
    rng = np.random.default_rng(2024)
    columns = ["x1", "x2", "u1", "u2", "u3", "u4", "u5"]
    data = pd.DataFrame(rng.normal(size=(80, 7)), columns=columns)
    mean = 1 + data @ [0.5, -0.3, 0.4, 0.0, -0.2, 0.3, 0.1]
    return data.assign(y=mean + rng.normal(size=80)).round(6)


def additive() -> pd.DataFrame:
    """200 simulated rows: a straight line, a surface and a wave, residual standard deviation 1."""
    rng = np.random.default_rng(2024)
    data = pd.DataFrame(rng.uniform(-2, 2, size=(200, 4)), columns=["x", "u1", "u2", "v"])
    mean = 10 + 1.5 * data["x"] + data["u1"] * data["u2"] + 2 * np.sin(2 * data["v"])
    return data.assign(y=mean + rng.normal(size=200)).round(6)


if __name__ == "__main__":
    for make in (diabetes, anes96, fair, closed_form, additive):
        make().to_csv(HERE / make.__name__ / "data.csv", index=False)
