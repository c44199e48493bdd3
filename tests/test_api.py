"""`import pellucid`: the commands as functions, with the same results and the same errors."""

import ast
import json
import pickle
import re
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

import pellucid as library
from pellucid import failpoints
from pellucid.api import DrawingOptions
from pellucid.config.arguments import checked
from pellucid.errors import START_OVER_OR_MOVE, CheckpointError, ConfigError, DataError, Option
from pellucid.generation.sampling import Sampling

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def run(tiny_place: Path) -> library.Run:
    """A trained run that the tests only read."""
    return library.load(tiny_place / "base")


def test_import_pellucid_loads_no_torch_until_something_is_used():
    script = "import sys, pellucid\n"
    script += "heavy = {'torch', 'numpy', 'pydantic', 'yaml', 'tokenizers', 'pellucid.api'}\n"
    script += "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_all_that_the_library_promises_is_there_and_nothing_else():
    assert all(hasattr(library, name) for name in library.__all__)
    assert library.load.__module__ == "pellucid.api"
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        library.trian  # noqa: B018


def test_dir_lists_what_is_not_loaded_yet():
    assert {"load", "train", "import_model", "Run"} <= set(dir(library))


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda run: run.generate(None), "prompt: None is of the wrong type; give text"),
        (lambda run: run.generate(temperature="hot"), "temperature: 'hot' is of the wrong type; give a number"),
        (lambda run: run.generate(max_new_tokens=3.5), "max_new_tokens: 3.5 is of the wrong type; give a whole number"),
        (
            lambda run: run.generate(max_tokens=3),
            "generate: unknown argument 'max_tokens'; did you mean 'max_new_tokens'?",
        ),
        (lambda run: run.stream("a", top_k=True), "top_k: True is of the wrong type; give a whole number"),
        (lambda run: run.embed("a", pooling="max"), "pooling: 'max' is not a choice; use 'mean' or 'last'"),
        (
            lambda run: run.embed("a", layer="first"),
            "layer: 'first' is not a choice; give a whole number or use 'last'",
        ),
        (lambda run: run.export("there", to="onnx"), "to: 'onnx' is not a choice; use 'hf', 'gguf' or 'peft'"),
        (lambda run: run.evaluate(3), "text_file: 3 is of the wrong type; give text or a path"),
        (lambda run: run.heads(fabels=3), "heads: unknown argument 'fabels'; did you mean 'fables'?"),
        (lambda run: run.heads(number=3), "heads: unknown argument 'number'; the arguments are fables"),
        (lambda run: run.trace("a", patch=3), "patch: 3 is of the wrong type; give a dict"),
        (
            lambda run: run.knock_out([("head", 0, 1)], "head"),
            "places: 'head' is of the wrong type; give a list",
        ),
        (lambda run: library.load(None), "path: None is of the wrong type; give text or a path"),
        (lambda run: library.train("debug", resume="yes"), "resume: 'yes' is of the wrong type; give true or false"),
    ],
)
def test_a_wrong_argument_is_one_line_with_a_cure(run, call, line):
    with pytest.raises(ConfigError) as refused:
        call(run)
    assert str(refused.value) == line


def test_numbers_and_texts_of_other_libraries_are_taken(run):
    assert run.generate("The", max_new_tokens=np.int64(3), temperature=np.float32(0)) == run.generate(
        "The", max_new_tokens=3, temperature=0
    )
    assert run.embed(np.array(["The red fox", "The hen"])).shape == run.embed(iter(["The red fox", "The hen"])).shape


def test_messages_speak_of_arguments_not_of_options(run, tmp_path):
    with pytest.raises(
        ConfigError, match="add resume=True to continue it, overwrite=True to start over, or name=OTHER or run_dir for"
    ):
        library.train(run.directory.parents[1] / "tiny.yaml", run.directory.parent, data_dir=tmp_path)
    with pytest.raises(ConfigError, match="^attention: there is no head '9.9'"):
        run.explain("The", attention="9.9")


def test_an_error_speaks_of_options_until_it_leaves_a_function_of_the_library():
    @checked
    def export() -> None:
        raise ConfigError(Option("--to gguf", 'to="gguf"'), "{} cannot be exported", START_OVER_OR_MOVE.after("wait"))

    with pytest.raises(ConfigError) as refused:
        export.__wrapped__()
    assert (
        str(pickle.loads(pickle.dumps(refused.value)))
        == str(refused.value)
        == ("--to gguf: {} cannot be exported; wait, or start over with --overwrite or another --run-dir")
    )
    with pytest.raises(ConfigError) as refused:
        export()
    assert str(refused.value) == (
        'to="gguf": {} cannot be exported; wait, or start over with overwrite=True or another run_dir'
    )


