"""The command line: its contract of names, outputs and exit codes, and one clear line for every bad input."""

import gc
import inspect
import io
import json
import math
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from pellucid import __version__
from pellucid.__main__ import main as entry_point
from pellucid.cli import COMMANDS, HIDDEN, _report, _stop, app_for, main
from pellucid.cli.arguments import read_run
from pellucid.cli.terminal import Stopped, heavy_imports
from pellucid.config.load import parse_run_config
from pellucid.config.run import RunConfig
from pellucid.runs import train_run
from tiny_run import TINY_RUN, Result, assert_one_error_line


@pytest.fixture
def trained_run(tiny_place: Path) -> Path:
    return tiny_place / "base"


@pytest.fixture(scope="module")
def fables_run(tmp_path_factory) -> Path:
    """A run of five steps on a few fables: it knows nothing, but the truth about it is known."""
    place = tmp_path_factory.mktemp("fables")
    text_corpus = next(line for line in TINY_RUN.splitlines() if line.startswith("corpus:"))
    fables = "corpus: {type: fables, size: 30, world_size: 3, validation_fraction: 0.2}"
    yaml = TINY_RUN.replace(text_corpus, fables).replace("context_length: 32", "context_length: 640")
    config = parse_run_config(yaml.replace("steps: 20", "steps: 5"), "fables.yaml")
    train_run.train_run(config, place / "data", place / "run", resume=False, overwrite=False, note=lambda line: None)
    return place / "run"


def test_the_main_job_from_a_yaml_file_to_text(workplace: Path, pellucid):
    prepared = pellucid("prepare", "tiny.yaml")
    assert prepared.exit_code == 0
    assert (workplace / prepared.stdout.strip() / "manifest.json").exists()
    trained = pellucid("train", "tiny.yaml", "train.steps=5", "evaluation.every_steps=5")
    assert trained.exit_code == 0, trained.stderr
    assert trained.stdout.startswith("validation: loss ")
    assert "\nscale   on the validation text, a counter of 2-grams reaches " in trained.stderr
    assert " bits/byte (a counter of 2-grams " in trained.stdout
    assert (workplace / "checkpoints/tiny/step-00000005/model.safetensors").exists()
    state = json.loads((workplace / "checkpoints/tiny/step-00000005/state.json").read_text())
    assert state["pellucid_version"] == __version__
    text = pellucid("generate", "checkpoints/tiny", "--prompt", "The red", "--max-new-tokens", "5", "--seed", "1")
    assert text.exit_code == 0
    assert text.stdout.startswith("The red")
    evaluated = pellucid("evaluate", "checkpoints/tiny", "--json")
    figures = json.loads(evaluated.stdout)
    assert f"{figures['loss_nats_per_token']:.4f}" in trained.stdout


def test_help_configs_schemas_and_faults_of_usage_and_config_need_no_torch():
    """In one process, in an order in which each finds loaded what it may load itself: little for `--help`."""
    answered = [
        ["--help"],
        ["--version"],
        *([name, "--help"] for name in COMMANDS if name not in HIDDEN),
    ]
    answered += [["configs"], ["schema"], ["schema", "experiment"]]
    faults = [
        "generate",
        "generate run --nope",
        "generate run --beams 2 --greedy",
        "chat run --json",
        "embed run --k 2",
    ]
    faults += ["evaluate run --on a --text b", "explain run --prompt a --fable 1", "experiment no.yaml"]
    faults += [f"{name} {config}" for name in ("prepare", "train", "cost") for config in ("no.yaml", "debug seed=a")]
    script = f"""import sys
from pellucid.cli import main
for line in {[*answered, *map(str.split, faults)]}:
    sys.argv = ["pellucid", *line]
    try:
        main()
    except SystemExit as end:
        assert (end.code or 0) == (0 if line in {answered} else 2), line
    heavy = {{"torch", "numpy", "tokenizers", *(["pydantic", "yaml"] if line[0].startswith("--") else [])}}
    assert not heavy & set(sys.modules), line"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("error: ") == len(faults)


def test_generate_loads_nothing_that_only_other_commands_need(trained_run: Path):
    slow = {"datasets", "fastapi", "matplotlib", "scipy", "torch._dynamo", "transformers"}
    slow |= {"pellucid.cli.training", "pellucid.cli.serving"}
    script = f"""import gc, sys
