"""lm-evaluation-harness gives an exported run the log-likelihoods that our own model and tokenizer give."""

from pathlib import Path

import pytest
import torch
from scripts.write_lm_eval_tasks import write_tasks

import pellucid
from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.corpora.build import build_corpus
from pellucid.exchange.export import export_run
from pellucid.trained import TrainedModel, load_trained_model

lm_eval = pytest.importorskip("lm_eval")

CHANGES = {
    "corpus.size": 40,
    "corpus.validation_fraction": 0.2,
    "tokenizer.vocab_size": 400,
    "model.context_length": 384,
    "model.d_model": 32,
    "model.n_layers": 2,
    "model.n_heads": 2,
    "model.n_kv_heads": 2,
}
TOLERANCE = 1e-3  # nats


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A tiny run on fables, exported, and tasks made of its held-out part."""
    folder = tmp_path_factory.mktemp("lm_eval")
    train = {"train.steps": 30, "schedule.warmup_steps": 2, "sample.max_new_tokens": 1, "train.processes": 1}
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        pellucid.train("fables", run_dir="run", overrides={**CHANGES, **train})
        export_run(Path("run"), Path("exported"))
        write_tasks(build_corpus(trained_in(folder).config.corpus), Path("tasks"), 6)
    return folder


def trained_in(place: Path) -> TrainedModel:
    return load_trained_model(find_step_directory(place / "run", "best"))


def judged(place: Path, task: str, **model_args: object) -> dict:
    """The report of `lm_eval --model hf --model_args pretrained=DIR --include_path FOLDER --tasks TASK`."""
    return lm_eval.simple_evaluate(
        model="hf",
        model_args={"pretrained": str(place / "exported"), **model_args},
        tasks=[task],
        task_manager=lm_eval.tasks.TaskManager(include_path=str(place / "tasks"), include_defaults=False),
        device="cpu",
        batch_size=4,
        bootstrap_iters=0,
    )


def log_likelihood(trained: TrainedModel, context: str, continuation: str) -> float:
    """ln p(continuation | the start token, context), by our own model and tokenizer."""
    encode = trained.tokenizer.encode
    before, ids = encode(context), encode(context + continuation)
    assert ids[: len(before)] == before
    with torch.no_grad():
        logits_TV = trained.model(torch.tensor([[trained.tokenizer.end_of_text, *ids[:-1]]]))[0]
    log_p_T = logits_TV.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0]
    return log_p_T[len(before) :].sum().item()


def test_the_log_likelihood_of_every_moral_after_every_story_is_ours(place: Path):
    trained, report = trained_in(place), judged(place, "fables_moral")
    right = 0
    for sample in report["samples"]["fables_moral"]:
        question = sample["doc"]
        theirs = [float(answer[0][0]) for answer in sample["resps"]]
        ours = [log_likelihood(trained, question["story"], f" {moral}") for moral in question["morals"]]
        assert theirs == pytest.approx(ours, abs=TOLERANCE)
        right += ours.index(max(ours)) == question["right"]
    assert len(report["samples"]["fables_moral"]) == 6
    assert report["results"]["fables_moral"]["acc,none"] == pytest.approx(right / 6)


def test_the_log_likelihood_of_whole_fables_is_ours_if_the_start_token_stands_before_them_once(place: Path):
    trained, report = trained_in(place), judged(place, "fables_text", add_bos_token=False)
    ours = [log_likelihood(trained, "", sample["doc"]["text"]) for sample in report["samples"]["fables_text"]]
    theirs = [float(sample["resps"][0][0]) for sample in report["samples"]["fables_text"]]
    assert theirs == pytest.approx(ours, abs=TOLERANCE)
    n_bytes = sum(len(sample["doc"]["text"].encode()) for sample in report["samples"]["fables_text"])
    bits = -sum(ours) / n_bytes / torch.tensor(2.0).log().item()
    assert report["results"]["fables_text"]["bits_per_byte,none"] == pytest.approx(bits, abs=1e-5)
