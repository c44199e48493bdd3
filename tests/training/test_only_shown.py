"""Samples, figures and the progress bar are merely shown: they never end a run, and are checked before it begins."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from pellucid.training import plots, samples
from pellucid.training.progress_bar import ProgressBar
from pellucid.training.trainer import Update

SHORT = ("train.steps=2", "evaluation.every_steps=2")


@pytest.mark.parametrize(
    ("module", "name", "warning"),
    [
        (plots, "save_figure", "warning: figures: not made (OSError: no space); the run continues"),
        (samples, "generate_text", "warning: samples: not made (OSError: no space); the run continues"),
    ],
)
def test_a_run_whose_figures_or_samples_fail_ends_well(workplace: Path, pellucid, monkeypatch, module, name, warning):
    def fail(*_: object, **__: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(module, name, fail)
    done = pellucid("train", "tiny.yaml", *SHORT)
    assert done.exit_code == 0
    assert warning in done.stderr.splitlines()
    assert (workplace / "checkpoints/tiny/step-00000002").is_dir()


def test_a_prompt_that_the_vocabulary_lacks_is_refused_before_the_first_step(workplace: Path, pellucid):
    done = pellucid("train", "tiny.yaml", *SHORT, "tokenizer={type: char}", "sample.prompt=É")
    assert (done.exit_code, done.stderr.splitlines()[-1].partition(": ")[2].partition(":")[0]) == (2, "sample.prompt")
    assert not (workplace / "checkpoints/tiny/config.yaml").exists()


def test_held_out_questions_that_the_context_cannot_hold_are_not_asked(monkeypatch):
    questions = [f"Who, {'said it, ' * (i % 4 // 3 * 40)}{i}?" for i in range(1, 20, 2)]
    corpus = SimpleNamespace(conversations=lambda _split: [[SimpleNamespace(text=text)] for text in questions])
    monkeypatch.setattr("pellucid.tokenizer.chat.prompt_ids", lambda _, turns: turns[0].text)  # a token is a character
    assert samples.first_questions(corpus, None, 20, 3) == ["Who, 1?", "Who, 5?", "Who, 9?"]


def test_in_a_log_file_progress_is_a_line_now_and_then_and_at_the_end_with_the_mean_speed(capsys):
    bar = ProgressBar(100, 0, None, is_shown=True, log_every=10)
    with bar:
        for step in range(1, 101):
            update = Update(loss=2.0, gradient_norm=1.0, learning_rate=0.1, tokens=100 * step, seconds=1.0)
            bar.show(step, update, None, [])
    lines = ["step 10/100: loss 2.000, 550 tokens/s, 90 s to go"]
    lines += ["step 100/100: loss 2.000, 9,050 tokens/s"]
    assert capsys.readouterr().err.splitlines() == lines