sys.argv = ["pellucid", "generate", {str(trained_run)!r}, "--max-new-tokens", "2"]
from pellucid.cli import main
try:
    main()
finally:
    assert not {slow} & set(sys.modules), {slow} & set(sys.modules)
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(gc.get_objects())"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("fault", [None, ImportError])
def test_garbage_is_collected_again_after_the_imports(monkeypatch, fault):
    frozen = []
    monkeypatch.setattr("gc.freeze", lambda: frozen.append(gc.isenabled()))
    with pytest.raises(fault) if fault else nullcontext(), heavy_imports():
        assert not gc.isenabled()
        if fault:
            raise fault
    assert gc.isenabled()
    assert frozen == [], "PyTorch was here before: what it left is in older generations"
    monkeypatch.delitem(sys.modules, "torch")
    with heavy_imports():
        pass
    assert frozen == [False]


def test_whoever_waits_at_a_terminal_for_pytorch_is_told_so(monkeypatch):
    calls = []

    class Clock(SimpleNamespace):
        """A timer that says at once what the real one says after a second."""

        start, cancel = lambda self: calls.append((self.seconds, self.line)), lambda self: calls.append("cancelled")

    monkeypatch.setattr("pellucid.cli.terminal.Timer", lambda seconds, _, line: Clock(seconds=seconds, line=line))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with heavy_imports():
        pass
    assert calls == ["cancelled"], "PyTorch was here before"
    monkeypatch.delitem(sys.modules, "torch")
    with heavy_imports():
        assert calls[1:] == [(1, ["loading PyTorch …"])]


def test_a_stop_that_pytorch_swallowed_ends_the_imports(monkeypatch):
    monkeypatch.setattr(Stopped, "asked_for", None)
    with pytest.raises(Stopped) as stopped, heavy_imports(), suppress(BaseException):
        _stop(signal.SIGTERM, None)
    assert stopped.value.code == 143


def test_a_stop_while_the_command_line_is_imported_ends_in_one_word(monkeypatch, capsys):
    class StoppedImport:
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "pellucid.cli", StoppedImport())
    with pytest.raises(SystemExit) as stopped:
        entry_point()
    assert (stopped.value.code, capsys.readouterr().err) == (130, "stopped\n")


def test_help_tells_what_each_command_does_and_cuts_no_sentence(pellucid):
    summaries = pellucid("--help").stdout.partition("Commands:")[2].partition("Exit codes")[0]
    assert all(f"\n  {name} " in summaries for name in COMMANDS if name not in HIDDEN)
    assert "..." not in summaries


def test_the_bare_command_shows_the_help_and_is_a_fault_of_usage(pellucid):
    help_text = pellucid("--help").stdout
    assert pellucid() == Result(2, help_text, "")


