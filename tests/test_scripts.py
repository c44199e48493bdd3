"""Every script runs in its smallest form: what it imports is there, and what it calls takes what it is given."""

import importlib
import re
import shutil
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from scripts.results import ROOT
from scripts.roofline import Roof
from torch.multiprocessing import start_processes

import in_this_process
import processes
from pellucid.corpora.instructions import judge
from pellucid.cost.machine import Machine
from tiny_run import VERSES

SCRIPTS = {file.stem for file in (ROOT / "scripts").glob("*.py")}
LIMITED = {"GFLOP": 50.0, "MB": 40.0, "Pellucid (ms)": 90.0, "transformers (MB)": 40.0, "transformers (ms)": 200.0}
LIMITS = {
    "peak": {"figures": {"bfloat16": {"GFLOP per second": 900.0}, "float32": {"GFLOP per second": 200.0}}},
    "bandwidth": {"figures": {"reading memory": {"GB per second": 25.0}}},
    "training limits": {"figures": {"bf16": LIMITED, "fp32": LIMITED}},
    "decoding limits": {"figures": {"1 sequence": LIMITED, "6L d256, 8 sequences": LIMITED}},
}
# The arguments of each, and what is made smaller in it.
SMALLEST: dict[str, tuple[str, dict[str, object]]] = {
    "ablate_kernels": ("--pairs 1", {"UPDATES_A_TURN": 1, "TOKENS_A_TURN": 2}),
    "ablate_speedrun": ("text.txt --seeds 1", {"FEWEST_STEPS": 2, "MOST_STEPS": 2, "TARGET": 100}),
    "benchmark": ("--pairs 1", {}),
    "check_devices": ("--updates 4", {"PROCESSES": (1,), "WARM_UP_UPDATES": 1, "ALL_REDUCES": 1}),
    "check_step_time": ("--turns 1", {"UPDATES_A_TURN": 1, "VARIANTS": {"the demo": [], "narrow: d 32": []}}),
    "draw_equations": ("drawn", {}),
    "draw_parallel": ("drawn", {}),
    "draw_roofline": ("roofline.png", {"read": lambda: LIMITS}),
    "judge_fables": ("checkpoints/fables --num-samples 2", {}),
    "many_devices": ("fables --devices 8", {}),
    "measure_adapters": ("--demo checkpoints/fables", {}),
    "measure_chat": ("checkpoints/fables --seeds 1", {"N_ANSWERS": 16}),
    "measure_commands": ("", {}),
    "measure_context": ("context.png --turns 1", {"LENGTHS": [10, 20], "TOKENS_A_TURN": 1}),
    "measure_demo": ("--seeds 2", {}),
    "measure_gpt2": ("", {"WARM_UP_UPDATES": 0, "UPDATES": 1, "VOCAB_SIZE": 50}),
    "measure_heads": ("checkpoints/fables --fables 2", {}),
    "measure_neighbours": ("--turns 1", {"WARM_UP_UPDATES": 1}),
    "measure_own_text": ("", {"topics": {"a": VERSES}, "LARGE_BYTES": 5_000}),
    "measure_page": ("checkpoints/fables --keystrokes 1", {"WARM_UP": 0, "TEN_MILLION": {"n_layers": 3}}),
    "measure_pairs": ("checkpoints/instructions_sft", {"N_PAIRS": 8}),
    "measure_post_training": (
        "checkpoints",  # with one price, which GRPO pays
        {"METHODS": {"DPO": "instructions_dpo", "PPO": "instructions_ppo"}, "PRICES": (0,)}
        | {"N_PROMPTS": 2, "N_SAMPLES": 2, "N_ANSWERS": 2},
    ),
    "measure_preparation": (
        "--megabytes 0.01",
        {"LEARNING_MEGABYTES": 0.01, "N_WORDS": 500, "WORDS_AT_ONCE": 1200, "SECONDS_BETWEEN_LOOKS": 0},
    ),
    "measure_probe": ("checkpoints/fables", {}),
    "measure_processes": ("--turns 1", {"PROCESSES": (1, 2), "UPDATES": 1}),
    "measure_saving": ("fables --turns 1", {"UPDATES_A_TURN": 1}),
    "measure_server": ("checkpoints/fables --pairs 1 --tokens 2", {"N_CLIENTS": 2, "TEXTS_EACH": {1: 8, 2: 8}}),
    "measure_shakespeare": ("text.txt", {}),
    "ngram_floors": ("fables --most 2", {}),
    "plot_growth": ("growth.png --pairs 1", {"TOKENS_A_STEP": 32, "CONTEXTS": [8, 16], "WIDTHS": [64]}),
    "results": ("", {}),
    "screenshots": ("checkpoints/fables --to .", {}),
    "ship_demo": ("checkpoints/fables", {"DEMO": Path("demo")}),
    "simulate_devices": ("", {"MODELS": {"124 M": []}, "IN_FULL": ("124 M", 64), "LLAMA_3_8B": []}),
    "write_lm_eval_tasks": ("checkpoints/fables tasks --fables 2", {}),
}
ELSEWHERE = {
    "check_tours": "web/test_tours.py",
    "clean": "test_clean.py",
    "collect_reports": "course/test_learn.py",
    "devices_on_paper": "test_devices_on_paper.py",
    "draw_beliefs": "test_language_configs.py",
    "draw_spectrum": "test_spectrum.py",
    "draw_lessons": "lessons/test_lessons.py",
    "draw_rewards": "test_draw_rewards.py",
    "everywhere": "test_everywhere.py",
    "fable_ngrams": "test_fable_ngrams.py",
    "frontier": "post_training/test_frontier.py",
    "gpu": "test_gpu.py",
    "live_parts": "lessons/live_page.py",
    "make_slides": "lessons/test_slides.py",
    "page_equations": "web/test_page_equations.py",
    "rivals": "test_scripts.py",
    "site_hooks": "test_site.py",
    "roofline": "test_roofline.py",
}
IN_PYTHON = re.compile(r"\w\(\w+=| at 0x|\bNone\b|\bnan\b")  # how no cell of a table should look
BROWSES = {"measure_page", "screenshots"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a text and two runs: the demo, and one fine-tuned from it; both tiny."""
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "text.txt").write_text(VERSES)
    (folder / "README.md").write_text(VERSES)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("matplotlib.figure.Figure.draw", lambda self, renderer: None)
        in_this_process.train_small(patch)
        for name in ("fables", "instructions_sft"):
            in_this_process.pellucid(["train", name])
    return folder


@pytest.fixture
def script(place, monkeypatch) -> Callable:
    """Its module by its name, with what it calls made small or brought into this process."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    monkeypatch.chdir(place)
    in_this_process.train_small(monkeypatch)
    monkeypatch.setattr("subprocess.run", in_this_process.run)
    monkeypatch.setattr("pellucid.runs.evaluate_run.N_ANSWERS", 2)
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)  # scripts start a process for each

    def imported(name: str):
        module = importlib.import_module(name)
        machine = Machine("any", 1e9, 1e9, 1e-6)
        stand_ins = {
            "ProcessPoolExecutor": in_this_process.Pool,
            "measure_machine": lambda device, dtype: machine,
            "measure_flops_per_second": lambda device, dtype: 1e9,
            "measure_roof": lambda device, dtypes: Roof(dict.fromkeys(dtypes, 1e9), 1e9, 1e-6),
            "spawn": spawn,
            **SMALLEST[name][1],
        }
        for what, stand_in in stand_ins.items():
            if hasattr(module, what):
                monkeypatch.setattr(module, what, stand_in)
        assert SMALLEST[name][1].keys() <= vars(module).keys()
        return module

    return imported


