"""`pellucid chat`: a conversation on the command line, typed, piped or given as options."""

import io
import json
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import pellucid as library
from pellucid.checkpoint.step_directory import write_checkpoint
from pellucid.checkpoint.training_state import model_tensors
from pellucid.cli.terminal import Stopped
from pellucid.config.load import parse_run_config
from pellucid.generation import text as text_module
from pellucid.model.build import build_model
from pellucid.tokenizer.tokenizer import Tokenizer
from pellucid.tokenizer.train import train_byte_pairs
from tiny_checkpoint import tiny_checkpoint
from tiny_run import TINY_RUN, VERSES

QUESTIONS = ["The red fox?", "And the crow?"]


def run_of(folder: Path, tokenizer: Tokenizer) -> Path:
    """A run that has learned nothing."""
    config = parse_run_config(TINY_RUN, "tiny.yaml")
    model = build_model(config.model, tokenizer.vocab_size)
    fields = {"model": model_tensors(model), "config_yaml": TINY_RUN, "tokenizer_json": tokenizer.to_json()}
    folder.mkdir()
    checkpoint = tiny_checkpoint()
    write_checkpoint(folder, type(checkpoint)(**{**vars(checkpoint), **fields}))
    return folder


@pytest.fixture(scope="module")
def plain() -> Tokenizer:
    return train_byte_pairs([VERSES], vocab_size=300, special_tokens=["<|endoftext|>"])


@pytest.fixture(scope="module")
def chat_run(tmp_path_factory, plain: Tokenizer) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return run_of(tmp_path_factory.mktemp("chat") / "run", plain.with_chat_tokens())


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch):
    """Puts lines into stdin, from a pipe or a keyboard."""

    def put(text: bytes, *, by_hand: bool = False) -> None:
        stdin = SimpleNamespace(buffer=io.BytesIO(text), isatty=lambda: by_hand)
        monkeypatch.setattr("sys.stdin", stdin)

    return put


@pytest.fixture(scope="module")
def answers(chat_run: Path) -> list[str]:
    conversation = library.load(chat_run).chat(seed=1, max_new_tokens=8)
    return [conversation.ask(question) for question in QUESTIONS]


def test_questions_given_as_options_are_answered_as_text_or_as_json_with_all_turns(chat_run: Path, answers, pellucid):
    prompts = [word for question in QUESTIONS for word in ("--prompt", question)]
    ask = ("chat", chat_run, *prompts, "--seed", 1, "--max-new-tokens", 8)
    result = pellucid(*ask)
    assert (result.exit_code, result.stdout) == (0, "".join(answer + "\n" for answer in answers))
    told = json.loads(pellucid(*ask, "--json").stdout)
    assert told["turns"] == [
        {"role": role, "text": text}
        for question, answer in zip(QUESTIONS, answers, strict=True)
        for role, text in (("user", question), ("assistant", answer))
    ]
    assert set(told) == {"turns", "tokens", "finish_reason"}
    assert 0 < told["tokens"] <= 16
    assert told["finish_reason"] in ("end_of_text", "length")


@pytest.mark.parametrize("last", ["", "\r\n\r\n \n/quit\nnever said\n"])
def test_piped_lines_are_turns_and_stdout_holds_the_answers_alone(chat_run: Path, answers, pellucid, typing, last):
    typing("\n".join(QUESTIONS).encode() + last.encode())
    result = pellucid("chat", chat_run, "--seed", 1, "--max-new-tokens", 8)
    assert (result.exit_code, result.stdout) == (0, "".join(answer + "\n" for answer in answers))
    assert f"you: {QUESTIONS[0]}\nmodel: " in result.stderr
    assert "never said" not in result.stderr


def test_new_starts_over(chat_run: Path, answers, pellucid, typing):
    typing(f"{QUESTIONS[0]}\n/new\n{QUESTIONS[0]}\n".encode())
    result = pellucid("chat", chat_run, "--seed", 1, "--max-new-tokens", 8)
    assert result.stdout == 2 * (answers[0] + "\n")


@pytest.mark.parametrize(("typed", "by_hand"), [("/help", True), ("/help", False), ("/nwe", True)])
def test_help_and_a_slip_of_the_hand_are_not_said_to_the_model(
    chat_run: Path, answers, pellucid, typing, typed, by_hand
):
    typing(f"{typed}\n{QUESTIONS[0]}\n".encode(), by_hand=by_hand)
    result = pellucid("chat", chat_run, "--seed", 1, "--max-new-tokens", 8)
    assert result.stdout == answers[0] + "\n"
    assert result.stderr.count("/new starts over, /quit ends, /help says this\n") == 2


def test_who_types_can_say_it_another_way_and_a_pipe_ends(chat_run: Path, pellucid, typing):
    too_long = b"fox " * 99 + b"\nfox?\n"
    typing(too_long, by_hand=True)
    result = pellucid("chat", chat_run, "--seed", 1, "--max-new-tokens", 4)
    answer = library.load(chat_run).chat(seed=1, max_new_tokens=4).ask("fox?")
    assert (result.exit_code, result.stdout) == (0, answer + "\n")
    assert result.stderr.count("error: chat: this turn and its marks are") == 1
    typing(too_long)
    result = pellucid("chat", chat_run, "--max-new-tokens", 4)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1].startswith("error: chat: this turn and its marks are")


@pytest.mark.parametrize("when", ["while it listens", "while it answers"])
def test_ctrl_c_ends_it(chat_run: Path, pellucid, typing, monkeypatch: pytest.MonkeyPatch, when):
    def press_ctrl_c(*arguments: object, **options: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Stopped, "asked_for", None)  # afterwards this process is to forget it
    typing(b"fox?\n")
    if when == "while it listens":
        monkeypatch.setattr(
            "sys.stdin", SimpleNamespace(isatty=lambda: True, buffer=SimpleNamespace(readline=press_ctrl_c))
        )
    else:
        monkeypatch.setattr(text_module, "in_step", press_ctrl_c)
    result = pellucid("chat", chat_run)
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr.endswith("stopped\n")


@pytest.mark.parametrize(
    ("options", "exit_code", "line"),
    [
        (["--json"], 2, "command line: --json needs --prompt; "),
        (["--greedy", "--top-k", "3"], 2, "command line: --greedy excludes --temperature, --top-k and --top-p; "),
        (["--prompt", "half \udcff"], 3, "text: holds U+DCFF"),
        (["--checkpoint", "7"], 4, "no checkpoint '7'"),
    ],
)
def test_what_it_cannot_do_is_one_line(chat_run: Path, pellucid, options, exit_code, line):
    result = pellucid("chat", chat_run, *options)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    [error] = [each for each in result.stderr.splitlines() if each.startswith("error: ")]
    assert line in error


def test_a_line_that_is_no_text_is_one_line(chat_run: Path, pellucid, typing):
    typing(b"fox \xff\n")
    result = pellucid("chat", chat_run)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("error: stdin: byte 4 is not UTF-8; ")


def test_a_model_without_turns_is_refused_before_anything_is_said(plain: Tokenizer, pellucid, typing, tmp_path: Path):
    typing(b"fox?\n")
    result = pellucid("chat", run_of(tmp_path / "plain", plain))
    assert (result.exit_code, result.stdout) == (2, "")
    [line] = result.stderr.splitlines()
    assert line.startswith("error: chat: this model was not trained on conversations; fine-tune it first")
    assert f"`pellucid train instructions_sft start_from={tmp_path / 'plain'}`" in line
