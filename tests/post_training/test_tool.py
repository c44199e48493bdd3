"""GRPO with a tool: what it writes is read, but neither learned nor counted, in each answer and each update."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import copytree, rmtree

import pytest
import torch

from pellucid.api import load
from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.checkpoint.step_directory import read_checkpoint
from pellucid.config.load import load_run_config
from pellucid.corpora.build import build_corpus
from pellucid.data.batches import IGNORE_INDEX
from pellucid.objectives.policy import grpo, k3
from pellucid.post_training.credit import credit_by_group
from pellucid.post_training.questions import Questions
from pellucid.post_training.rewards import by_verifier
from pellucid.post_training.rollouts import Rollouts
from pellucid.recipe import prepare_data
from pellucid.runtime.distributed import ALONE
from pellucid.runtime.precision import resolve_precision
from post_training.conftest import quietly, reader_and_policy
from tiny import gradients

READER = """\
name: reader
corpus: {type: sums, digits: 1, thoughts: tool, size: 100, validation_fraction: 0.1}
tokenizer: {type: bpe, vocab_size: 300}
data: {packing: documents}
model: {context_length: 15, d_model: 16, n_layers: 1, n_heads: 2, embedding_std: 0.3}
optimizer: {type: adamw, lr: 3e-2}
schedule: {type: constant}
train: {steps: 30, batch_size: 16, precision: fp32, device: cpu, processes: 1}
evaluation: {every_steps: 30}
sample: {every_steps: 30, n_samples: 8, max_new_tokens: 14}
"""
POLICY = (
    "name=policy",
    "start_from=reader",
    "objective={type: grpo, group_size: 3, beta: 0.1, updates_per_rollout: 2, max_new_tokens: 10}",
    "train={steps: 3, batch_size: 4, log_every_steps: 1, precision: fp32, device: cpu, processes: 1}",
    "evaluation={every_steps: 3, max_tokens: 100}",
    "sample={every_steps: 3, n_samples: 1}",
    "checkpoint={every_steps: 1, keep_last: 9}",
)
CALL = re.compile(r" (\d) (\d) \? (\d) (\d)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Iterator[Path]:
    with reader_and_policy(tmp_path_factory.mktemp("tool"), READER, POLICY) as folder:
        yield folder


@pytest.fixture(scope="module")
def rollouts(folder) -> Rollouts:
    """The reader's answers, and the policy as the reference, as they differ."""
    reader, policy = load(folder / "reader"), load(folder / "policy")
    data = prepare_data(reader.config, folder / "data")
    return Rollouts(
        model=reader.model,
        reference=policy.model,
        asking=Questions(build_corpus(reader.config.corpus).language, data, 0.0),
        tokenizer=data.tokenizer,
        reward=by_rest,
        credit=partial(credit_by_group, beta=0.0),
        precision=resolve_precision("cpu", "fp32"),
        world=ALONE,
        seed=0,
        batch_size=8,
        batches_per_update=1,
        updates_per_rollout=2,
        group_size=4,
        max_new_tokens=10,
        temperature=1.0,
        beta=0.1,
    )


def by_rest(prompts, answers, judged):
    """Too few answers would be right."""
    return by_verifier(prompts, answers, judged) + torch.tensor([sum(ids) % 7 / 7 for ids in answers])


def rows_of(batch, tokenizer):
    """The text of each answer's row, and the place of each token that was learned."""
    inputs_NT, targets_NT = batch.answers.inputs_PGT.flatten(0, 1), batch.answers.targets_PGT.flatten(0, 1)
    for inputs_T, targets_T in zip(inputs_NT, targets_NT, strict=True):
        learned = (targets_T != IGNORE_INDEX).nonzero()[:, 0].tolist()
        ids = [*inputs_T[: learned[-1] + 1].tolist(), int(targets_T[learned[-1]])]
        yield ids, [tokenizer.decode([id_]).strip() for id_ in ids], [place + 1 for place in learned]


