"""What this machine's processor can compute quickly, as far as the system tells."""

from __future__ import annotations

import functools
import platform
from pathlib import Path


@functools.cache
def instructions(path: str = "/proc/cpuinfo") -> frozenset[str]:
    """Return the names of the processor's instructions, as Linux gives them; none on other systems."""
    if platform.system() != "Linux":
        return frozenset()
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(name for line in lines if line.lower().startswith(("flags", "features")) for name in line.split())
