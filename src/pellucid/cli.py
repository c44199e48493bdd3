"""The command line: one short function per command.

Heavy imports stand inside the functions, so that `pellucid --help` answers at once. Results go to stdout, everything
else to stderr. Whatever goes wrong ends in one line, `error: WHERE: WHAT; HOW TO FIX IT`, and a documented exit code.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import signal
import sys
import textwrap
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from typer import Argument, Option

from pellucid.errors import CheckpointError, ConfigError, NonFiniteLossError, PellucidError, explained
from pellucid.version import __version__

if TYPE_CHECKING:
    from pellucid.config.run import RunConfig
    from pellucid.generation.chat import Conversation
    from pellucid.training.task import Validation

DATA_ROOT, RUNS_ROOT = Path("data"), Path("checkpoints")

app = typer.Typer(
    epilog="Exit codes: 0 done; 2 usage or config; 3 data or tokenizer; 4 checkpoint; 5 input/output; 6 non-finite "
    "loss; 7 run directory in use; 8 out of memory; 9 a process of several is gone; 130 Ctrl-C; 143 SIGTERM. With "
    "--debug, anywhere, an error shows its traceback.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ConfigFile = Annotated[Path, Argument(metavar="CONFIG", help="YAML file, or a name of `pellucid configs`.")]
Overrides = Annotated[
    list[str] | None, Argument(metavar="[KEY=VALUE]...", help="Change the config: optimizer.lr=3e-4 train.steps=100.")
]
Run = Annotated[Path, Argument(metavar="RUN", help="Run directory or one of its step directories.")]
Which = Annotated[str, Option("--checkpoint", metavar="best|latest|STEP", help="Which checkpoint.")]
Json = Annotated[bool, Option("--json", help="Print exactly one JSON object on stdout.")]


class _Stopped(SystemExit):
    """Ctrl-C or SIGTERM, outside of the training loop, which saves first."""

    asked_for: int | None = None


def main() -> NoReturn:
    """Runs a command and turns whatever happens into an exit code."""
    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    logging.addLevelName(logging.INFO, "note")
    logging.addLevelName(logging.WARNING, "warning")
    handler, log = logging.StreamHandler(), logging.getLogger("pellucid")
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    log.handlers = [handler]
    log.setLevel(logging.INFO if _is_first() else logging.ERROR)
    try:
        exit_code = app(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(exit_code)
    except SystemExit as end:
        if isinstance(end, _Stopped):
            _note("stopped")
        raise
    except BaseException as error:
        if debug:
            raise
        sys.exit(_report(error))


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    _Stopped.asked_for = 128 + number
    raise _Stopped(128 + number)


def _heed_stop_during_imports() -> None:
    """PyTorch, when it looks for NumPy, swallows every exception: also the one that a signal raised."""
    if _Stopped.asked_for is not None:
        raise _Stopped(_Stopped.asked_for)


def _report(error: BaseException) -> int:
    """Prints the one line for an error and returns its exit code; an unforeseen one is raised again."""
    if isinstance(error, BrokenPipeError):  # `pellucid generate … | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if hasattr(error, "format_message"):  # typer's own errors: an unknown option, a missing argument
        where = getattr(getattr(error, "ctx", None), "command_path", "pellucid")
        what = error.format_message().rstrip(".").replace("Value error, ", "")
        error = ConfigError(where, what, f"see `{where} --help`")
    else:
        error = explained(error)
    if not isinstance(error, PellucidError):
        raise error
    if _is_first() or not isinstance(error, NonFiniteLossError):  # which all find alike
        print(f"error: {error}", file=sys.stderr, flush=True)
    return error.exit_code


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"pellucid {__version__}")
        raise typer.Exit


@app.callback()
def pellucid(
    _version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train a decoder-only transformer that you can see through, and read what it writes."""


