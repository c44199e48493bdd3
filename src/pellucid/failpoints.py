"""Named places where tests make a run fail: killed, interrupted, or told by the disk that it is full."""


def reached(_name: str) -> None:
    """Does nothing. Tests of faults put something in its place that strikes at the name they chose."""
