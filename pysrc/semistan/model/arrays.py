"""The types of nearly every array, of any shape, which the docstrings give."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]  # positions
