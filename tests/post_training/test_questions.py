"""A policy that is asked questions of hops and sums chooses whether to think, and pays for each symbol of a thought."""

import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from shutil import copytree, rmtree

import pytest
import torch

from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.checkpoint.step_directory import read_checkpoint
from pellucid.config.load import load_run_config
from pellucid.corpora.build import build_corpus
from pellucid.post_training.questions import Questions
from pellucid.recipe import prepare_data
from pellucid.training.metrics import read_rows
from post_training.conftest import quietly, reader_and_policy

READER = """\
name: reader
corpus: {type: hops, names: 4, most_hops: 3, queries: 2, thoughts: optional, size: 300, validation_fraction: 0.02}
tokenizer: {type: bpe, vocab_size: 300}
data: {packing: documents}
model: {context_length: 27, d_model: 16, n_layers: 1, n_heads: 2, embedding_std: 0.3}
optimizer: {type: adamw, lr: 5e-2}
schedule: {type: constant}
train: {steps: 20, batch_size: 32, precision: fp32, device: cpu, processes: 1}
evaluation: {every_steps: 20, max_tokens: 100}
sample: {every_steps: 100}
"""
POLICY = (
    "name=policy",
    "start_from=reader",
    "objective={type: grpo, price: 0.25, group_size: 3, beta: 0.1, updates_per_rollout: 2, max_new_tokens: 4}",
    "train={steps: 4, batch_size: 2, log_every_steps: 1, precision: fp32, device: cpu, processes: 1}",
    "evaluation.every_steps=4",
    "sample={every_steps: 4, n_samples: 1}",
    "checkpoint={every_steps: 1, keep_last: 9}",
)
SUMS = "corpus={type: sums, digits: 1, thoughts: optional, size: 100, validation_fraction: 0.3}"
PRICE = 0.25


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Iterator[Path]:
    with reader_and_policy(tmp_path_factory.mktemp("questions"), READER, POLICY) as folder:
        yield folder


@pytest.fixture(scope="module", params=[(), (SUMS,), ("tokenizer={type: bpe, vocab_size: 257}",)])
def questions(folder, request) -> Questions:
    config = load_run_config(folder / "reader.yaml", request.param)
    return Questions(build_corpus(config.corpus).language, prepare_data(config, folder / "data"), PRICE)


def steps_and_answer(text: str) -> tuple[str, int, str]:
    """The mark of a thought, its length, and the right answer, by hand."""
    symbols = text.split()
    if "+" in symbols:
        return ":", 2, str(int(symbols[0]) + int(symbols[2])).zfill(2)  # a carry, and =
    arrows = dict(zip(symbols[0:12:3], symbols[2:12:3], strict=True))
    name, number = symbols[-2:]
    for _ in range(int(number)):
        name = arrows[name]
    return "?", int(number) - 1, name


def test_the_reward_is_one_for_the_right_answer_less_the_price_of_each_symbol_before_it(questions):
    """Each answer of at most five symbols: after a mark, the thought may be anything."""
    tokenizer, rng = questions.data.tokenizer, random.Random(0)
    for _ in range(6):
        asked = questions.ask(rng)
        thinks, length, right = steps_and_answer(asked.text)
        at_once = "=" if thinks == ":" else ":"
        alphabet = (thinks, at_once, *dict.fromkeys([*right, "a", "1"]))
        for answer in product(alphabet, repeat=4):
            symbols = [*answer, *right]  # and more than is needed
            n_thought = {thinks: length, at_once: 0}.get(answer[0], 0)
            is_right = answer[0] in (thinks, at_once) and "".join(symbols[1 + n_thought :]).startswith(right)
            judged = questions.judge(asked, tokenizer.encode("".join(f" {symbol}" for symbol in symbols)))
            assert judged.parts == (is_right, -PRICE * n_thought)
            assert judged.figures == (is_right, n_thought)
            n_symbols = 1 + n_thought + len(right) * (answer[0] in (thinks, at_once))
            assert judged.n_tokens == len(tokenizer.encode("".join(f" {symbol}" for symbol in symbols[:n_symbols])))
            assert judged.settled == (judged.n_tokens - 1, len(tokenizer.encode(f" {answer[0]}")) - 1)


def test_an_answer_that_ends_too_early_is_wrong_and_pays_for_what_was_written(questions):
    tokenizer = questions.data.tokenizer
    asked = next(asked for asked in questions.held_out if steps_and_answer(asked.text)[1] == 2)
    mark = steps_and_answer(asked.text)[0]
    ids = tokenizer.encode(f" {mark} 1")
    assert questions.judge(asked, ids).figures == (False, 1)
    assert questions.judge(asked, [*ids, tokenizer.end_of_text]).parts == (False, -PRICE)
    assert questions.judge(asked, [tokenizer.end_of_text]).n_tokens == 1


def test_what_is_asked_are_documents_of_a_split_up_to_the_mark(questions):
    data, rng = questions.data, random.Random(0)
    decoded = data.tokenizer.decode(data.train.tokens.tolist())
    for _ in range(10):
        asked = questions.ask(rng)
        assert data.tokenizer.decode(questions.prompt(asked)[1:]) == asked.text
        assert asked.text in decoded
    held_out = data.tokenizer.decode(data.validation.tokens.tolist())
    assert all(asked.text in held_out for asked in questions.held_out)
    assert len(questions.held_out) == len(data.validation.boundaries) - 1


def test_a_run_reports_how_often_it_is_right_and_how_long_it_thinks(folder):
    rows = [row for row in read_rows(folder / "policy/metrics.jsonl") if "thought" in row]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    for row in rows:
        assert row["reward"] == pytest.approx(row["right"] - PRICE * row["thought"], abs=1e-5)
    assert any(row["thought"] > 0 for row in rows)
    assert rows[-1]["val_reward"] == pytest.approx(rows[-1]["val_right"] - PRICE * rows[-1]["val_thought"], abs=1e-5)
    assert (folder / "policy/rewards.png").exists()
    assert (folder / "policy/samples.md").read_text().rstrip().endswith(("(wrong)", "(right)"))


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_run_that_goes_on_ends_with_the_same_weights(folder, step):
    """Two updates learn from the same answers: from step 2 on, new ones are written."""
    again = folder / f"from-{step}"
    copytree(folder / "policy", again)
    for later in range(step + 1, 5):
        rmtree(again / f"step-{later:08}")
    quietly(load_run_config(folder / "reader.yaml", POLICY), folder, again.name, resume=True)
    ends = [read_checkpoint(find_step_directory(run, "latest")).model for run in (folder / "policy", again)]
    assert all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items())