def test_help_is_as_wide_as_the_terminal_and_shows_brackets_once(pellucid, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    lines = pellucid("train", "--help").stdout.splitlines()
    assert 80 < max(map(len, lines)) <= 110
    assert lines[0].endswith(" [KEY=VALUE]...")


def test_the_version_the_schema_and_the_shipped_configs_are_printed(pellucid):
    assert pellucid("--version") == Result(0, f"pellucid {__version__}\n", "")
    assert json.loads(pellucid("schema").stdout) == RunConfig.model_json_schema()
    listed = pellucid("configs").stdout
    assert listed.startswith("debug  ")
    assert "\nexperiments/positions  " in listed


def test_the_command_that_goes_on_survives_a_paste(workplace: Path, pellucid, monkeypatch):
    """The printed line, read by a shell's rules, continues the run that was stopped."""
    typed = ["train", "tiny.yaml", "corpus={type: text, files: ['*.txt']}", "--run-dir", "a run", "--overwrite"]
    stopped = train_run.Outcome(5, None, signal.SIGINT)
    monkeypatch.setattr(train_run, "train_run", lambda *_, **__: stopped)
    result = pellucid(*typed)
    assert result.exit_code == 128 + signal.SIGINT
    pasted = shlex.split(result.stderr.splitlines()[-1].partition("to continue: ")[2])
    assert pasted[pasted.index("train") :] == [*typed[:-1], "--resume"]


def test_demo_is_a_run_wherever_a_run_is_named():
    takes_a_run = set()
    for command in [command for command in app_for().registered_commands if not command.hidden]:
        for name, parameter in inspect.signature(command.callback, eval_str=True).parameters.items():
            [option] = parameter.annotation.__metadata__
            metavar = option.metavar or ""
            is_new = (command.name, name) == ("import", "run")
            if metavar.startswith("RUN") and metavar != "RUN|CONFIG" and not is_new:
                assert option.parser is read_run, (command.callback, name)
                takes_a_run.add(command.callback.__name__)
    assert {"generate", "serve", "tokenize", "verify"} <= takes_a_run


def test_generate_prints_one_json_object_with_the_documented_keys(trained_run: Path, pellucid):
    result = pellucid(
        "generate", trained_run, "--prompt", "The", "--num-samples", "2", "--max-new-tokens", "4", "--json"
    )
    samples = json.loads(result.stdout)["samples"]
    assert len(samples) == 2
    for sample in samples:
        assert set(sample) == {"prompt", "completion", "tokens", "tokens_per_second", "finish_reason"}
        assert sample["prompt"] == "The"
        assert sample["finish_reason"] in ("end_of_text", "length")


def test_a_text_that_was_drawn_without_a_seed_can_be_had_again(trained_run: Path, pellucid):
    drawn = pellucid("generate", trained_run)
    seed = re.fullmatch(r"seed (\d+): --seed \1 writes the same again\n", drawn.stderr)[1]
    assert pellucid("generate", trained_run, "--seed", seed) == Result(0, drawn.stdout, "")
    assert pellucid("generate", trained_run, "--greedy").stderr == ""
    assert pellucid("generate", "absent").stderr.startswith("error: ")


def test_a_prompt_may_come_from_a_pipe(trained_run: Path, pellucid, monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO("The fox – ".encode())))
    result = pellucid("generate", trained_run, "--prompt-file", "-", "--max-new-tokens", "1")
    assert result.stdout.startswith("The fox – "), result


def test_a_pipe_without_an_end_is_refused(trained_run: Path, pellucid, monkeypatch):
    monkeypatch.setattr("pellucid.cli.arguments.MAX_PROMPT_BYTES", 8)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"a" * 20)))
    result = pellucid("generate", trained_run, "--prompt-file", "-")
    assert_one_error_line(result, 2, "stdin: more than 8 bytes; give a shorter text")
    assert sys.stdin.buffer.tell() <= 9


