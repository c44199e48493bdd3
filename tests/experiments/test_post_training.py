"""Experiments whose runs learn from rewards: what the table says of them is what their checkpoints say."""

import csv
from pathlib import Path

import pytest

from experiments.conftest import make_report, make_runs
from pellucid.corpora.build import build_corpus
from pellucid.evaluation.answers import answer_table, judge_answers
from pellucid.experiments.plan import Plan, plan_experiment
from pellucid.runs.evaluate_run import evaluate_on_own_text
from pellucid.trained import load_trained_run
from policy_run import make_policy_place

BETAS = """\
name: betas
question: What does it cost to stay near?
base: policy.yaml
set: {train.steps: 4, evaluation.every_steps: 2, checkpoint.every_steps: 4}
grid: {objective.beta: [0.0, 1.0]}
measures: {answers: 4}
figures:
  - {type: lines, title: Reward against divergence, x: answers.kl, y: answers.reward}
  - {type: curves, title: Rewards, x: step, y: reward}
  - {type: curves, title: Learning, x: step}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, Plan, list[str]]:
    """A folder where this experiment has run, its plan, and what was noted while the report was written."""
    folder = tmp_path_factory.mktemp("betas")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_policy_place(folder)
        (folder / "betas.yaml").write_text(BETAS)
        plan = plan_experiment(Path("betas.yaml"))
        make_runs(plan)
        notes = make_report(plan)
    return folder, plan, notes


def test_its_row_has_the_loss_of_the_text_and_the_answers_of_the_checkpoint(made, monkeypatch):
    folder, plan, _ = made
    monkeypatch.chdir(folder)
    run_dir = plan.runs[1].directory(Path("runs"))
    row = list(csv.DictReader(Path("report/results.csv").read_text().splitlines()))[1]
    trained, precision = load_trained_run(run_dir, "latest")
    reference, _ = load_trained_run(Path("reader"), "latest")
    evaluation = evaluate_on_own_text(trained, precision, Path("data"), str(run_dir))
    corpus = build_corpus(trained.config.corpus)
    answers = judge_answers(
        trained.model, trained.tokenizer, corpus, precision, n=4, reference=reference.model.to(precision.device)
    )
    table = answer_table(answers, "reader")
    assert row["objective.beta"] == "1.0"
    assert float(row["val_loss"]) == evaluation.loss_nats_per_token
    assert float(row["excess"]) == evaluation.excess_nats_per_token
    assert float(row["answers.kl"]) == table.kl > 0
    assert float(row["answers.reward"]) == table.reward
    assert float(row["answers.obeys"]) == table.obeys["all"].value
    assert int(row["trained_parameters"]) == sum(weight.numel() for weight in trained.model.parameters())


def test_rewards_are_drawn_and_a_loss_that_is_none_of_text_is_not(made):
    folder, _, notes = made
    [note] = notes
    assert note.startswith(
        "warning: figure 'Learning' is not drawn: run 'β = 0.0' (seed 0) has no excess while training"
    )
    report = (folder / "report/report.md").read_text()
    assert "| variant | whole fables | obey | reward | KL from the start | distinct |" in report
    assert (folder / "report/reward-against-divergence.png").exists()
    assert (folder / "report/rewards.png").exists()