@app.command()
def prepare(config: ConfigFile, overrides: Overrides = None) -> None:
    """Write a corpus as tokens, once. Learns the tokenizer from it; prints the folder."""
    from pellucid.data.build import prepare_data

    run_config = _load_config(config, overrides)
    _say_where_new(DATA_ROOT)
    print(prepare_data(run_config, DATA_ROOT).directory)


@app.command()
def train(
    config: ConfigFile,
    overrides: Overrides = None,
    run_dir: Annotated[Path | None, Option(metavar="DIR", help="Its folder. [default: checkpoints/NAME]")] = None,
    resume: Annotated[bool, Option("--resume", help="Continue from the newest checkpoint, if any.")] = False,
    overwrite: Annotated[bool, Option("--overwrite", help="Delete the run that is there.")] = False,
    minutes: Annotated[float | None, Option(metavar="M", min=0.01, help="Only as many steps as this takes.")] = None,
) -> None:
    """Train a model. Prints its loss on the validation text at the end, and the floor where it is known."""
    from pellucid.training.train_run import train_run

    if resume and overwrite:
        raise ConfigError("command line", "--resume and --overwrite exclude each other", "give one of them")
    run_config = _load_config(config, overrides)
    directory = run_dir or RUNS_ROOT / run_config.name
    _say_where_new(DATA_ROOT, directory.parent)
    options: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "minutes": minutes}
    outcome = train_run(run_config, DATA_ROOT, directory, **options, note=_note)
    if not _is_first():
        sys.exit(0 if outcome.stopped_by is None else 128 + outcome.stopped_by)
    if outcome.stopped_by is not None:
        _note(f"stopped after step {outcome.step}, saved; to continue: {_typed()} --resume")
        sys.exit(128 + outcome.stopped_by)
    if outcome.best is None:
        print(f"validation: {outcome.evaluation}")
    else:
        print(f"validation: {outcome.best}   step {outcome.best_step:,}, the best: `generate` takes it")
        print(f"validation: {outcome.evaluation}   step {outcome.step:,}, the last")


@app.command()
def generate(
    run: Run,
    prompt: Annotated[str | None, Option(metavar="TEXT", help="Text to continue.")] = None,
    prompt_file: Annotated[Path | None, Option(metavar="F", help="File that holds the prompt.")] = None,
    max_new_tokens: Annotated[int, Option(metavar="N", min=0)] = 256,
    temperature: Annotated[float | None, Option(metavar="X", help="0 is greedy. [default: 1.0]")] = None,
    top_k: Annotated[int | None, Option(metavar="K", help="Draw from the K most likely tokens.")] = None,
    top_p: Annotated[float | None, Option(metavar="P", help="Draw from the fewest tokens of probability P.")] = None,
    min_p: Annotated[float | None, Option(metavar="P", help="Draw from tokens P times as likely as the best.")] = None,
    greedy: Annotated[bool, Option("--greedy", help="Always the most likely token.")] = False,
    repetition_penalty: Annotated[
        float | None, Option(metavar="X", help="Above 1: repeat less. [default: 1.0]")
    ] = None,
    beams: Annotated[int | None, Option(metavar="N", min=1, help="Instead: seek the likeliest, N at once.")] = None,
    length_penalty: Annotated[float | None, Option(metavar="X", help="With --beams: 0 is short. [default: 1]")] = None,
    stop: Annotated[list[str] | None, Option(metavar="TEXT", help="End before this; may be repeated.")] = None,
    num_samples: Annotated[int, Option(metavar="N", min=1)] = 1,
    seed: Annotated[int | None, Option(metavar="S", help="The same seed, the same text.")] = None,
    checkpoint: Which = "best",
    as_json: Json = False,
) -> None:
    """Write text with a trained model. Continues a prompt, or begins a document."""
    from pellucid.checkpoint.build import load_trained_run
    from pellucid.generation.sampling import Sampling
    from pellucid.generation.text import generate_text, search_text, stream_text
    from pellucid.kernels.freed_memory import keep_freed_memory

    _heed_stop_during_imports()
    keep_freed_memory()
    is_drawn = (temperature, top_k, top_p, min_p) != (None,) * 4
    _require_one_way_to_choose(greedy, is_drawn, "--temperature, --top-k, --top-p and --min-p")
    if beams is not None and (greedy or is_drawn or repetition_penalty is not None):
        what = "--beams excludes --greedy, --temperature, --top-k, --top-p, --min-p and --repetition-penalty"
        raise ConfigError("command line", what, "leave out --beams, or the others")
    if length_penalty is not None and beams is None:
        raise ConfigError("command line", "--length-penalty needs --beams", "give --beams N, or leave it out")
    default = 0.0 if greedy else 1.0
    penalty = 1.0 if repetition_penalty is None else repetition_penalty
    sampling = Sampling(default if temperature is None else temperature, top_k, top_p, min_p, penalty)
    text = _read_prompt(prompt, prompt_file) or ""
    trained, precision = load_trained_run(run, checkpoint)
    trained.tokenizer.encode(text)  # refuses what it cannot read before anything is written
    start = (trained.model, trained.tokenizer, text)
    settings: dict[str, Any] = {"max_new_tokens": max_new_tokens, "stop": stop or ()}
    drawing: dict[str, Any] = {**settings, "sampling": sampling, "seed": seed}
    with precision.for_decoding().autocast():
        if beams is not None:
            penalty = 1.0 if length_penalty is None else length_penalty
            completions = search_text(*start, n_beams=beams, n_best=num_samples, length_penalty=penalty, **settings)
        elif num_samples == 1 and not as_json:
            for piece in chain([text], stream_text(*start, **drawing), ["\n"]):
                _write(piece)
            return
        else:
            completions = generate_text(*start, n_samples=num_samples, **drawing)
    whole_texts = "\n\n".join(text + completion.completion for completion in completions)
    _print({"samples": [completion.to_json() for completion in completions]} if as_json else whole_texts)