def spawn(work, args, nprocs):
    """As torch's, but one process is this one, and several are forked from one that has imported what they need."""
    if nprocs == 1:
        work(0, *args)
        return
    processes.start_server()
    start_processes(work, args, nprocs, start_method="forkserver")


def free_port() -> int:
    """Free like the one after it, at which a script may serve as well."""
    while True:
        with socket.socket() as one, socket.socket() as next_one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            with suppress(OSError, OverflowError):
                next_one.bind(("127.0.0.1", port + 1))
                return port


def test_every_script_has_a_smallest_form():
    assert SMALLEST.keys() | ELSEWHERE.keys() == SCRIPTS
    for name, test in ELSEWHERE.items():
        assert name in (ROOT / "tests" / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(SMALLEST))
def test_every_script_runs(name, script, place, monkeypatch, capsys):
    if name in BROWSES and not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        pytest.skip("no chromium here: apt-get install chromium")
    module = script(name)
    arguments = SMALLEST[name][0].split()
    match name:
        case "ablate_kernels":
            keep(monkeypatch, "pellucid.generation.in_step.reader_of_one_token")
        case "ablate_speedrun":
            keep(monkeypatch, "pellucid.training.optimizers.Muon")
        case "benchmark" | "plot_growth":
            make_shapes_small(module, monkeypatch)
        case "measure_gpt2":
            monkeypatch.setattr("torch.compile", lambda model: model)
        case "measure_own_text":
            monkeypatch.setattr(module, "ROOT", place)
        case "measure_page" | "screenshots":
            servers = in_this_process.Servers(monkeypatch)
            monkeypatch.setattr(sys.modules["measure_page"], "get_context", lambda method: servers)
            monkeypatch.setattr(
                "pellucid.inspection.attribution.Attribution.done_by", lambda self, skill: self.heads[0]
            )
            if name == "screenshots":  # of whatever is there
                monkeypatch.setattr("playwright.sync_api.Page.wait_for_timeout", lambda page, milliseconds: None)
        case "measure_post_training" | "measure_pairs":

            def drawn(fables, task, answer):  # what is answered here is all noise, and as bad
                return replace(judge(fables, task, answer), obeys=len(answer) % 2 == 0)

            monkeypatch.setattr("pellucid.evaluation.answers.judge", drawn)
        case "measure_preparation":
            monkeypatch.setattr("subprocess.Popen", in_this_process.Command)
        case "measure_server":
            servers = in_this_process.Servers(monkeypatch)
            arguments += ["--port", str(free_port())]
            monkeypatch.setattr("subprocess.Popen", lambda command: servers.of_script(module, command))
        case "results":
            monkeypatch.setattr(module, "pages", lambda: [place / "README.md"])
    monkeypatch.setattr(sys, "argv", [str(ROOT / "scripts" / f"{name}.py"), *arguments])
    module.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [row for row in rows if IN_PYTHON.search(row)] == []


