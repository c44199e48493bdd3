import random

import pytest

from pellucid.evaluation.written import distance_of_morals, judge, moral_of
from pellucid.languages.fables import Fables

FABLES = Fables(24)


@pytest.fixture(scope="module")
def fables() -> list[str]:
    rng = random.Random(5)
    return [FABLES.write(rng) for _ in range(300)]


def test_true_fables_are_whole_tell_all_morals_and_surprise_by_the_entropy(fables):
    judgement = judge(FABLES, fables)
    assert judgement.whole == 1
    assert judgement.morals == 18
    assert judgement.distance < 0.2  # chance: 300 fables never tell 18 morals exactly as often as they should
    assert judgement.surprise == pytest.approx(FABLES.entropy_nats, abs=3)
    assert judgement.surprise == pytest.approx(-sum(map(FABLES.log_probability, fables)) / 300)


def test_a_text_with_a_fault_is_not_whole_and_has_no_part_in_the_surprise(fables):
    first, second, third = fables[:3]
    judgement = judge(FABLES, [first, second.replace(" ", "  ", 1), third[:-1], ""])
    assert judgement.whole == 0.25
    assert judgement.surprise == pytest.approx(-FABLES.log_probability(first))
    assert judgement.morals == 2 - (moral_of(FABLES, first) == moral_of(FABLES, second))
    assert judge(FABLES, ["The fox"]).to_json() == {"whole": 0, "morals": 0, "distance": 1, "surprise": None}


def test_the_distance_of_morals_is_half_the_sum_of_what_is_too_much_and_too_little():
    truth = FABLES.moral_probabilities
    one, other, *_ = truth
    assert distance_of_morals(FABLES, [one] * 7) == pytest.approx(1 - truth[one])
    assert distance_of_morals(FABLES, [one, other]) == pytest.approx(1 - truth[one] - truth[other])
    assert distance_of_morals(FABLES, [None, one]) == pytest.approx(1 - truth[one])
    many = [moral for moral, p in truth.items() for _ in range(round(p * 405 * 6))]
    assert distance_of_morals(FABLES, many) == pytest.approx(0, abs=1e-3)
