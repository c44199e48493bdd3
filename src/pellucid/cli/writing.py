"""Commands that write text with a trained model: generate, chat."""

from __future__ import annotations

import re
import secrets
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from pellucid.cli.arguments import Json, Run, Which, from_utf8, read_prompt
from pellucid.cli.terminal import heavy_imports, note, print_result, write
from pellucid.errors import ConfigError, PellucidError

if TYPE_CHECKING:
    from pellucid.generation.chat import Conversation

CHAT_HELP = "each line is a turn; /new starts over, /quit ends, /help says this"


def generate(
    run: Run,
    prompt: Annotated[str | None, Option(metavar="TEXT", help="Text to continue.")] = None,
    prompt_file: Annotated[Path | None, Option(metavar="F", help="File that holds the prompt; - is stdin.")] = None,
    max_new_tokens: Annotated[int, Option(metavar="N", min=0)] = 256,
    temperature: Annotated[float | None, Option(metavar="X", help="0 is greedy. [default: 1.0]")] = None,
    top_k: Annotated[int | None, Option(metavar="K", help="Sample from the K most likely tokens.")] = None,
    top_p: Annotated[float | None, Option(metavar="P", help="Sample from the smallest set of probability P.")] = None,
    min_p: Annotated[float | None, Option(metavar="P", help="Drop tokens below P times the top probability.")] = None,
    greedy: Annotated[bool, Option("--greedy", help="Always take the most likely token.")] = False,
    repetition_penalty: Annotated[
        float | None, Option(metavar="X", help="Above 1: repeat less. [default: 1.0]")
    ] = None,
    beams: Annotated[int | None, Option(metavar="N", min=1, help="Beam search with N beams.")] = None,
    length_penalty: Annotated[
        float | None, Option(metavar="X", help="With --beams: 0 prefers short texts. [default: 1]")
    ] = None,
    stop: Annotated[list[str] | None, Option(metavar="TEXT", help="Stop before this text; may be repeated.")] = None,
    num_samples: Annotated[int, Option(metavar="N", min=1)] = 1,
    seed: Annotated[int | None, Option(metavar="S", help="The same seed gives the same text.")] = None,
    checkpoint: Which = "best",
    as_json: Json = False,
) -> None:
    """Write text with a trained model. Continues a prompt, or starts a new document."""
    is_drawn = (temperature, top_k, top_p, min_p) != (None,) * 4
    _require_one_way_to_choose(greedy, is_drawn, "--temperature, --top-k, --top-p and --min-p")
    if beams is not None and (greedy or is_drawn or repetition_penalty is not None):
        what = "--beams excludes --greedy, --temperature, --top-k, --top-p, --min-p and --repetition-penalty"
        raise ConfigError("command line", what, "leave out --beams, or the others")
    if length_penalty is not None and beams is None:
        raise ConfigError("command line", "--length-penalty needs --beams", "give --beams N, or leave it out")
    with heavy_imports():
        from pellucid.config.gaps import require_next_tokens
        from pellucid.generation.sampling import Sampling
        from pellucid.generation.text import generate_text, search_text, stream_text
        from pellucid.kernels.freed_memory import keep_freed_memory
        from pellucid.trained import load_trained_run

    keep_freed_memory()
    default, penalty = 0.0 if greedy else 1.0, 1.0 if repetition_penalty is None else repetition_penalty
    sampling = Sampling(default if temperature is None else temperature, top_k, top_p, min_p, penalty)
    text, (trained, precision) = read_prompt(prompt, prompt_file) or "", load_trained_run(run, checkpoint)
    require_next_tokens(trained.config)
    trained.tokenizer.encode(text)  # raises for an unreadable prompt before anything is written
    if seed is None and beams is None and sampling.temperature > 0:
        seed = secrets.randbelow(2**32)
        note(f"seed {seed}: --seed {seed} writes the same again")
    start = (trained.model, trained.tokenizer, text)
    settings: dict[str, Any] = {"max_new_tokens": max_new_tokens, "stop": stop or ()}
    drawing: dict[str, Any] = {**settings, "sampling": sampling, "seed": seed}
    with precision.for_decoding().autocast():
        if beams is not None:
            penalty = 1.0 if length_penalty is None else length_penalty
            completions = search_text(*start, n_beams=beams, n_best=num_samples, length_penalty=penalty, **settings)
        elif num_samples == 1 and not as_json:
            for piece in chain([text], stream_text(*start, **drawing), ["\n"]):
                write(piece)
            return
        else:
            completions = generate_text(*start, n_samples=num_samples, **drawing)
    texts = "\n\n".join(text + completion.completion for completion in completions)
    print_result({"samples": [completion.to_json() for completion in completions]} if as_json else texts)


