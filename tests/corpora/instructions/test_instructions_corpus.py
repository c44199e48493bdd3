import hashlib
import json
import math
import random
import statistics
from itertools import islice

import pytest

from pellucid.corpora.instructions import InstructionsCorpus, Task, is_held_out, judge
from pellucid.corpora.instructions.wordings import FORMS
from pellucid.errors import DataError
from pellucid.languages.fables import Fables
from tiny_fables import all_stories, tiny_fables

SMALL = {"size": 400, "world_size": 24, "seed": 0, "validation_fraction": 0.25}
CORPUS = InstructionsCorpus(**SMALL)
PINNED = "4a681df63db15b239fa4a1e721cf6af5645f5f6e80c2232bb732a4fc8a30aafa"


@pytest.fixture(scope="module")
def train():
    return list(CORPUS.examples("train"))


@pytest.fixture(scope="module")
def validation():
    return list(CORPUS.examples("validation"))


def test_a_conversation_is_an_instruction_and_its_answer_and_its_turns_are_the_pieces(validation):
    conversations = list(CORPUS.conversations("validation"))
    turns = [turn for conversation in conversations for turn in conversation]
    assert [(ask.role, answer.role) for ask, answer in conversations] == [("user", "assistant")] * 100
    assert [(ask.text, answer.text) for ask, answer in conversations] == [(ask.text, text) for ask, text in validation]
    assert list(CORPUS.pieces("validation")) == [(turn.text, True, False) for turn in turns]


def test_splits_have_their_sizes_and_share_no_answer(train, validation):
    assert (len(train), len(validation)) == (300, 100)
    answers = {answer for _, answer in validation}
    assert len(answers) == 100
    assert not answers & {answer for _, answer in train}


def test_training_passes_over_validation_answers(monkeypatch):
    corpus = InstructionsCorpus(**{**SMALL, "size": 6, "validation_fraction": 0.34})
    streams = {"validation": "aab", "train": "cacdbef"}
    monkeypatch.setattr(corpus, "_stream", lambda split: ((f"{split}?", answer) for answer in streams[split]))
    assert [answer for _, answer in corpus.examples("validation")] == ["a", "b"]
    assert [answer for _, answer in corpus.examples("train")] == ["c", "c", "d", "e"]


def test_the_first_held_out_instructions_are_found_without_the_rest(monkeypatch):
    monkeypatch.setattr(CORPUS, "_stream", lambda split: iter([(f"{split}?", "a"), (f"{split}?", "b")]))
    assert [answer for _, answer in islice(CORPUS.examples("validation"), 2)] == ["a", "b"]


def test_every_instruction_leads_back_to_its_task_and_every_answer_is_a_whole_fable_that_obeys(train, validation):
    for instruction, answer in train + validation:
        assert CORPUS.instruction_of(instruction.text) == instruction
        assert CORPUS.task_of(instruction.text) == instruction.task
        verdict = judge(CORPUS.fables, instruction.task, answer)
        assert (verdict.whole, verdict.obeys, verdict.reward) == (True, True, 1.0)


def test_only_validation_asks_in_unseen_wordings_and_does_so_half_of_the_time(train, validation):
    assert all(instruction.is_seen_wording for instruction, _ in train)
    assert sum(instruction.is_seen_wording for instruction, _ in validation) == pytest.approx(50, abs=20)


def test_some_pairs_are_asked_for_in_validation_only(train):
    pairs = [Task(animal, moral) for animal in CORPUS.animals for moral in CORPUS.morals]
    assert sum(map(is_held_out, pairs)) == pytest.approx(len(pairs) / 10, abs=25)
    assert not any(is_held_out(instruction.task) for instruction, _ in train)
    assert not any(is_held_out(Task(animal)) for animal in CORPUS.animals)
    more = InstructionsCorpus(**{**SMALL, "size": 400, "validation_fraction": 0.5})
    assert any(is_held_out(instruction.task) for instruction, _ in more.examples("validation"))


