"""Which processors this process may use."""

from __future__ import annotations

import os
from pathlib import Path

TOPOLOGY = Path("/sys/devices/system/cpu")


def usable_cores() -> int:
    """Return the number of physical cores that this process may use."""
    return len(usable_processors())


def usable_processors() -> list[int]:
    """Return one logical processor of each physical core that this process may use."""
    if not hasattr(os, "sched_getaffinity"):
        return list(range(os.cpu_count() or 1))
    first = {_core(cpu): cpu for cpu in sorted(os.sched_getaffinity(0), reverse=True)}
    return sorted(first.values())


def _core(cpu: int) -> tuple[str, ...]:
    """Return what identifies a logical processor's core, or itself if that is not known."""
    names = ("physical_package_id", "core_id")
    files = [TOPOLOGY / f"cpu{cpu}" / "topology" / name for name in names]
    try:
        return tuple(file.read_text().strip() for file in files)
    except OSError:
        return (str(cpu),)