def test_below_the_command_line_an_error_names_options_as_values():
    """But in backquotes: there a command is to be typed, also by whoever uses Python."""
    above = ("cli", "web", "course")
    for file in (ROOT / "src/pellucid").rglob("*.py"):
        if file.relative_to(ROOT / "src/pellucid").parts[0] not in above:
            for statement in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(statement, ast.Raise | ast.Assign):
                    texts = [part.value for part in ast.walk(statement) if isinstance(part, ast.Constant)]
                    options = re.findall(r"(?<![\w-])--[a-z]", re.sub("`[^`]*`", "", " ".join(map(str, texts))))
                    assert not options or "Option(" in ast.unparse(statement), (file.name, ast.unparse(statement))


def test_the_options_of_sampling_are_the_fields_of_sampling():
    assert DrawingOptions.__annotations__.keys() == {field.name for field in fields(Sampling)}


def test_a_notebook_shows_an_evaluation_and_a_trace_is_short(run):
    evaluation = run.evaluate(run.directory.parents[1] / "corpus.txt")
    assert f"{evaluation.table().splitlines()[0]}\n" in evaluation._repr_html_()
    trace = run.trace("The red fox")
    assert repr(trace) == f"Trace('The red fox': {len(trace.ids)} tokens, 2 layers, 2 heads)"


def test_training_is_the_same_as_with_the_command(workplace: Path, pellucid):
    settings = {"overrides": {"optimizer.lr": 3e-3, "evaluation": {"every_steps": 2}}}
    run = library.train("tiny.yaml", "here", steps=4, seed=1, **settings)
    command = ["train", "tiny.yaml", "train.steps=4", "seed=1", "optimizer.lr=3e-3", "evaluation={every_steps: 2}"]
    assert pellucid(*command, "--run-dir", "there").exit_code == 0
    assert run.step == 4
    assert (run.config.train.steps, run.config.seed, run.config.optimizer.lr) == (4, 1, 3e-3)
    weights = "step-00000004/model.safetensors"
    assert (workplace / "here" / weights).read_bytes() == (workplace / "there" / weights).read_bytes()
    rows = [json.loads(line) for line in (workplace / "here/metrics.jsonl").read_text().splitlines()]
    assert run.metrics == rows
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    with pytest.raises(ConfigError, match="there is a run in this folder"):
        library.train("tiny.yaml", "here", steps=4)
    assert library.train("tiny.yaml", "here", overrides=["train.steps=2"], overwrite=True).step == 2


def test_ctrl_c_saves_the_run_which_then_goes_on(workplace: Path, monkeypatch: pytest.MonkeyPatch):
    def press_ctrl_c(name: str) -> None:
        if name == "update":
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as keyboard:
        keyboard.setattr(failpoints, "reached", press_ctrl_c)
        with pytest.raises(KeyboardInterrupt, match="stopped after step 1, saved; continue with resume=True"):
            library.train("tiny.yaml", steps=3)
    assert signal.getsignal(signal.SIGINT) is before
    assert library.train("tiny.yaml", steps=3, resume=True).directory == Path("checkpoints/tiny/step-00000003")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stepz": 3}, "pellucid.train: unknown setting stepz=3; "),
        ({"steps": 0}, "pellucid.train: train.steps: 0 is out of range; "),
        ({"overrides": {"optimizer.lrr": 1}}, "overrides: optimizer.lrr: unknown key; did you mean 'lr'?"),
        ({"overrides": {"": 1}}, "overrides: '': a part of this key is empty; "),
        ({"overrides": ["steps"]}, "'steps' is not key=value"),
    ],
)
def test_a_wrong_setting_is_one_clear_error(workplace: Path, settings, message: str):
    with pytest.raises(ConfigError, match=re.escape(message)):
        library.train("tiny.yaml", **settings)
    assert not (workplace / "checkpoints").exists()


def test_a_run_is_loaded_by_checkpoint_and_from_a_step_directory_alone(run: library.Run, tmp_path: Path):
    assert library.load(run.directory.parent, checkpoint=15).step == 15
    assert library.load(run.directory.parent, "latest").step == 20
    copied = tmp_path / run.directory.name
    copied.symlink_to(run.directory)
    alone = library.load(copied)
    assert alone.generate("The", seed=0) == run.generate("The", seed=0)
    assert alone.metrics == []
    assert "not measured" in alone._repr_html_()
    with pytest.raises(CheckpointError, match="no such run"):
        library.load(tmp_path / "absent")


def test_generated_text_is_that_of_the_command(run: library.Run, pellucid):
    completion = run.generate("The crow", seed=3, max_new_tokens=20)
    written = pellucid("generate", run.directory, "--prompt", "The crow", "--seed", "3", "--max-new-tokens", "20")
    assert written.stdout == "The crow" + completion + "\n"
    pieces = list(run.stream("The crow", seed=3, max_new_tokens=20))
    assert "".join(pieces) == completion
    assert len(pieces) > 3
    assert run.generate("The", temperature=0) == run.generate("The", top_k=1)