@pytest.mark.parametrize(
    ("command", "exit_code", "fragments"),
    [
        ("train", 2, ["pellucid train"]),
        ("train tiny.yaml --resume --overwrite", 2, ["exclude each other"]),
        ("train tiny.yaml --run-dir corpus.txt", 5, ["corpus.txt", "--run-dir"]),
        ("train tiny.yaml corpus.files=[empty.txt]", 3, ["empty.txt"]),
        ("train tiny.yaml data.packing=contiguous model.context_length=100000", 3, ["context_length", "100000"]),
        ("train tiny.yaml train.processes=10_000", 2, ["train.processes: 10000 processes are too many"]),
        (
            "train tiny.yaml --minutes soon",
            2,
            ["pellucid train: Invalid value for '--minutes': 'soon' is not a number"],
        ),
        ("train tiny.yaml --minutes 0", 2, ["'--minutes': '0' is not at least 0.01"]),
        ("train here", 2, ["here: this is the folder of a run", "`pellucid train here/config.yaml --run-dir here"]),
        ("train .", 2, [".: this is a folder, not a config; name a YAML file"]),
        ("cost absent", 2, ["absent: no such file", "`pellucid configs`", "tiny.yaml"]),
        ("fly", 2, ["fly", "pellucid --help"]),
        ("explain absent --text Once", 2, ["--text", "a text goes after --prompt, quoted; see"]),
        ("embed absent --prompt Once", 2, ["--prompt", "a text goes after --text, quoted; see"]),
        ("evaluate absent --prompt Once", 2, ["a text is given as a file, after --text; see"]),
        ("generate absent --prompt", 2, ["pellucid generate: Option '--prompt' requires an argument"]),
        ("generate absent Once", 2, ["unexpected extra argument", "a text goes after --prompt"]),
        ("generate absent --top-k 1.5", 2, ["Invalid value for '--top-k': '1.5' is not a whole number"]),
        ("generate absent --greedy --top-k 3", 2, ["--greedy excludes --temperature, --top-k, --top-p and --min-p"]),
        ("generate absent --length-penalty 0.6", 2, ["--length-penalty needs --beams"]),
        ("generate absent --beams 4 --min-p 0.1", 2, ["--beams excludes --greedy, --temperature"]),
        ("generate absent --beams 4 --repetition-penalty 1.2", 2, ["--beams excludes"]),
        ("generate absent --prompt a --prompt-file b", 2, ["exclude each other"]),
        ("generate absent --prompt-file absent.txt", 5, ["absent.txt: No such file or directory; check the path"]),
        ("generate absent --prompt-file .", 5, [".: Is a directory; name a file, not a folder"]),
        ("generate absent", 4, ["absent: no such run"]),
    ],
)
def test_bad_input_ends_in_one_clear_line_and_its_exit_code(workplace, pellucid, command, exit_code, fragments):
    (workplace / "empty.txt").write_text("")
    (workplace / "here").mkdir()
    shutil.copy("tiny.yaml", "here/config.yaml")
    result = pellucid(*command.split())
    assert_one_error_line(result, exit_code, *fragments)
    assert result.stdout == ""


def test_what_generation_and_a_run_refuse_is_refused_in_one_line_too(trained_run: Path, pellucid):
    for options, exit_code, fragment in [
        (["--top-p", "1.1"], 2, "top_p"),
        (["--stop", ""], 2, "stop: an empty string"),
        (["--beams", "4", "--num-samples", "5"], 2, "n_samples: 5 texts are more than 4 beams find"),
        (["--checkpoint", "7"], 4, "best, latest or a step: 5, 10, 15, 20"),
        (["--prompt", "lone \udcff surrogate"], 3, "surrogate"),
    ]:
        result = pellucid("generate", trained_run, *options)
        assert_one_error_line(result, exit_code, fragment)
        assert result.stdout == ""


def damage(step_directory: Path):
    (step_directory / "state.json").write_text("{}")


