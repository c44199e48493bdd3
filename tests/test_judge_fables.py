import random

import pytest
from scripts.judge_fables import share_before_first_fault

from pellucid.languages.fables import Fables

FABLES = Fables(24)


def test_the_share_before_the_first_fault_is_that_of_the_text():
    fable = FABLES.write(random.Random(5))
    half = fable[: len(fable) // 2]
    assert share_before_first_fault(FABLES, fable) == 1
    assert share_before_first_fault(FABLES, half) == 1
    assert share_before_first_fault(FABLES, half + "~" * len(half)) == pytest.approx(0.5)
    assert share_before_first_fault(FABLES, "") == 1
