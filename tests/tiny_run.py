"""A run that takes a second: its config, its corpus and another, and how its commands fail."""

from typing import NamedTuple

TINY_RUN = """\
name: tiny
corpus: {type: text, files: [corpus.txt], separator: "\\n\\n"}
tokenizer: {type: bpe, vocab_size: 300}
data: {packing: documents}
model: {context_length: 32, d_model: 16, n_layers: 2, n_heads: 2, dropout: 0.1}
optimizer: {type: adamw, lr: 1e-2}
schedule: {type: cosine, warmup_steps: 2}
train: {steps: 20, batch_size: 2, gradient_accumulation_steps: 2, precision: fp32, device: cpu, log_every_steps: 1}
evaluation: {every_steps: 5}
sample: {every_steps: 10, n_samples: 1, max_new_tokens: 8}
checkpoint: {every_steps: 5, keep_last: 10}
"""

VERSES = "\n\n".join(
    f"The {colour} {animal} said: I {verb} the {thing}."
    for colour in ("red", "grey", "white")
    for animal in ("fox", "hen", "crow")
    for verb in ("found", "lost")
    for thing in ("cheese", "corn", "key")
)

SPEECHES = "\n\n".join(
    f"A {animal} asked: who {verb} my {thing}?"
    for animal in ("fox", "hen", "crow", "dog")
    for verb in ("found", "lost", "took")
    for thing in ("cheese", "corn", "key")
)


class Result(NamedTuple):
    """The exit code of a command, and what it printed."""

    exit_code: int
    stdout: str
    stderr: str


def assert_one_error_line(result: Result, exit_code: int, *fragments: str) -> None:
    """The contract of every failure: one line, `error: WHERE: WHAT; HOW TO FIX IT`, and its exit code."""
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert result.exit_code == exit_code, result
    assert len(errors) == 1, result.stderr
    assert "Traceback" not in result.stderr, result.stderr
    assert "Input should be" not in errors[0], "pydantic's own words"
    for fragment in ("; ", *fragments):
        assert fragment in errors[0], (fragment, errors[0])
