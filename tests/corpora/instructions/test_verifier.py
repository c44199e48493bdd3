import random

import pytest

from pellucid.corpora.instructions import Task, Verdict, judge, settled
from pellucid.languages.fables import SKILLS, Fables
from pellucid.languages.fables.about import FablesAbout

FABLES = Fables(24)
FOX_SHARES = FablesAbout(FABLES, ["fox"], ["sharing"])


@pytest.fixture(scope="module")
def answers():
    rng = random.Random(0)
    return [FOX_SHARES.write(rng) for _ in range(10)]


def test_an_answer_obeys_the_task_it_was_drawn_for_and_each_half_of_it(answers):
    for text in answers:
        for task in (Task("fox", "sharing"), Task("fox"), Task(None, "sharing")):
            assert judge(FABLES, task, text) == Verdict(True, None, None, True)
            assert judge(FABLES, task, text).reward == 1


def test_an_answer_to_another_task_is_whole_but_does_not_obey(answers):
    for text in answers:
        for task in (Task("crow", "sharing"), Task("fox", "greed"), Task("owl"), Task(None, "trust")):
            assert judge(FABLES, task, text) == Verdict(True, None, None, False)
            assert judge(FABLES, task, text).reward == 0.5


def test_a_corrupted_answer_is_not_whole_and_its_fault_has_place_and_skill(answers):
    for text in answers:
        skills = FABLES.skills_of(text)
        place = random.Random(text).randrange(len(text))
        verdict = judge(FABLES, Task("fox"), text[:place] + "~" + text[place + 1 :])
        assert (verdict.whole, verdict.broken_at, verdict.broken_by) == (False, place, SKILLS[skills[place]])


def test_what_is_not_told_is_not_obeyed(answers):
    for text in answers:
        told = FABLES.told_by(text)
        before_animal, before_moral = (text[: told[name].decided_at - 1] for name in ("animal", "moral"))
        assert judge(FABLES, Task("fox"), before_animal) == Verdict(False, None, None, False)
        assert not judge(FABLES, Task("fox", "sharing"), before_moral).obeys
        assert judge(FABLES, Task("fox"), before_moral + "~").reward == 0.5
        assert judge(FABLES, Task("fox"), "").reward == 0


def test_a_miscount_before_the_moral_is_certain_costs_both_halves():
    """The grammar cannot read past a fault, so what comes after it tells nothing."""
    rng = random.Random(0)
    n_found = 0
    for text in (FABLES.write(rng) for _ in range(60)):
        told, skills = FABLES.told_by(text), FABLES.skills_of(text)
        counted = [i for i in range(told["moral"].decided_at) if SKILLS[skills[i]] == "count"]
        if counted and told["animal"].decided_at <= counted[0]:
            animal, moral, wrong = told["animal"].value, told["moral"].value, text[: counted[0]] + "~"
            wrong += text[counted[0] + 1 :]
            assert judge(FABLES, Task(animal, moral), wrong) == Verdict(False, counted[0], "count", False)
            assert judge(FABLES, Task(animal), wrong).reward == 0.5
            n_found += 1
    assert n_found


def test_naming_the_animal_or_the_moral_is_not_to_tell_of_it():
    text = "fox fox fox\nMoral: What we share comes back to us."
    assert judge(FABLES, Task("fox", "sharing"), text) == Verdict(False, 0, "choice", False)


def test_each_half_of_a_verdict_is_settled_by_the_word_that_tells_or_excludes_what_was_asked(answers):
    for text in answers[:4]:
        told = FABLES.told_by(text)
        for task in (Task("fox"), Task("crow"), Task(None, "sharing"), Task(None, "greed"), Task("fox", "sharing")):
            verdict = judge(FABLES, task, text)
            whole, obeys = settled(FABLES, task, text, verdict)
            assert whole == len(text) + 1
            if verdict.obeys:
                assert obeys == max(told[name].decided_at for name in ("animal", "moral") if getattr(task, name))
            else:
                possible = FablesAbout(FABLES, task.animal and [task.animal], task.moral and [task.moral])
                assert not possible.next_character_distribution(text[:obeys])
                assert possible.next_character_distribution(text[: text.rindex(" ", 0, obeys)])


def test_what_breaks_an_answer_settles_it(answers):
    for text in answers[:4]:
        broken = text[:50] + "~" + text[51:]
        verdict = judge(FABLES, Task(None, "sharing"), broken)
        assert settled(FABLES, Task(None, "sharing"), broken, verdict) == (51, 51)