def chat(
    run: Run,
    prompt: Annotated[list[str] | None, Option(metavar="TEXT", help="Say this and exit; may be repeated.")] = None,
    max_new_tokens: Annotated[int | None, Option(metavar="N", min=1, help="[default: 3/4 of the context]")] = None,
    temperature: Annotated[float | None, Option(metavar="X", help="0 is greedy. [default: 1.0]")] = None,
    top_k: Annotated[int | None, Option(metavar="K", help="Sample from the K most likely tokens.")] = None,
    top_p: Annotated[float | None, Option(metavar="P", help="Sample from the smallest set of probability P.")] = None,
    greedy: Annotated[bool, Option("--greedy", help="Always take the most likely token.")] = False,
    seed: Annotated[int | None, Option(metavar="S", help="The same seed gives the same answers.")] = None,
    checkpoint: Which = "best",
    as_json: Json = False,
) -> None:
    """Talk with a model that was fine-tuned on conversations. One line is one turn; /help lists what else there is."""
    is_drawn = (temperature, top_k, top_p) != (None,) * 3
    _require_one_way_to_choose(greedy, is_drawn, "--temperature, --top-k and --top-p")
    if as_json and not prompt:
        raise ConfigError("command line", "--json needs --prompt", "give what is to be said, or leave out --json")
    with heavy_imports():
        from pellucid.config.gaps import require_next_tokens
        from pellucid.config.shipped import DEMO
        from pellucid.generation.chat import Conversation
        from pellucid.generation.sampling import Sampling
        from pellucid.kernels.freed_memory import keep_freed_memory
        from pellucid.tokenizer.chat import require_chat_tokens
        from pellucid.trained import load_trained_run

    keep_freed_memory()
    default = 0.0 if greedy else 1.0
    sampling = Sampling(default if temperature is None else temperature, top_k, top_p)
    trained, precision = load_trained_run(run, checkpoint)
    require_next_tokens(trained.config)
    require_chat_tokens(trained.tokenizer, "chat", "demo" if run == DEMO else str(run))
    settings: dict[str, Any] = {"sampling": sampling, "max_new_tokens": max_new_tokens, "seed": seed}
    conversation = Conversation(trained.model, trained.tokenizer, precision, **settings)
    if not prompt:
        _talk(conversation)
        return
    for text in prompt:
        for piece in chain(conversation.say(text), ["\n"]):
            if not as_json:
                write(piece)
    if as_json:
        turns = [turn._asdict() for turn in conversation.turns]
        print_result({"turns": turns, "tokens": conversation.n_tokens, "finish_reason": conversation.finish_reason})


def _talk(conversation: Conversation) -> None:
    """Answer each line of stdin on stdout; all else goes to stderr, so that redirected output holds only answers."""
    is_typed = sys.stdin.isatty()
    note(CHAT_HELP)
    while True:
        print("\nyou: ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.buffer.readline()
        if not is_typed or not line:
            note(line.decode("utf-8", "replace").strip())
        text = from_utf8(line, "stdin").strip()
        if not line or text == "/quit":
            return
        if text == "/new":
            conversation.start_over()
        elif text == "/help" or (is_typed and re.fullmatch("/[a-z]+", text)):  # a misspelled command is no message
            note(CHAT_HELP)
        elif text:
            try:
                for i, piece in enumerate(chain(conversation.say(text), ["\n"])):
                    if i == 0:
                        print("model: ", end="", file=sys.stderr, flush=True)
                    write(piece)
            except PellucidError as error:
                if not is_typed:
                    raise
                note(f"error: {error}")  # the user can try again


def _require_one_way_to_choose(greedy: bool, is_drawn: bool, options: str) -> None:
    if greedy and is_drawn:
        raise ConfigError("command line", f"--greedy excludes {options}", "leave out --greedy, or the others")