def test_forms_and_tasks_are_equally_frequent():
    rng = random.Random(0)
    tasks = [CORPUS._draw_task(rng, form) for form in FORMS for _ in range(18 * 24 * 20)]
    for values, name, n in ((CORPUS.animals, "animal", 24), (CORPUS.morals, "moral", 18)):
        drawn = [value for task in tasks if (value := getattr(task, name))]
        mean = len(drawn) / n
        assert all(abs(drawn.count(value) - mean) < 5 * math.sqrt(mean) for value in values)
    forms = [instruction.task.form for instruction, _ in InstructionsCorpus(**{**SMALL, "size": 800}).examples("train")]
    assert all(abs(forms.count(form) - 200) < 5 * math.sqrt(200) for form in FORMS)


def test_answers_to_an_instruction_have_their_probability_among_all_fables_over_that_of_the_task():
    about = CORPUS.answers_to('Tell me a tale of an owl, with the moral "Be content to be what you are."')
    text = about.write(random.Random(0))
    fables = Fables(24)
    p_owl = next(o.weight for o in fables.grammar.rule("animal").options if o.attributes["kind"] == "owl")
    p_task = p_owl / fables.grammar.rule("animal").total * fables.morals_of("fable")["nature"]
    assert about.log_probability(text) == pytest.approx(fables.log_probability(text) - math.log(p_task))


def test_a_text_that_is_no_instruction_has_no_answers():
    for text in ("", "Tell a fable.", "Tell a fable about a dragon.", "Tell a fable about an fox."):
        assert CORPUS.task_of(text) is None
        with pytest.raises(DataError, match="asks for no fable of this world; ask for example '"):
            CORPUS.answers_to(text)


def test_entropy_is_the_mean_over_all_tasks_of_a_world_that_can_be_listed():
    fables = tiny_fables(3, 8, most=1000)
    corpus = InstructionsCorpus(10, 3, 0, 0.5, fables.grammar.source)
    listed = [(p, fables.examine(text).told) for text, p in all_stories(fables.grammar.begin())]

    def entropy(task):
        asked = {key: value for key, value in vars(task).items() if value}
        selected = [p for p, told in listed if asked.items() <= told.items()]
        return math.log(math.fsum(selected)) - math.fsum(p * math.log(p) for p in selected) / math.fsum(selected)

    of_form = [
        [Task(animal) for animal in corpus.animals],
        [Task(None, moral) for moral in corpus.morals],
        [Task(animal, moral) for animal in corpus.animals for moral in corpus.morals],
    ]
    means = [statistics.mean(map(entropy, tasks)) for tasks in of_form]
    assert corpus.entropy_nats == pytest.approx(statistics.mean(means), abs=1e-9)


def test_answers_surprise_by_the_entropy(train, validation):
    nats = [-CORPUS.answers_to(ask.text).log_probability(answer) for ask, answer in train + validation]
    standard_error = statistics.stdev(nats) / math.sqrt(len(nats))
    assert abs(statistics.mean(nats) - CORPUS.entropy_nats) < 4 * standard_error


@pytest.mark.parametrize("change", [{"seed": 1}, {"world_size": 25}])
def test_another_seed_or_world_asks_for_other_fables(change, validation):
    other = InstructionsCorpus(**{**SMALL, **change})
    assert CORPUS.identity != other.identity
    assert validation != list(other.examples("validation"))


def test_a_larger_corpus_begins_with_the_smaller_one(train):
    """Read by another object: the texts are a function of the arguments alone."""
    larger = InstructionsCorpus(**{**SMALL, "size": 800, "validation_fraction": 0.125})
    assert list(islice(larger.examples("train"), 300)) == train
    assert json.loads(json.dumps(CORPUS.identity)) == InstructionsCorpus(**SMALL).identity


def test_the_corpus_is_the_one_of_this_version(train, validation):
    text = "".join(f"{ask.text}\0{answer}\0" for ask, answer in train + validation)
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest == PINNED, f"the text has changed to {digest}: raise INSTRUCTIONS_VERSION, then pin this digest"