def make_shapes_small(module, monkeypatch) -> None:
    """Those of models that are compared with others, and of their turns."""
    monkeypatch.setattr(sys.modules["rivals"], "SECONDS_A_TURN", 0.01)
    monkeypatch.setattr(sys.modules["rivals"], "NEW_TOKENS", 3)
    shape, few = module.Shape, {"batch_size": 1, "vocab_size": 65, "d_model": 16, "n_layers": 1, "n_heads": 1}
    monkeypatch.setattr(module, "Shape", lambda **sizes: shape(**{**sizes, **few}))
    for table in ("TRAINED", "DECODED", "TRAINED_ON_GPU", "DECODED_ON_GPU"):
        if hasattr(module, table):
            two = list(getattr(module, table).items())[:2]
            monkeypatch.setattr(module, table, {name: replace(each, **few) for name, each in two})


def keep(monkeypatch, name: str) -> None:
    """It becomes again what it is now when the test ends."""
    module, _, attribute = name.rpartition(".")
    monkeypatch.setattr(name, getattr(importlib.import_module(module), attribute))


NANOGPT = """
from pathlib import Path
assert Path("data/shakespeare_char/prepared").read_text() == "To be"
print("step 0: train loss 4.2, val loss 4.2500\\niter 0: loss 4.2, time 1500.00ms, mfu -100.00%")
print("iter 1: loss 4.1, time 20.50ms, mfu 1.00%\\nstep 2: train loss 1.8, val loss 1.9000")
"""


def test_nanogpts_seconds_and_loss_are_those_that_it_prints(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    text, data = tmp_path / "text.txt", tmp_path / "nanoGPT" / "data" / "shakespeare_char"
    data.mkdir(parents=True)
    text.write_text("To be")
    prepare = "place = __file__.removesuffix('prepare.py')\n"
    prepare += "open(place + 'prepared', 'w').write(open(place + 'input.txt').read())"
    (data / "prepare.py").write_text(prepare)
    (tmp_path / "nanoGPT/train.py").write_text(NANOGPT)
    found = importlib.import_module("measure_shakespeare").train_nanogpt(tmp_path / "nanoGPT", text, tmp_path / "copy")
    assert found == {"seconds": 1.5205, "nats per character": 1.9}