def test_verify_says_what_can_still_be_done_with_what_is_whole(trained_run: Path, pellucid, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(
        trained_run, run, ignore=lambda _, names: [n for n in names if n in ("step-00000005", "step-00000010")]
    )
    damage(run / "step-00000020")
    assert_one_error_line(pellucid("verify", run), 4, "1 of 2 ", "`pellucid train --resume` continues from the newest")
    assert_one_error_line(pellucid("verify", run / "step-00000020"), 4, f"`pellucid verify {run}` shows the others")
    shutil.copytree(run / "step-00000015", run / "snapshots/step-00000015")
    damage(run / "step-00000015")
    snapshot = run / "snapshots/step-00000015"
    assert_one_error_line(pellucid("verify", run), 4, "2 of 3 ", f"use {snapshot}, an intact snapshot")
    assert pellucid("generate", snapshot, "--max-new-tokens", "1").exit_code == 0
    damage(snapshot)
    assert_one_error_line(pellucid("verify", run), 4, "3 of 3 ", "train again with --overwrite")


def test_a_run_whose_last_step_is_not_its_best_shows_both(workplace: Path, pellucid, monkeypatch):
    outcome = train_run.Outcome(40, "loss 3", None, 20, "loss 2")
    monkeypatch.setattr(train_run, "train_run", lambda *_, **__: outcome)
    assert pellucid("train", "tiny.yaml").stdout.splitlines() == [
        "validation: loss 2   step 20, the best: `generate` takes it",
        "validation: loss 3   step 40, the last",
    ]


def test_an_existing_run_is_neither_lost_nor_mixed_by_a_forgotten_option(workplace: Path, pellucid):
    short = ["train", "tiny.yaml", "train.steps=2"]
    begun = pellucid(*short)
    assert begun.stderr.startswith(f"writing to {workplace / 'data'} and {workplace / 'checkpoints'}\n")
    before = (workplace / "checkpoints/tiny/metrics.jsonl").read_bytes()
    assert_one_error_line(pellucid(*short), 2, "there is a run in this folder", "--resume", "--overwrite")
    assert (workplace / "checkpoints/tiny/metrics.jsonl").read_bytes() == before
    again = pellucid(*short, "optimizer.lr=1", "--overwrite")
    assert (again.exit_code, "writing to" in again.stderr) == (0, False)


def test_weights_are_not_evaluated_on_the_tokens_of_another_text(workplace: Path, pellucid):
    assert pellucid("train", "tiny.yaml", "train.steps=5").exit_code == 0
    text = (workplace / "corpus.txt").read_text()
    before = pellucid("evaluate", "checkpoints/tiny")
    for other in (text.replace("crow", "owl"), text + "\n\nThe end.", None):
        (workplace / "corpus.txt").write_text(other) if other else (workplace / "corpus.txt").unlink()
        evaluated = pellucid("evaluate", "checkpoints/tiny")
        assert (evaluated.exit_code, evaluated.stdout) == (0, before.stdout)
        assert "warning: the corpus has changed since training; the tokens of then are used" in evaluated.stderr
    assert "preparing" not in before.stderr
    assert re.search(r"^counter .* 2 tokens in a row\nxz .*\ntraining text .* bits/byte$", before.stdout, re.MULTILINE)
    shutil.rmtree("data")
    (workplace / "corpus.txt").write_text(text.replace("crow", "owl"))
    refused = pellucid("evaluate", "checkpoints/tiny")
    assert_one_error_line(refused, 4, "checkpoints/tiny: its corpus has changed", "bring the text back")
    assert refused.stdout == ""
    (workplace / "corpus.txt").write_text(text)
    made_again = pellucid("evaluate", "checkpoints/tiny")
    assert made_again.stdout == before.stdout
    assert "preparing the text that this run was trained on, once" in made_again.stderr


def test_any_text_can_be_scored(workplace: Path, trained_run: Path, pellucid):
    """By the run's weights and tokenizer alone: there is no `data` here."""
    (workplace / "like.txt").write_text("The red fox said: I found the cheese.\n\nThe grey hen said: I lost the key.")
    (workplace / "unlike.txt").write_text("zyxw vuts 98 76 ßþæ " * 4)
    like, unlike = (
        json.loads(pellucid("evaluate", trained_run, "--text", file, "--json").stdout)
        for file in ("like.txt", "unlike.txt")
    )
    assert like["bytes"] == (workplace / "like.txt").stat().st_size
    assert like["bits_per_byte"] == pytest.approx(
        like["loss_nats_per_token"] / math.log(2) * like["tokens"] / like["bytes"], rel=1e-6
    )
    assert like["bits_per_byte"] < unlike["bits_per_byte"]
    assert like["floor_nats_per_token"] is None
    (workplace / "deeper").mkdir()
    (workplace / "unlike.txt").rename("deeper/unlike.txt")
    both = json.loads(pellucid("evaluate", trained_run, "--text", "**/*like.txt", "--json").stdout)
    assert both["bytes"] == like["bytes"] + unlike["bytes"]
    assert both["tokens"] == like["tokens"] + unlike["tokens"], "each is a document"
    (workplace / "empty.txt").write_text(" ")
    refused = pellucid("evaluate", trained_run, "--text", "empty.txt")
    assert_one_error_line(refused, 3, "empty.txt: holds no text")


def test_debug_shows_the_traceback(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["pellucid", "schema", "absent", "--debug"])
    with pytest.raises(Exception, match="'absent' is not one of"):
        main()


def test_cost_is_shown_as_a_table(workplace: Path, pellucid):
    lines = pellucid("cost", "tiny.yaml").stdout.splitlines()
    assert {"parameters", "memory in MB"} <= {*lines}
    assert any(line.startswith("all 20 steps") for line in lines)


def test_explain_shows_a_held_out_fable_or_a_prompt_beside_the_truth(fables_run: Path, pellucid):
    table = pellucid("explain", fables_run)
    assert table.exit_code == 0, table.stderr
    assert "held-out fable 1" in table.stdout
    assert "hardest skill: " in table.stdout
    explained = json.loads(pellucid("explain", fables_run, "--json").stdout)
    total, tokens = explained["total"], explained["tokens"]
    assert len(tokens) == total["tokens"] > 50
    assert total["floor_nats"] == pytest.approx(sum(token["truth_nats"] for token in tokens))
    assert explained["next"]["candidates"][0]["truth"] == 1, "after the text only its end can come"
    assert explained["attention"] is None
    begun = " ".join(explained["text"].split(" ")[:5])
    possible = json.loads(pellucid("explain", fables_run, "--prompt", begun, "--top", "3", "--json").stdout)
    assert (possible["text"], possible["notes"]) == (begun, [])
    impossible = pellucid("explain", fables_run, "--prompt", begun + " Zork")
    assert impossible.exit_code == 0
    assert "the grammar cannot write this" in impossible.stdout


def test_explain_writes_the_microscope_of_the_text(fables_run: Path, pellucid, tmp_path: Path, monkeypatch):
    exported = []
    monkeypatch.setattr("pellucid.cli.serving.export_runs", lambda *given: exported.append(given))
    options = ("--html", tmp_path / "fable.html", "--checkpoint", "5")
    shown = json.loads(pellucid("explain", fables_run, "--fable", "2", "--json", *options).stdout)
    assert pellucid("explain", fables_run, "--prompt", "Once", *options).stdout == ""
    step, file = fables_run / "step-00000005", tmp_path / "fable.html"
    assert exported == [([step], file, shown["text"]), ([step], file, "Once")]


def test_explain_shows_where_the_heads_look(fables_run: Path, pellucid):
    look = ("explain", fables_run, "--prompt", "The red fox", "--attention")
    table = pellucid(*look, "all")
    assert table.exit_code == 0, table.stderr
    assert "attention: where each head looks" in table.stdout
    assert "attention of layer 1, head 0" in pellucid(*look, "1.0").stdout
    maps = json.loads(pellucid(*look, "0.1", "--json").stdout)["attention"]
    assert [(head["layer"], head["head"]) for head in maps["heads"]] == [(0, 1)]
    assert "".join(maps["tokens"][1:]).replace("␣", " ") == "The red fox"


def test_embed_gives_a_vector_for_each_text_or_token(fables_run: Path, pellucid, tmp_path: Path):
    held_out = json.loads(pellucid("embed", fables_run, "--json").stdout)
    assert [row["number"] for row in held_out["vectors"]] == list(range(6))
    assert (held_out["layer"], held_out["pooling"]) == ("last", "mean")
    assert {len(row["vector"]) for row in held_out["vectors"]} == {16}
    (tmp_path / "text.txt").write_text("A crow")
    texts = ("embed", fables_run, "--text", "The red fox", "--file", tmp_path / "text.txt")
    assert "2 vectors of 16 numbers, one for each text" in pellucid(*texts, "--layer", "1").stdout
    tokens = json.loads(pellucid(*texts, "--per", "token", "--layer", "0", "--json").stdout)["vectors"]
    assert "".join(row["token"] for row in tokens if row["number"] == 0) == "The␣red␣fox"
    written = pellucid(*texts, "--output", tmp_path / "vectors.npz")
    assert (written.exit_code, written.stdout) == (0, "")
    assert f"wrote {tmp_path / 'vectors.npz'}" in written.stderr


def test_nearest_finds_the_most_similar_documents(fables_run: Path, pellucid):
    texts = [row["text"] for row in json.loads(pellucid("embed", fables_run, "--json").stdout)["vectors"]]
    nearest = ("nearest", fables_run, texts[3], "--k", "2")
    first, _ = json.loads(pellucid(*nearest, "--json").stdout)["nearest"]
    assert [first["number"], first["text"]] == [4, texts[3]]
    assert first["similarity"] == pytest.approx(1)
    assert pellucid(*nearest).stdout.splitlines()[1].split()[:2] == ["1.000", "4"]


def test_map_draws_documents_and_texts_of_ones_own(fables_run: Path, trained_run: Path, pellucid, tmp_path: Path):
    own = ["--text", "My own text", "--text", "Another", "--text", "A third"]  # no grammar knows what these tell
    for run, options in [(fables_run, ["--colour", "animal"]), (fables_run, own), (trained_run, [])]:
        drawn = pellucid("map", run, tmp_path / "map.png", *options)
        assert (drawn.exit_code, drawn.stdout) == (0, "")
        assert (tmp_path / "map.png").stat().st_size > 0
    for run, options, exit_code, fragments in [
        (fables_run, ["--colour", "mood"], 2, ["there is no property 'mood'", "animal, pronoun, trait, other, plot"]),
        (fables_run, ["--colour", "plot", *own], 3, ["is not the beginning of a fable"]),
        (trained_run, ["--colour", "plot"], 2, ["--colour: only of Fables is it known what a text tells"]),
    ]:
        assert_one_error_line(pellucid("map", run, tmp_path / "map.png", *options), exit_code, *fragments)
    assert_one_error_line(pellucid("map", trained_run, tmp_path / "absent" / "map.png"), 5, "absent")


def test_a_probe_needs_fables_and_enough_of_them(fables_run: Path, trained_run: Path, pellucid):
    what = "probe: only of Fables is it known what a text tells"
    assert_one_error_line(pellucid("probe", trained_run), 2, what)
    assert_one_error_line(pellucid("probe", fables_run), 3, "6 fables are too few")


def test_a_package_that_is_missing_is_told_in_one_line(capsys):
    assert _report(ModuleNotFoundError("No module named 'fastapi'", name="fastapi")) == 2
    assert capsys.readouterr().err == (
        "error: fastapi: this package is missing; install Pellucid again, with all that it needs\n"
    )
    with pytest.raises(ModuleNotFoundError):
        _report(ModuleNotFoundError("No module named 'pellucid.slip'", name="pellucid.slip"))


def test_an_error_says_the_same_however_pellucid_was_started():
    command = [sys.executable, "-m", "pellucid", "train", "--stepz", "3"]
    error = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False).stderr
    assert error.startswith("error: pellucid train: ")
    assert "no dashes: train.steps=100; see `pellucid train --help`" in error
