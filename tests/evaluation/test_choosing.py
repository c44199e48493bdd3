"""What choosing among several answers is worth: against all rows of answers, and against a model's probabilities."""

import math
import random
from itertools import product

import pytest
import torch

from pellucid.config.model import RecurrentConfig
from pellucid.evaluation.choosing import Answered, Choices, answer_questions, one_of, share_of_majority
from pellucid.languages.hops import Hops
from pellucid.languages.symbols import symbols_of
from pellucid.model.build import build_model
from pellucid.runtime.precision import resolve_precision
from pellucid.tokenizer.train import train_characters
from small_languages import SMALL, all_documents

CPU = resolve_precision("cpu", "fp32")
P = {"right": 0.5, "wrong": 0.3, "silly": 0.2}


def mean_over_all(length, figure):
    """The exact mean of a figure of so many independent answers."""
    rows = product(P, repeat=length)
    return math.fsum(math.prod(map(P.__getitem__, row)) * figure(row) for row in rows)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_of_independent_answers_the_best_is_as_foreseen(n):
    """Each figure is the truth in the mean over all rows of five answers."""
    best = mean_over_all(5, lambda row: Answered("", "right", row, None).best_of(n))
    assert best == pytest.approx(one_of(n, P["right"])) == pytest.approx(1 - 0.5**n)
    majority = mean_over_all(5, lambda row: Answered("", "right", row, None).majority_of(n))
    assert majority == pytest.approx(mean_over_all(n, lambda row: share_of_majority(row, "right")))


def test_the_majority_of_three_is_right_if_two_are_and_of_three_that_differ_one_is_drawn():
    p, others = P["right"], P["wrong"] * P["silly"]
    majority = mean_over_all(3, lambda row: share_of_majority(row, "right"))
    assert majority == pytest.approx(p**3 + 3 * p**2 * (1 - p) + 6 * p * others / 3)


def test_errors_that_belong_together_are_below_the_curve_of_equal_questions():
    """Half of the questions are always right and half never: asking again gains nothing."""
    answers = [Answered(kind, "a", [answer] * 4, p) for kind, answer, p in (("easy", "a", 1.0), ("hard", "b", 0.0))]
    choices = Choices(answers)
    assert choices.curve()[4] == {"best": 0.5, "exact": 0.5, "equally_hard": 1 - 0.5**4, "majority": 0.5}
    assert {kind: some.one.mean for kind, some in choices.kinds().items()} == {"easy": 1.0, "hard": 0.0}
    assert "93.8%" in choices.table()
    assert choices.to_json()["hard"]["by_n"][2]["best"] == 0


@pytest.mark.parametrize("name", [name for name in SMALL if name.startswith(("hops", "sums"))])
def test_a_question_has_one_right_answer_and_the_kind_of_its_skill(name):
    language, rng = SMALL[name], random.Random(0)
    for text in rng.sample(list(all_documents(language)), 20):
        symbols = symbols_of(text)
        questions = language.questions(symbols)
        assert len(questions) == getattr(language, "queries", 1)
        states = [state for state, _ in language.steps(text)]
        for question in questions:
            assert question.begin <= question.answer < question.end <= len(symbols)
            places = range(question.answer, question.end)
            assert all(language.following(states[place]) == {symbols[place]: 1.0} for place in places)
            assert question.kind in {language.skill(states[place], symbols[place]) for place in places}


def p_of_all_that_is_right(model, tokenizer, prompt, n_tokens):
    """The sum of the probabilities of all rows of tokens that end in a blank and an a, after a whole thought."""
    beginning = [tokenizer.end_of_text, *tokenizer.encode(prompt)]
    rows = torch.cartesian_prod(*[torch.arange(tokenizer.vocab_size)] * n_tokens)
    inputs = torch.cat([torch.tensor(beginning).expand(len(rows), -1), rows], dim=1)
    with torch.inference_mode():
        log_p = model(inputs[:, :-1])[:, len(beginning) - 1 :].log_softmax(-1)
    p = log_p.gather(2, rows[:, :, None]).sum(dim=(1, 2)).exp()
    end, blank, letter = tokenizer.end_of_text, *tokenizer.encode(" a")
    thought, answer = rows[:, :-2], rows[:, -2:]
    is_right = (answer == torch.tensor([blank, letter])).all(dim=1) & (thought != end).all(dim=1)
    if n_tokens == 4:
        is_right &= (thought[:, 0] == blank) & (thought[:, 1] != blank)
    return float(p[is_right].sum())


@pytest.mark.parametrize("thoughts", ["none", "way"])
def test_a_model_is_right_as_often_as_it_says(thoughts):
    """Without thoughts p(right) is known. With them it is the sum over all of p(thought) p(right | thought)."""
    torch.manual_seed(0)
    language = Hops(names=2, hops=2, queries=1, thoughts=thoughts)
    tokenizer = train_characters(["ab>:12 "], special_tokens=["<|endoftext|>"])
    config = RecurrentConfig(type="lstm", context_length=40, d_model=8, n_layers=1)
    model = build_model(config, tokenizer.vocab_size)
    text = " a > b b > a : a 2" + (" a" if thoughts == "none" else " b a")
    [answered] = answer_questions(model, tokenizer, language, [text], CPU, n=1, n_samples=400)
    assert (answered.kind, answered.right, len(answered.answers)) == ("two hops", " a", 400)
    if thoughts == "none":
        p = p_of_all_that_is_right(model, tokenizer, " a > b b > a : a 2", n_tokens=2)
        assert answered.p_right == pytest.approx(p, rel=1e-5)
    else:
        p = p_of_all_that_is_right(model, tokenizer, " a > b b > a : a 2", n_tokens=4)
        assert answered.p_right is None, "in general there are too many thoughts to sum over"
    assert abs(answered.best_of(1) - p) < 4 * math.sqrt(p * (1 - p) / 400)
    assert answer_questions(model, tokenizer, language, [text], CPU, n=1, n_samples=400) == [answered]