def test_beams_and_stop_strings_are_those_of_the_command(run: library.Run, pellucid):
    found = run.generate("The", beams=3, length_penalty=0.6, stop="hen", max_new_tokens=20)
    options = ("--beams", "3", "--length-penalty", "0.6", "--stop", "hen", "--max-new-tokens", "20")
    assert pellucid("generate", run.directory, "--prompt", "The", *options).stdout == f"The{found}\n"
    free = run.generate("The", seed=3, min_p=0.01, repetition_penalty=1.1)
    assert (
        run.generate("The", seed=3, min_p=0.01, repetition_penalty=1.1, stop=free[5:8]) == free[: free.index(free[5:8])]
    )


def test_generating_leaves_the_mode_and_the_global_random_numbers_alone(run: library.Run):
    run.model.train()
    before = torch.get_rng_state()
    run.generate("The", max_new_tokens=3)
    pieces = run.stream("The crow", seed=3, max_new_tokens=20)  # without a seed it may end at once
    next(pieces)
    pieces.close()
    assert run.model.training
    assert torch.equal(torch.get_rng_state(), before)
    run.model.eval()


def test_bad_requests_are_one_clear_error(run: library.Run):
    with pytest.raises(ConfigError, match="top_k: 0 keeps no token"):
        run.generate("The", top_k=0)
    with pytest.raises(ConfigError, match="beams: they exclude seed"):
        run.generate("The", beams=2, seed=1)
    with pytest.raises(DataError, match="surrogate"):
        run.generate("\udcff")


def test_a_trace_reads_the_text_from_the_start_of_a_document(run: library.Run):
    traced = run.trace("The red fox")
    assert traced.ids == [run.tokenizer.end_of_text, *run.tokenizer.encode("The red fox")]
    assert traced.texts[0] == "<|endoftext|>"
    assert "".join(traced.texts[1:]) == "The red fox"
    logits_TV = run.model(torch.tensor([traced.ids]))[0]
    torch.testing.assert_close(traced.logits[-1], logits_TV)


def test_an_evaluation_and_an_explanation_are_those_of_the_commands(tiny_place: Path, run, pellucid, monkeypatch):
    monkeypatch.chdir(tiny_place)  # where its prepared data is
    evaluated = json.loads(pellucid("evaluate", "base", "--json").stdout)
    assert {"step": run.step, **run.evaluate().to_json()} == evaluated
    evaluated = json.loads(pellucid("evaluate", "base", "--text", "corpus.txt", "--json").stdout)
    assert {"step": run.step, **run.evaluate("corpus.txt").to_json()} == evaluated
    explained = json.loads(pellucid("explain", "base", "--prompt", "The", "--json").stdout)
    assert {"run": "tiny", "step": run.step, **run.explain("The").to_json()} == explained
    held_out = run.explain(number=2, attention="all")
    assert held_out.source == "held-out document 2"
    assert held_out.attention.texts[0] == "<|endoftext|>"
    assert "held-out document 2" in held_out._repr_html_()


def test_vectors_are_those_of_the_command(run: library.Run, pellucid):
    texts = ["The red fox", "The crow said"]
    command = ["embed", run.directory, "--text", texts[0], "--text", texts[1], "--layer", "1", "--json"]
    printed = [row["vector"] for row in json.loads(pellucid(*command).stdout)["vectors"]]
    vectors = run.embed(texts, layer=1)
    torch.testing.assert_close(torch.tensor(printed), torch.from_numpy(vectors))
    assert run.embed(texts[1], layer=1).tolist() == pytest.approx(vectors[1].tolist(), abs=1e-6)
    tokens = run.embed(texts[0], layer=1, pooling=None)
    assert tokens.shape == (len(run.tokenizer.encode(texts[0])), run.config.model.d_model)
    assert run.embed(texts[0], layer=1, pooling="last").tolist() == pytest.approx(tokens[-1].tolist(), abs=1e-6)


def test_a_text_that_is_too_long_to_trace_is_refused_in_one_line(run: library.Run):
    with pytest.raises(DataError, match="trace: 80 tokens are more than the .* can read; give a shorter text"):
        run.trace("é" * 40)


def test_a_run_shows_itself_in_a_line_and_in_a_notebook(run: library.Run):
    n = sum(parameter.numel() for parameter in run.model.parameters())
    assert repr(run) == f"<Run {run.config.name}: step {run.step}, {n:,} parameters, corpus text, in {run.directory}>"
    shown = run._repr_html_()
    assert "tiny, step 20" in shown
    assert shown.startswith('<div style="')  # a notebook knows no stylesheet of ours
    assert 'src="data:image/png;base64,' in shown


def test_the_code_of_the_api_page_runs(workplace: Path, capsys: pytest.CaptureFixture[str]):
    assert not (workplace / "configs").exists(), "the shipped configs are found by their names"
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    namespace: dict[str, object] = {}
    for code in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        exec(compile(code, "docs/api.md", "exec"), namespace)
    out = capsys.readouterr().out
    assert namespace["text"] in out, "the streamed pieces are the generated text"
    assert "unknown setting stepz=20" in out
    assert len(namespace["losses"]) > 1
