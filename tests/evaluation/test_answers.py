"""Answers to instructions are judged by the grammar; the divergence of two models is that of whole answers."""

import math
from itertools import product
from types import SimpleNamespace

import pytest
import torch

import pellucid.evaluation.answers
from pellucid.config.model import RecurrentConfig
from pellucid.corpora.instructions import InstructionsCorpus, Task, judge
from pellucid.evaluation.answers import Answer, Share, answer_table, divergences, judge_answers, text_of, verdict_on
from pellucid.model.build import build_model
from pellucid.runtime.precision import resolve_precision
from pellucid.tokenizer.chat import encode_turn
from pellucid.tokenizer.train import train_characters

CPU = resolve_precision("cpu", "fp32")
CORPUS = InstructionsCorpus(size=60, world_size=24, seed=0, validation_fraction=0.5)
EXAMPLES = list(CORPUS.examples("validation"))
TOKENIZER = train_characters(
    ["".join(chr(i) for i in range(32, 127)) + "\n"], special_tokens=["<|endoftext|>"]
).with_chat_tokens()


def answer_ids(text):
    """The tokens of an answer and its end."""
    return encode_turn(TOKENIZER, "assistant", text).ids[1:]


def tiny_model(seed, vocab_size=TOKENIZER.vocab_size):
    torch.manual_seed(seed)
    config = RecurrentConfig(type="lstm", context_length=40, d_model=8, n_layers=1)
    return build_model(config, vocab_size)


def test_intervals_are_those_of_wilson():
    assert Share(0, 10).interval == pytest.approx((0, 0.27753), abs=1e-4)
    assert Share(10, 10).interval == pytest.approx((0.72247, 1), abs=1e-4)
    assert Share(50, 100).interval == pytest.approx((0.40383, 0.59617), abs=1e-4)


def test_an_answer_is_its_text_up_to_the_first_control_token_and_whole_only_if_it_ends_there():
    instruction, text = EXAMPLES[0]
    ended = answer_ids(text)
    assert text_of(TOKENIZER, ended) == text
    assert verdict_on(CORPUS, TOKENIZER, instruction.task, ended) == judge(CORPUS.fables, instruction.task, text)
    for cut in (ended[:-1], [*ended[:-1], TOKENIZER.control_id("<|user|>")]):
        verdict = verdict_on(CORPUS, TOKENIZER, instruction.task, cut)
        assert (text_of(TOKENIZER, cut), verdict.whole, verdict.obeys) == (text, False, True)
    assert not verdict_on(CORPUS, TOKENIZER, instruction.task, []).whole


def test_the_table_counts_what_the_grammar_says(monkeypatch):
    """One answer of every three is right, one breaks off, and one has a fault in its second character."""
    texts = [(text, text[:-5], f"{text[0]}~")[i % 3] for i, (_, text) in enumerate(EXAMPLES)]
    written = [SimpleNamespace(token_ids=answer_ids(text)) for text in texts]
    monkeypatch.setattr(pellucid.evaluation.answers, "write_answers", lambda *arguments, **options: written)
    answers = judge_answers(tiny_model(0), TOKENIZER, CORPUS, CPU, n=1000)
    assert [answer.text for answer in answers] == texts
    assert [answer.instruction for answer in answers] == [instruction for instruction, _ in EXAMPLES]
    table = answer_table(answers)
    assert table.whole["all"] == Share(10, 30)
    assert table.obeys["all"] == Share(20, 30)
    assert table.reward == pytest.approx(0.5)
    assert table.distinct == len(set(texts)) / 30
    assert table.tokens_per_answer == sum(len(text) + 1 for text in texts) / 30
    assert table.first_faults["too short"] == 10
    assert sum(table.first_faults.values()) == 20
    assert table.kl is None
    for parts in (
        ("an animal is asked for", "a moral is asked for", "both are asked for"),
        ("in wordings of training", "in wordings never seen"),
    ):
        assert sum(table.obeys[part].n for part in parts) == 30
        assert sum(table.obeys[part].k for part in parts) == 20
    unseen = [instruction for instruction, _ in EXAMPLES if not instruction.is_seen_wording]
    assert table.whole["in wordings never seen"].n == len(unseen)
    assert table.to_json()["instructions"]["all"]["obeys"]["share"] == pytest.approx(2 / 3)
    [row] = (line.split() for line in table.table().splitlines() if line.startswith("all "))
    assert row == ["all", "30", "33.3%", "66.7%", "48.8%", "to", "80.8%"]


def test_an_answer_about_something_else_does_not_obey():
    instruction, text = EXAMPLES[0]
    other = Task(next(animal for animal in CORPUS.animals if animal != CORPUS.fables.examine(text).told["animal"]))
    answer = Answer(instruction, text, 1, judge(CORPUS.fables, other, text), None)
    assert answer_table([answer]).obeys["all"] == Share(0, 1)
    assert answer_table([answer]).reward == 0.5


def test_the_same_seed_draws_the_same_answers_however_many_are_asked_for():
    model = tiny_model(0)

    def texts(n, seed=0):
        return [answer.text for answer in judge_answers(model, TOKENIZER, CORPUS, CPU, n=n, seed=seed)]

    assert texts(3) == texts(6)[:3]
    assert texts(6) != texts(6, seed=1)


def test_a_model_does_not_diverge_from_itself_and_prompts_do_not_count():
    model, prompts, answers = tiny_model(0), [[0, 5, 3], [0, 1]], [[4, 4], [7, 9, 11]]
    assert divergences(model, model, prompts, answers, CPU) == pytest.approx([0, 0], abs=1e-6)
    reference = tiny_model(1)
    both = divergences(model, reference, prompts, answers, CPU)
    alone = [divergences(model, reference, [p], [a], CPU)[0] for p, a in zip(prompts, answers, strict=True)]
    assert both == pytest.approx(alone, rel=1e-5)
    assert min(both) > 0


def test_the_mean_divergence_over_all_answers_is_that_of_their_distributions():
    model, reference = tiny_model(0, vocab_size=5), tiny_model(1, vocab_size=5)
    answers = [list(ids) for ids in product(range(5), repeat=3)]  # nothing ends them sooner

    def log_p(of):
        logits = of(torch.tensor([[0, 2, *ids[:-1]] for ids in answers]))[:, 1:].log_softmax(-1)
        return logits.gather(-1, torch.tensor(answers)[..., None])[..., 0].sum(-1).detach()

    log_pi, log_ref = log_p(model), log_p(reference)
    by_definition = float((log_pi.exp() * (log_pi - log_ref)).sum())
    found = divergences(model, reference, [[0, 2]] * len(answers), answers, CPU)
    mean = math.fsum(p * kl for p, kl in zip(log_pi.exp().tolist(), found, strict=True))
    assert mean == pytest.approx(by_definition, rel=1e-4)
