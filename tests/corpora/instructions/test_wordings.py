from itertools import product

import pytest

from pellucid.corpora.instructions.wordings import DEEDS, SEEN, UNSEEN, Instruction, Task, instruct, understand
from pellucid.languages.fables import Fables
from pellucid.languages.fables.world import MORALS, animals

KINDS = [None, *(animal["kind"] for animal in animals(40))]
TASKS = [Task(*pair) for pair in product(KINDS, [None, *MORALS]) if any(pair)]


def test_a_task_in_words_leads_back_to_the_task_in_every_wording():
    for task in TASKS:
        for wording in {*SEEN[:: 7 if task.form == "both" else 1], *UNSEEN[::5]}:
            instruction = instruct(task, wording)
            assert instruction.task == task
            assert understand(instruction.text) == instruction


def test_no_text_asks_for_two_things():
    asked = {}
    for task in TASKS:
        for wording in SEEN[-24:]:  # all links with some openings
            assert asked.setdefault(instruct(task, wording).text, task) == task


def test_there_are_many_wordings_and_the_unseen_ones_are_others():
    seen, unseen = ({instruct(Task("fox"), wording).text for wording in wordings} for wordings in (SEEN, UNSEEN))
    assert len(seen) >= 40
    assert len(unseen) >= 12
    assert not seen & unseen


@pytest.mark.parametrize(
    ("text", "task", "is_seen"),
    [
        ("Tell a fable about a fox.", Task("fox"), True),
        ("Please tell me a story of an owl.", Task("owl"), True),
        ("I would like to hear a tale about a marsh fox.", Task("marsh fox"), True),
        ("Tell a fable in which someone shares.", Task(None, "sharing"), True),
        ('Write a fable ending with the moral "Slow and steady goes far."', Task(None, "patience"), True),
        ("Can you write a tale about an ant where two envy each other?", Task("ant", "envy"), True),
        ('Can you write a fable of a fox, with the moral "Slow and steady goes far."?', Task("fox", "patience"), True),
        ("Show me a fable about a fox.", Task("fox"), False),
        ("Do you know a little story in which a thief lies?", Task(None, "lies"), False),
        ("Tell a little story about a fox.", Task("fox"), False),
    ],
)
def test_instructions_read_like_english(text, task, is_seen):
    assert understand(text) == Instruction(text, task, is_seen)


@pytest.mark.parametrize(
    "text",
    [
        "Tell a fable about a owl.",
        "Tell a fable about a fox",
        "Tell a fable about a fox?",
        " Tell a fable about a fox.",
        "Tell a fable about a fox.\n",
        "Tell a fable.",
        "Tell a fable in which someone sings.",
        'Tell a fable with the moral "Slow and steady goes far.".',
        'Tell a fable about a fox with the moral "Slow and steady goes far."',
        "Tell a fable with the moral someone shares.",
        "Tell a fable about a fox and a crow in which someone shares. Tell a fable about a fox.",
    ],
)
def test_other_texts_are_no_instructions(text):
    assert understand(text) is None


def test_every_moral_has_its_own_deed():
    assert DEEDS.keys() == MORALS.keys() == Fables(3).morals_of("fable").keys()
    assert len(set(DEEDS.values())) == len(DEEDS)
