"""Named places where tests make a run fail: killed, interrupted, or out of disk space."""


def reached(_name: str) -> None:
    """Does nothing. Fault tests replace it with a function that kills or fails at the name they chose."""