@app.command()
def chat(
    run: Run,
    prompt: Annotated[list[str] | None, Option(metavar="TEXT", help="Say this, then end; may be repeated.")] = None,
    max_new_tokens: Annotated[int | None, Option(metavar="N", min=1, help="[default: 3/4 of the context]")] = None,
    temperature: Annotated[float | None, Option(metavar="X", help="0 is greedy. [default: 1.0]")] = None,
    top_k: Annotated[int | None, Option(metavar="K", help="Draw from the K most likely tokens.")] = None,
    top_p: Annotated[float | None, Option(metavar="P", help="Draw from the fewest tokens of probability P.")] = None,
    greedy: Annotated[bool, Option("--greedy", help="Always the most likely token.")] = False,
    seed: Annotated[int | None, Option(metavar="S", help="The same seed, the same answers.")] = None,
    checkpoint: Which = "best",
    as_json: Json = False,
) -> None:
    """Talk with a model that was fine-tuned on conversations. A line is a turn; /new starts over, /quit ends."""
    from pellucid.checkpoint.build import load_trained_run
    from pellucid.generation.chat import Conversation
    from pellucid.generation.sampling import Sampling
    from pellucid.kernels.freed_memory import keep_freed_memory

    _heed_stop_during_imports()
    keep_freed_memory()
    is_drawn = (temperature, top_k, top_p) != (None,) * 3
    _require_one_way_to_choose(greedy, is_drawn, "--temperature, --top-k and --top-p")
    if as_json and not prompt:
        raise ConfigError("command line", "--json needs --prompt", "give what is to be said, or leave out --json")
    default = 0.0 if greedy else 1.0
    sampling = Sampling(default if temperature is None else temperature, top_k, top_p)
    trained, precision = load_trained_run(run, checkpoint)
    settings: dict[str, Any] = {"sampling": sampling, "max_new_tokens": max_new_tokens, "seed": seed}
    conversation = Conversation(trained.model, trained.tokenizer, precision, **settings)
    if not prompt:
        _talk(conversation)
        return
    for text in prompt:
        for piece in chain(conversation.say(text), ["\n"]):
            if not as_json:
                _write(piece)
    if as_json:
        turns = [turn._asdict() for turn in conversation.turns]
        _print({"turns": turns, "tokens": conversation.n_tokens, "finish_reason": conversation.finish_reason})


