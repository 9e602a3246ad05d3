"""Tasks to be done by any backend: they can be pickled, and other processes can import them."""

import os
import time
from dataclasses import dataclass

from semistan.errors import InputError


@dataclass(frozen=True)
class Square:
    """Squares a number, reports, and says in which process; 13 fails, 99 ends the process."""

    x: int
    in_thread: bool
    seconds: float = 0.0

    @property
    def name(self):
        return f"square of {self.x}"

    def run(self, report):
        print("what libraries print")
        report.step(self.x, 100)
        report.keep(b"%d" % self.x)
        time.sleep(self.seconds)
        if self.x == 13:
            raise InputError("13 brings bad luck")
        if self.x == 99:
            os._exit(7)
        return self.x**2, os.getpid()