def is_of_tool(symbols, place):
    """By hand: the two places after two digits and a question mark."""
    return any(
        n >= 3 and symbols[n] == "?" and symbols[n - 1].isdigit() and symbols[n - 2].isdigit()
        for n in (place - 1, place - 2)
    )


def test_the_gradient_is_that_of_a_naive_loss_over_the_policys_own_tokens(rollouts):
    """Row by row: Σ over own tokens of -A ln p + β k3, while p is still that of the answers."""
    model, tokenizer = rollouts.model, rollouts.tokenizer
    batch = rollouts.batch(0, slice(None))
    total, n_of_tool, n_own = 0.0, 0, 0
    begin = len(rollouts.asking.prompt(rollouts.asking.held_out[0]))
    advantages_N, rewards_PG = [], batch.answers.rewards_PG
    for rewards_G in rewards_PG:
        advantages_N += ((rewards_G - rewards_G.mean()) / (rewards_G.std() + 1e-4)).tolist()
    for (ids, symbols, learned), advantage in zip(rows_of(batch, tokenizer), advantages_N, strict=True):
        own = [place for place in range(begin, len(ids)) if not is_of_tool(symbols, place)]
        assert learned == own
        n_of_tool, n_own = n_of_tool + len(ids) - begin - len(own), n_own + len(own)
        log_p, log_ref = (of(torch.tensor([ids[:-1]]))[0].log_softmax(-1) for of in (model, rollouts.reference))
        for place in own:
            mine, other = log_p[place - 1, ids[place]], log_ref[place - 1, ids[place]].detach()
            total = total - advantage * mine + 0.1 * k3(mine, other)
    assert n_of_tool > 5
    total.backward()
    expected = gradients(model)
    model.zero_grad()
    loss = grpo(model, batch.answers, beta=0.1, clip=0.2)
    loss.sum.backward()
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-4, rtol=1e-4)
    assert loss.figures["answer_tokens"] == n_own
    model.zero_grad()


def test_answers_of_a_checkpoint_are_the_same_to_the_last_padding(rollouts):
    """Also where all end with what the tool wrote: nobody reads that, and it is left out."""
    first, second = (replace(rollouts, max_new_tokens=5) for _ in range(2))
    batch = first.batch(0, slice(None))
    rows = [symbols[-4:] for _, symbols, _ in rows_of(batch, rollouts.tokenizer)]
    assert sum(is_of_tool([*symbols, "", ""], 4) for symbols in rows) > 10
    second.restore(first.state())
    again = second.batch(1, slice(None))
    assert all(torch.equal(tensor, other) for tensor, other in zip(batch.answers, again.answers, strict=True))


def test_a_run_asks_its_tool_whenever_it_writes(folder):
    """In samples, `stream`, answers to questions and rollouts."""
    run = load(folder / "reader")
    texts = [(folder / "reader/samples.md").read_text(), *(run.generate(seed=i, max_new_tokens=14) for i in range(8))]
    texts.append(" 9 + 4 : 9 4 ?" + run.generate(" 9 + 4 : 9 4 ?", seed=1, max_new_tokens=4))
    calls = [call for text in texts for call in CALL.findall(text)]
    assert len(calls) > 4
    assert all(10 * int(tens) + int(ones) == int(first) + int(second) for first, second, tens, ones in calls)
    assert run.evaluate(answers=4, samples=2).answers.n_samples == 2
    floor = run.evaluate().floor_nats_per_token
    assert floor * 11 == pytest.approx(2 * 2.302585, rel=1e-3), "of 13 symbols with the end, the tool has two"


def test_a_policy_with_a_tool_goes_on_with_the_same_weights(folder):
    again = folder / "again"
    copytree(folder / "policy", again)
    for later in (2, 3):
        rmtree(again / f"step-{later:08}")
    quietly(load_run_config(folder / "reader.yaml", POLICY), folder, again.name, resume=True)
    ends = [read_checkpoint(find_step_directory(run, "latest")).model for run in (folder / "policy", again)]
    assert all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items())