def _talk(conversation: Conversation) -> None:
    """Answers each line of stdin on stdout. All else is on stderr, so that a file of the answers holds nothing else."""
    is_typed = sys.stdin.isatty()
    _note("each line is a turn; /new starts over, /quit ends")
    while True:
        print("\nyou: ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.buffer.readline()
        if not is_typed or not line:
            _note(line.decode("utf-8", "replace").strip())
        text = _from_utf8(line, "stdin").strip()
        if not line or text == "/quit":
            return
        if text == "/new":
            conversation.start_over()
        elif text:
            try:
                for i, piece in enumerate(chain(conversation.say(text), ["\n"])):
                    if i == 0:
                        print("model: ", end="", file=sys.stderr, flush=True)
                    _write(piece)
            except PellucidError as error:
                if not is_typed:
                    raise
                _note(f"error: {error}")  # and whoever types can say it another way


@app.command()
def evaluate(
    run: Run,
    text: Annotated[Path | None, Option(metavar="FILE", help="Measure on this text instead.")] = None,
    on: Annotated[Path | None, Option(metavar="RUN|CONFIG", help="Measure on the validation text of this.")] = None,
    answers: Annotated[
        int | None, Option(metavar="N", min=0, help="Held-out instructions to answer, if it knows any. [default: 200]")
    ] = None,
    checkpoint: Which = "best",
    as_json: Json = False,
) -> None:
    """Measure a trained model on its validation text. Loss, perplexity, bits per byte; floor, excess if known."""
    from pellucid.checkpoint.build import load_trained_run
    from pellucid.checkpoint.run_directory import find_step_directory
    from pellucid.evaluation.build import evaluate_on, evaluate_text
    from pellucid.training.evaluate_run import evaluate_run

    _heed_stop_during_imports()
    if sum(option is not None for option in (text, on, answers)) > 1:
        raise ConfigError("command line", "--text, --on and --answers exclude each other", "give one of them")
    trained, precision = load_trained_run(run, checkpoint)
    if text is not None:
        evaluation: Validation = evaluate_text(trained, precision, text)
    else:
        _say_where_new(DATA_ROOT)
        if on is not None:
            evaluation = evaluate_on(trained, precision, on, DATA_ROOT)
        else:
            directory = find_step_directory(run, checkpoint)
            evaluation = evaluate_run(trained, precision, DATA_ROOT, directory, str(run), answers)
    _print({"step": trained.step, **evaluation.to_json()} if as_json else evaluation.table())


@app.command()
def explain(
    run: Run,
    prompt: Annotated[str | None, Option(metavar="TEXT", help="Text to explain, and what may follow.")] = None,
    prompt_file: Annotated[Path | None, Option(metavar="F", help="File that holds the text.")] = None,
    fable: Annotated[int | None, Option(metavar="N", min=1, help="The N-th held-out document. [default: 1]")] = None,
    top: Annotated[int, Option(metavar="N", min=1, help="The N most likely next tokens of each.")] = 10,
    attention: Annotated[str | None, Option(metavar="all|LAYER.HEAD", help="Where all heads, or one, look.")] = None,
    checkpoint: Which = "best",
    as_json: Json = False,
    html: Annotated[Path | None, Option(metavar="FILE", help="Write a page to look at instead.")] = None,
) -> None:
    """Show what a model expects at each token of a text. Beside it stands the exact truth, where that is known."""
    from pellucid.checkpoint.build import load_trained_run
    from pellucid.evaluation.build import explain_run
    from pellucid.evaluation.explain_page import explanation_page, write_page
    from pellucid.evaluation.explain_table import explanation_table

    _heed_stop_during_imports()
    text = _read_prompt(prompt, prompt_file)
    if text is not None and fable is not None:
        raise ConfigError("command line", "--fable and a prompt exclude each other", "give one of them")
    trained, _ = load_trained_run(run, checkpoint)
    explanation = explain_run(trained, text, number=fable or 1, n_candidates=top, attention=attention)
    if html is not None:
        write_page(html, explanation_page(explanation))
        _note(f"wrote {html}")
    if as_json:
        _print({"run": trained.config.name, "step": trained.step, **explanation.to_json()})
    elif html is None:
        colored = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        _print(explanation_table(explanation, colored=colored))


@app.command()
def embed(
    run: Run,
    text: Annotated[list[str] | None, Option("--text", metavar="TEXT", help="A text, as often as you like.")] = None,
    file: Annotated[list[Path] | None, Option("--file", metavar="F", help="A file that holds a text.")] = None,
    documents: Annotated[int, Option(metavar="N", min=1, help="Without a text: N held-out ones, at most.")] = 1000,
    per: Annotated[Literal["text", "token"], Option(help="A vector for each text, or for each token.")] = "text",
    pooling: Annotated[Literal["mean", "last"], Option(help="Of a text's tokens: the mean, or the last.")] = "mean",
    layer: Annotated[str, Option(metavar="N|last", help="0 is the embedding, N is after block N.")] = "last",
    nearest: Annotated[str | None, Option(metavar="TEXT", help="Show the texts that are most like this one.")] = None,
    k: Annotated[int | None, Option("--k", metavar="K", min=1, help="With --nearest: how many. [default: 5]")] = None,
    map_file: Annotated[Path | None, Option("--map", metavar="FILE", help="Draw a map of them: PNG or SVG.")] = None,
    colour: Annotated[str | None, Option(metavar="PROPERTY", help="With --map, of fables. [default: plot]")] = None,
    probe: Annotated[bool, Option("--probe", help="Show what a linear probe reads off each layer.")] = False,
    checkpoint: Which = "best",
    output: Annotated[Path | None, Option(metavar="FILE", help="Write the vectors: .npz or .safetensors.")] = None,
    as_json: Json = False,
) -> None:
    """Turn texts into vectors, one for each text or token. Shows nearest texts, a map, and what they tell a probe."""
    from pellucid.checkpoint.build import load_trained_run
    from pellucid.evaluation import build
    from pellucid.evaluation import embed as embedding
    from pellucid.experiments.figures.embedding_map import write_map

    _heed_stop_during_imports()
    if per == "token" and (nearest is not None or map_file):
        what = "--per token excludes --nearest and --map"
        raise ConfigError("command line", what, "leave it out: texts are compared, not tokens")
    for option, value, needed, given in (("--k", k, "--nearest", nearest), ("--colour", colour, "--map", map_file)):
        if value is not None and given is None:
            raise ConfigError("command line", f"{option} goes with {needed} alone", f"leave it out, or give {needed}")
    others = (nearest, map_file, output, per, pooling, layer)
    if probe and others != (None, None, None, "text", "mean", "last"):
        fix = "leave out the others: it reads all layers, at the ends of sentences"
        raise ConfigError("command line", "--probe goes with --text, --file and --documents alone", fix)
    options: dict[str, Any] = {"layer": embedding.layer_named(layer), "pooling": None if per == "token" else pooling}
    texts = [*(text or ()), *(_read_prompt(None, each) or "" for each in file or ())]
    trained, _ = load_trained_run(run, checkpoint)
    if probe:
        scores = build.probe_run(trained, texts, most=documents)
        _print(scores.to_json() if as_json else scores.table())
        return
    vectors = build.embed_run(trained, texts, most=documents, **options)
    if output is not None:
        vectors.save(output)
        _note(f"wrote {output}")
    if map_file is not None:
        told = build.told_by_texts(trained, vectors.texts, colour)
        title = f"{len(vectors.texts):,} texts by their vectors (run {trained.config.name}, {pooling} of layer {layer})"
        write_map(map_file, vectors.vectors, told, title, of=colour or "plot")
        _note(f"wrote {map_file}")
    if nearest is not None:
        neighbours = embedding.nearest(build.embed_run(trained, [nearest], **options).vectors[0], vectors, k or 5)
        found = [each.to_json() for each in neighbours]
        _print({"nearest": found} if as_json else embedding.nearest_table(neighbours))
    elif as_json:
        _print({"run": trained.config.name, "step": trained.step, **vectors.to_json()})
    elif output is None and map_file is None:
        _print(vectors.table())


@app.command()
def tokenize(
    text: Annotated[str, Argument(metavar="TEXT", help="Text to cut into tokens.")],
    run: Annotated[Path | None, Option(metavar="RUN", help="Use the tokenizer of this run.")] = None,
    learn_from: Annotated[Path | None, Option(metavar="FILE", help="Learn from this text. [default: TEXT]")] = None,
    vocab_size: Annotated[int | None, Option(metavar="N", min=257, help="Tokens, at most. [default: 512]")] = None,
    as_json: Json = False,
) -> None:
    """Show the tokens of a text. Their ids, their bytes, and the merges that made them."""
    from pellucid.checkpoint.run_directory import find_step_directory
    from pellucid.config.data import BytePairConfig
    from pellucid.corpora.corpus import cut_into_pieces
    from pellucid.tokenizer import Tokenizer, pieces
    from pellucid.tokenizer.build import train_tokenizer

    if run is not None:
        if learn_from is not None or vocab_size is not None:
            what = "--run excludes --learn-from and --vocab-size"
            raise ConfigError("command line", what, "leave out --run, or the others")
        tokenizer = Tokenizer.load(find_step_directory(run, "latest") / "tokenizer.json")
    else:
        source = text if learn_from is None else _read_prompt(None, learn_from) or ""
        config = BytePairConfig(type="bpe", vocab_size=vocab_size or 512)
        tokenizer = train_tokenizer(config, (piece.text for piece in cut_into_pieces([source])), [])
    _print(pieces.to_json(tokenizer, text) if as_json else pieces.table(tokenizer, text))


@app.command()
def verify(run: Run) -> None:
    """Check every checkpoint of a run. A line each: hashes, shapes, finite numbers. Exit code 4 if any is bad."""
    from pellucid.checkpoint.build import verify as verify_checkpoint
    from pellucid.checkpoint.run_directory import find_step_directory, steps_in
    from pellucid.checkpoint.step_directory import step_name

    directories = [run / step_name(step) for step in steps_in(run)] or [find_step_directory(run, "latest")]
    n_bad = 0
    for directory in directories:
        try:
            verify_checkpoint(directory)
            print(f"{directory}: whole", flush=True)
        except CheckpointError as error:
            print(f"{directory}: {error.what}", flush=True)
            n_bad += 1
    if n_bad:
        what = f"{n_bad} of {len(directories)} checkpoints cannot be used"
        raise CheckpointError(str(run), what, "`pellucid train --resume` continues from the newest whole one")


@app.command()
def cost(
    config: ConfigFile,
    overrides: Overrides = None,
    devices: Annotated[int | None, Option(metavar="N", min=1, help="Instead: training on N GPUs, on paper.")] = None,
    per_node: Annotated[int, Option(metavar="N", min=1, help="With --devices: GPUs in a node.")] = 8,
    tflops: Annotated[float, Option(min=1e-3, help="With --devices: a GPU's peak, in TFLOP/s.")] = 989.0,
    bandwidth: Annotated[float, Option(min=1e-3, help="With --devices: GB/s that a GPU sends to other nodes.")] = 40.0,
    as_json: Json = False,
) -> None:
    """Count parameters, FLOPs and memory before anything is built. Predicts the time of the training as well."""
    from pellucid.cost.cost_table import cost_report, cost_table
    from pellucid.cost.devices_table import devices_report, devices_table, gpu, gpus
    from pellucid.cost.machine import measure_machine
    from pellucid.data.build import vocab_size_of
    from pellucid.runtime.precision import precision_here, resolve_precision
    from pellucid.training.build import cost_of_run, update_on_one_device

    run_config = _load_config(config, overrides)
    vocab_size = vocab_size_of(run_config)
    if devices is not None:
        precision = resolve_precision("cpu", "fp32" if run_config.train.precision == "fp32" else "bf16")
        machine, cluster = gpu(tflops, precision.dtype), gpus(devices, per_node, bandwidth)
        update = update_on_one_device(run_config, vocab_size, precision, machine)
        _print((devices_report if as_json else devices_table)(update, cluster, machine))
        return
    precision = precision_here(run_config.train.device, run_config.train.precision)
    counted = cost_of_run(run_config, vocab_size, precision)
    machine = measure_machine(precision.device, precision.dtype)
    _print(cost_report(counted, machine) if as_json else cost_table(counted, machine))


@app.command()
def export(
    run: Run,
    directory: Annotated[Path, Argument(metavar="DIR", help="A new folder.")],
    to: Annotated[Literal["hf", "gguf"], Option(help="hf: for transformers; gguf: for llama.cpp.")],
    precision: Annotated[Literal["fp32", "bf16", "fp16"], Option(help="Of the numbers in the files.")] = "fp32",
    checkpoint: Which = "best",
) -> None:
    """Write a trained model as others read it. A folder for Hugging Face transformers, or one with a GGUF file."""
    from pellucid.exchange.export import export_run

    _heed_stop_during_imports()
    export_run(run, directory, to=to, which=checkpoint, precision=precision)
    print(directory)


@app.command("import")
def import_(
    source: Annotated[str, Argument(metavar="DIR_OR_HUB_ID", help="Folder of transformers, or a name on the hub.")],
    run: Annotated[Path, Argument(metavar="RUN", help="The run to make of it: a new folder.")],
) -> None:
    """Make a run of a model from elsewhere. GPT-2, Llama, Qwen3 and whatever `export` writes."""
    from pellucid.exchange.imports import import_run

    _heed_stop_during_imports()
    import_run(source, run)
    print(run)


@app.command()
def merge(
    run: Run,
    out: Annotated[Path, Option(metavar="DIR", help="The run to make of it: a new folder.")],
    checkpoint: Which = "best",
) -> None:
    """Make a run that needs no other. Its adapter becomes part of the weights, and codes are numbers again."""
    from pellucid.exchange.converted import merge_run

    _heed_stop_during_imports()
    merge_run(run, out, which=checkpoint)
    print(out)


@app.command()
def quantize(
    run: Run,
    to: Annotated[Literal["int8", "nf4", "nf4-double"], Option(help="8.5, 4.5 or 4.13 bits for each weight.")],
    out: Annotated[Path, Option(metavar="DIR", help="The run to make of it: a new folder.")],
    checkpoint: Which = "best",
    as_json: Json = False,
) -> None:
    """Make a run of the same weights in fewer bits. Those of linear layers inside blocks; prints what it saves."""
    from pellucid.exchange.converted import quantize_run

    _heed_stop_during_imports()
    sizes = quantize_run(run, out, to, which=checkpoint)
    _note(f"wrote {out}")
    _print(sizes.to_json() if as_json else sizes.table())


@app.command()
def experiment(
    file: Annotated[Path, Argument(metavar="EXPERIMENT", help="YAML file, or experiments/NAME.")],
    overrides: Overrides = None,
    jobs: Annotated[int, Option(metavar="N", min=1, help="Runs at a time, which share the cores.")] = 1,
    report: Annotated[Path | None, Option(metavar="DIR", help="[default: checkpoints/experiments/NAME]")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the runs and how long they will take.")] = False,
) -> None:
    """Make many runs that differ in one or two things. Writes results.csv, figures and report.md."""
    from pellucid.experiments.plan import plan_experiment

    plan = plan_experiment(file, overrides or [])
    folder = RUNS_ROOT / "experiments" / plan.config.name
    if dry_run:
        from pellucid.experiments.forecast import forecast_table

        print(forecast_table(plan, folder, jobs))
        return
    from pellucid.experiments.run_experiment import run_experiment

    _heed_stop_during_imports()
    report_dir = report or folder
    _say_where_new(DATA_ROOT, RUNS_ROOT)
    stopped_by = run_experiment(plan, data_root=DATA_ROOT, folder=folder, report_dir=report_dir, jobs=jobs, note=_note)
    if stopped_by is not None:
        _note(f"stopped, saved; to continue: {_typed()}")
        sys.exit(128 + stopped_by)
    print(report_dir / "report.md")


@app.command(hidden=True)
def experiment_run(run_dir: Path, data_root: Path) -> None:
    """One run of an experiment, in the process that `experiment` starts for it."""
    from pellucid.experiments.worker import work

    _heed_stop_during_imports()
    stopped_by = work(run_dir, data_root)
    if stopped_by is not None:
        sys.exit(128 + stopped_by)


@app.command()
def configs() -> None:
    """List the configs that come with Pellucid. Their names are enough: `pellucid train debug`."""
    from pellucid.config.shipped import shipped_configs

    columns = shutil.get_terminal_size().columns
    for name, purpose in shipped_configs():
        print(textwrap.fill(f"{name:29} {purpose}", columns, subsequent_indent=" " * 30))


@app.command()
def schema(
    of: Annotated[Literal["run", "experiment"], Argument(metavar="[run|experiment]", help="Which file.")] = "run",
) -> None:
    """Print the JSON Schema of a config, for completion in editors."""
    from pellucid.config.experiment import ExperimentConfig
    from pellucid.config.run import RunConfig

    _print((RunConfig if of == "run" else ExperimentConfig).model_json_schema())


def _load_config(file: Path, overrides: list[str] | None) -> RunConfig:
    from pellucid.config.load import load_run_config

    _heed_stop_during_imports()
    return load_run_config(file, overrides or [])


def _say_where_new(*roots: Path) -> None:
    """Away from where it usually works, a command says where it is about to write."""
    if new := [str(root.resolve()) for root in roots if not root.exists()]:
        _note(f"writing to {' and '.join(new)}")


def _typed() -> str:
    """The command that was typed, so that it survives a paste, without what `--resume` excludes."""
    program = ["pellucid"] if shutil.which("pellucid") else [sys.executable, "-m", "pellucid"]
    return shlex.join([*program, *(each for each in sys.argv[1:] if each not in ("--resume", "--overwrite"))])


def _require_one_way_to_choose(greedy: bool, is_drawn: bool, options: str) -> None:
    if greedy and is_drawn:
        raise ConfigError("command line", f"--greedy excludes {options}", "leave out --greedy, or the others")


def _read_prompt(prompt: str | None, file: Path | None) -> str | None:
    if prompt is not None and file is not None:
        raise ConfigError("command line", "--prompt and --prompt-file exclude each other", "give one of them")
    if file is None:
        return prompt
    return _from_utf8(file.read_bytes(), str(file))


def _from_utf8(text: bytes, where: str) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(where, f"byte {error.start} is not UTF-8", "save the prompt as UTF-8") from None


def _write(text: str) -> None:
    """Text as it comes; bytes, so that no terminal setting can refuse a character."""
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


def _print(result: dict[str, Any] | str) -> None:
    """A table or a text, or what `--json` asks for: exactly one JSON object."""
    _write((result if isinstance(result, str) else json.dumps(result, indent=2)) + "\n")


def _is_first() -> bool:
    """Of the processes that torchrun starts, one speaks for all."""
    return os.environ.get("RANK", "0") == "0"


def _note(line: str) -> None:
    if _is_first():
        print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
