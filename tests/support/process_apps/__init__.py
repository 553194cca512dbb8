"""Programs that record inside real servers and workers (A26)."""

from typing import Final

HOOKS: Final = "exit hooks run"
"""What a process says that ends in a way that lets its hooks run."""
