"""`--lessons-in-full` runs the blocks of the pages that are marked as long: make lessons."""

import pytest


@pytest.fixture(scope="session")
def in_full(request) -> bool:
    return bool(request.config.getoption("--lessons-in-full"))
