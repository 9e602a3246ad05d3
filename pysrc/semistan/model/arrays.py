"""The type of nearly every array: float64 of any shape, which the docstrings give."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
