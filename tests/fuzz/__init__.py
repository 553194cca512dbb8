"""Fuzzing: bytes from nobody against all that reads bytes from strangers (fault rows 16–21).

``python -m tests.fuzz [TARGET …] --seconds N`` looks for inputs that break a law of ``targets``,
from the kept ones in ``corpus`` on; ``tests/unit/test_fuzz.py`` does so for some seconds.
"""
