"""What the measurements of scripts/ compute, on inputs whose figures are known."""

import asyncio
import contextlib
import io
import json
import math
import os
import random
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import runs
import torch
import torch.distributed as dist
from drawings import context as context_drawn
from drawings import floor as floor_drawn
from drawings import roofline as roofline_drawn
from measurements import (
    adapters,
    benchmark,
    chat,
    commands,
    constrained,
    context,
    coverage,
    demo,
    devices,
    engines,
    gpt2,
    growth,
    heads,
    kernels,
    languages,
    neighbours,
    ngram_floors,
    others,
    own_text,
    page,
    pairs,
    post_training,
    preparation,
    probe,
    processes,
    rivals,
    saving,
    server,
    shakespeare,
    shakespeare_cores,
    shipped_demo,
    speedrun,
    step_time,
    stories,
)
from registry import programs
from results import ROOT, here, read, recipe_hash
from timing import Seconds, cpu_and_clock, median_ratio, take_turns
from torch.testing import assert_close

import in_this_process
from pellucid.checkpoint.step_directory import read_checkpoint
from pellucid.config.load import load_run_config
from pellucid.config.model import DecoderConfig
from pellucid.config.shipped import DEMO
from pellucid.corpora.instructions import judge
from pellucid.cost.machine import Machine
from pellucid.evaluation.estimate import Estimate
from pellucid.kernels.large_products import int8_of
from pellucid.languages.chains import Chains
from pellucid.languages.fables import Fables
from pellucid.languages.fables.world import MORALS
from pellucid.languages.grammar.own import OwnGrammar
from pellucid.model.bigram import Bigram
from pellucid.model.build import build_model
from pellucid.post_training.pairs import Pair
from pellucid.runtime.distributed import World
from pellucid.runtime.precision import resolve_precision
from pellucid.tokenizer.train import train_byte_pairs, train_characters
from tiny_fables import all_stories, tiny_fables
from tiny_run import VERSES

SHAPE = rivals.Shape(2, context_length=16, vocab_size=30, d_model=16, n_layers=1, n_heads=1)
CPU = torch.device("cpu")


# As much of nanoGPT's model.py as its train.py takes.
NANOGPTS_MODEL = """
import torch
from dataclasses import dataclass


@dataclass
class GPTConfig:
    block_size: int
    vocab_size: int
    n_layer: int
    n_head: int
    n_embd: int
    dropout: float
    bias: bool


class GPT(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.table = torch.nn.Embedding(config.vocab_size, config.vocab_size)

    def configure_optimizers(self, weight_decay, learning_rate, betas, device_type):
        return torch.optim.AdamW(self.parameters(), lr=learning_rate, betas=betas, weight_decay=weight_decay)

    def forward(self, inputs, targets):
        logits = self.table(inputs)
        return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a tiny run of the demo, a text, and what stands for nanoGPT."""
    folder = tmp_path_factory.mktemp("measurements")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("matplotlib.figure.Figure.draw", lambda self, renderer: None)
        in_this_process.train_small(patch)
        for name in ("fables", "instructions_sft"):
            in_this_process.pellucid(["train", name])
    (folder / "text.txt").write_text(VERSES)
    (folder / "nanogpt").mkdir()
    (folder / "nanogpt/model.py").write_text(NANOGPTS_MODEL)
    return folder


def pellucid_here(*arguments, folder=Path(), environment=None):
    """As `runs.pellucid`, in this process."""
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.chdir(folder)
        in_this_process.pellucid(list(map(str, arguments)))
    printed.seek(0)
    return printed.read()


def obeyed_by_length(fables, task, answer):
    """What an untrained model answers is all noise, and as bad: pairs need a better and a worse one."""
    return replace(judge(fables, task, answer), obeys=len(answer) % 2 == 0)


# How each is called in its smallest form, and what is made smaller in it.
TWO_STORIES = SimpleNamespace(measure=partial(stories.measure, num_samples=2))
SIZES = {"d_model": 16, "n_layers": 1, "n_heads": 1}
TINY_GPT2 = [f"model.{size}" for size in ("d_model=16", "n_layers=1", "n_heads=1", "context_length=8")]
TWO_TRICKS = {speedrun.FULL: [], "two heads; one": ["model.n_heads=1"]}
SMALLEST = {
    kernels: ((), {"pairs": 1}, {"UPDATES_A_TURN": 1, "TOKENS_A_TURN": 2}),
    speedrun: (("text.txt",), {"seeds": 1}, {"SCHEDULES": [2], "TARGET": 100, "WITHOUT": TWO_TRICKS}),
    step_time: ((), {"turns": 1}, {"UPDATES_A_TURN": 1, "VARIANTS": {"the demo": [], step_time.NARROW: []}}),
    saving: ((), {"turns": 1}, {"UPDATES_A_TURN": 1}),
    commands: ((), {}, {}),
    coverage: ((), {"contests": 10}, {"N_DOCUMENTS": (50,)}),
    languages: ((), {"demo": "checkpoints/fables", "n_documents": 3}, {"LANGUAGES": ()}),
    ngram_floors: ((), {"most": 2}, {}),
    chat: (("checkpoints/fables",), {"seeds": 1}, {"N_ANSWERS": 16}),
    pairs: (("checkpoints/instructions_sft",), {}, {"N_PAIRS": 8}),
    adapters: (("checkpoints/fables",), {}, {}),
    gpt2: (TINY_GPT2, {"nanogpt": "nanogpt"}, {"WARM_UP_UPDATES": 0, "UPDATES": 1, "VOCAB_SIZE": 50}),
    others: (
        (),
        {"nanogpt": "nanogpt", "rounds": 1},
        {
            "TRAINED": {"tiny": (SHAPE, 1)},
            "DECODED": {"tiny": (others.LLAMA | SIZES, 300, (others.EIGHT, others.PROMPT), others.BESIDE_ALL)},
            "ASKED": {others.EIGHT: others.Texts(2, 3, 4), others.PROMPT: others.Texts(1, 5, 1)},
        },
    ),
    preparation: (
        (),
        {"megabytes": 0.01},
        {"LEARNING_MEGABYTES": 0.01, "N_WORDS": 500, "WORDS_AT_ONCE": 1200, "SECONDS_BETWEEN_LOOKS": 0},
    ),
    demo: ((), {"seeds": 1, "here_only": True}, {"stories": TWO_STORIES}),
    growth: ((), {"pairs": 1, "pictures": "."}, {"CONTEXTS": [4], "WIDTHS": [64], "TOKENS_A_STEP": 256}),
    shakespeare: (("text.txt",), {}, {"RUNS": {"speedrun, seed 0": ["speedrun_shakespeare.yaml", "seed=0"]}}),
    shakespeare_cores: (("text.txt",), {"seeds": 1, "runs": "."}, {}),
}


@pytest.mark.parametrize("module", SMALLEST, ids=lambda module: module.__name__.partition(".")[2])
def test_a_measurement_measures_what_it_says_it_remakes(module, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    in_this_process.train_small(monkeypatch)
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)
    monkeypatch.setattr("pellucid.runs.evaluate_run.N_ANSWERS", 2)
    monkeypatch.setattr("pellucid.evaluation.answers.judge", obeyed_by_length)
    arguments, options, smaller = SMALLEST[module]
    stand_ins = {
        "pellucid": pellucid_here,
        "in_a_process": in_this_process.work,
        "measure_machine": lambda device, dtype: Machine("any", 1e9, 1e9, 1e-6),
        "measure_flops_per_second": lambda device, dtype: 1e9,
    }
    monkeypatch.setattr("subprocess.Popen", in_this_process.Command)
    monkeypatch.setattr("torch.compile", lambda model: model)
    monkeypatch.setattr(rivals, "SECONDS_A_TURN", 0.001)
    for what, stand_in in {**stand_ins, **smaller}.items():
        if what in smaller or hasattr(module, what):
            monkeypatch.setattr(module, what, stand_in)
    monkeypatch.setattr("runs.pellucid", pellucid_here)

    def given(value):
        return file if isinstance(value, str) and (file := place / value).exists() else value

    entries = list(module.measure(*map(given, arguments), **{name: given(each) for name, each in options.items()}))
    remakes = programs("measurements", "measure")[module.__name__.partition(".")[2]].facts["Remakes"].split(", ")
    names = dict.fromkeys(entry.name for entry in entries)
    for name, remade in zip(names, remakes[: 1 if module is demo else None], strict=True):  # demo_seeds takes two
        assert name in (remade, here(remade))
    for entry in entries:
        assert [recipe_hash(recipe) for recipe in entry.recipes] or module in (
            commands,
            coverage,
            growth,
            others,
            preparation,
        )
        numbers = [number for number in numbers_in(entry.figures) if isinstance(number, float)]
        assert numbers
        assert all(map(math.isfinite, numbers))


def test_the_entropy_of_a_language_is_exact_where_it_can_be_and_else_an_estimate_of_it():
    small, rng = Chains(states=3, alpha=1.0, length=8), random.Random(0)
    texts = [small.write(rng) for _ in range(500)]
    exact = languages.entropy_of(small, texts)
    assert (exact.mean, exact.half_width) == (small.entropy_nats, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Chains, "entropy_nats", None)
        estimate = languages.entropy_of(small, texts)
    assert 0 < abs(estimate.mean - exact.mean) < 2 * estimate.half_width


def numbers_in(figures):
    """All that stands in a table of tables."""
    for value in figures.values():
        yield from numbers_in(value) if isinstance(value, dict) else [value]


def the_one(entries):
    [entry] = entries
    return entry.figures


def test_what_is_compared_takes_turns_and_the_first_round_only_warms_up():
    calls = []
    works = {name: lambda name=name: calls.append(name) or len(calls) for name in "ab"}
    assert take_turns(works, 2) == {"a": [3, 5], "b": [4, 6]}
    assert calls == list("ababab")
    assert median_ratio([1, 4, 9], [1, 2, 3]) == 2


def test_every_reader_of_single_tokens_writes_the_same_text(monkeypatch):
    monkeypatch.setattr(kernels, "TOKENS_A_TURN", 8)
    model = build_model(SHAPE.config, SHAPE.vocab_size).eval()
    readers = (kernels.SingleTokenDecoder, kernels.with_plain_products, kernels.EveryLayerCalled)
    one, *others = (kernels.decode(model, 2, reader) for reader in readers)
    assert [len(tokens) for tokens in one] == [8, 8]
    assert others == [one, one]


def test_texts_are_the_same_tokens_with_the_cache_of_words_and_without():
    texts = VERSES.split("\n\n")
    tokenizer_json = train_byte_pairs(texts, vocab_size=300, special_tokens=["<|endoftext|>"]).to_json()
    cached, plain = (kernels.encode(tokenizer_json, texts, with_cache) for with_cache in (True, False))
    assert all(map(np.array_equal, cached, plain))
    assert len(cached) == len(texts)


def test_a_trick_is_measured_beside_the_whole_recipe():
    found = {
        speedrun.FULL: [(100, 4.0), (120, 6.0)],
        "a trick": [(150, 10.0), (150, 10.0)],
        "another": [None, (1, 1.0)],
    }
    full, trick, other = speedrun.as_table(found).values()
    assert full == {"steps": 110, "seconds": 5.0, "times as long": 1.0}
    assert trick == {"steps": 150, "seconds": 10.0, "times as long": 2.0}
    assert other == {"steps": f"more than {speedrun.SCHEDULES[-1]}", "seconds": None, "times as long": None}


def test_a_predicted_time_is_beside_the_measured_one_of_the_same_turn():
    found = step_time.as_row([(0.1, 0.1), (0.3, 0.1), (0.2, 0.1)])
    assert found == pytest.approx({"predicted (ms)": 200, "measured (ms)": 100, "ratio": 2})


def test_saves_are_counted_once_where_two_are_due():
    config = load_run_config(ROOT / "configs/fables.yaml", ["train.steps=50"])
    every, evaluated = config.checkpoint.every_steps, config.evaluation.every_steps
    due = [step for step in range(1, 51) if step % every == 0 or step % evaluated == 0 or step == 50]
    assert saving.saves_in(config) == len(due)


def test_softmax_keeps_two_vectors_a_token_and_layer_and_linear_attention_a_state_of_one_size(monkeypatch):
    monkeypatch.setattr(context, "LENGTHS", [4, 8])
    monkeypatch.setattr(context, "TOKENS_A_TURN", 1)
    few, more = the_one(context.measure(turns=1)).values()
    assert more["softmax (KB)"] - few["softmax (KB)"] == pytest.approx(4 * 4 * 2 * 128 * 4 / 1000)
    assert more["linear (KB)"] == few["linear (KB)"]
    assert min(more.values()) > 0


def test_an_update_s_time_is_its_tokens_by_their_rate():
    rows = [{"tokens": n, "tokens_per_second": rate} for n, rate in ((10, 1.0), (30, 40.0), (40, 5.0))]
    assert neighbours.milliseconds(rows) == [500, 2000]
    assert neighbours.as_row(50.0, 200.0)["of its speed kept (%)"] == 25


def test_a_plain_fable_obeys_by_chance_as_often_as_counting_says():
    animals, morals = 24, Fables(24).morals_of("fable")
    hits = {"animal": 0.0, "moral": 0.0, "both": 0.0}
    for asked in MORALS:  # each animal and each moral is asked for as often as the others
        same_moral = morals.get(asked, 0.0) / len(MORALS)
        hits["moral"] += same_moral
        hits["both"] += same_moral / animals
    hits["animal"] = 1 / animals
    assert chat.chance() == pytest.approx(100 * sum(hits.values()) / 3)


def test_a_stage_s_shares_are_in_percent():
    kinds = {
        "all": {"obeys": {"share": 0.5}, "whole": {"share": 0.9}},
        "in wordings never seen": {"obeys": {"share": 0.4}},
    }
    of_answers = {"answers": {"instructions": kinds, "distinct": 0.75}, "excess_fraction": 0.02}
    row = chat.as_row(of_answers, {"excess_fraction": 0.03})
    assert list(row.values()) == pytest.approx([50, 40, 90, 75, 2, 3])


def test_what_fewer_bits_cost_is_a_share_of_the_exact_loss():
    exact, coarse = ({"loss_nats_per_token": loss, "excess_nats_per_token": loss - 1} for loss in (2.0, 2.1))
    row = adapters.costs({"bits_after": 4.5, "model_bits_after": 8.0}, coarse, exact)
    assert row["cost (% of the loss)"] == pytest.approx(5)
    beside = adapters.beside_all_weights({"all weights": {"loss": 2.0}, "LoRA": {"loss": 2.2}})
    assert [row["more than all weights (%)"] for row in beside.values()] == pytest.approx([0, 10])


def test_without_an_adapter_all_parameters_learn(place):
    [step] = (place / "checkpoints/fables").glob("step-*4")
    found = adapters.sizes(step)
    assert found["of all (%)"] == 100
    assert found["trained parameters"] == sum(tensor.numel() for tensor in read_checkpoint(step).model.values())


def test_the_gradient_of_pairs_does_not_depend_on_how_many_are_read_at_once(monkeypatch):
    model, precision = build_model(SHAPE.config, SHAPE.vocab_size), resolve_precision("cpu", "fp32")
    some = [Pair([1, 2], [3, 4, i], [5]) for i in range(6)]
    gradients = []
    for at_once in (1, 4, 16):
        monkeypatch.setattr(pairs, "PAIRS_AT_ONCE", at_once)
        gradients.append(pairs.gradient(model, precision, some))
    assert_close(gradients[1:], gradients[:1] * 2)
    assert gradients[0].norm() > 0


def test_answers_are_cut_where_the_verdict_is_certain():
    pair = Pair([0], [1, 2, 3, 4], [5, 6, 7])
    cuts = pairs.cuts(lambda prompt, answer: 3 if answer == pair.chosen else 1)
    assert cuts["whole answers"](pair) == pair
    assert cuts["cut: each"](pair) == Pair([0], [1, 2, 3], [5])
    assert cuts["cut: both"](pair) == Pair([0], [1], [5])


def test_a_run_begins_and_ends_with_the_means_of_five_updates():
    rows = [{"reward": n, "kl": 10 * n, "whole": n, "obeys": 0} for n in range(10)]
    assert list(post_training.start_and_end(rows).values()) == [2, 7, 1, 3.5, 70]


def test_pellucid_and_its_rival_have_the_same_matrices():
    """Of GPT-2's parameters only the biases are not ours."""
    theirs = {name: p.numel() for name, p in SHAPE.hugging_face().named_parameters() if not name.endswith("bias")}
    ours = build_model(SHAPE.config, SHAPE.vocab_size).parameters()
    assert sum(theirs.values()) == sum(p.numel() for p in ours)


def test_two_rivals_are_compared_by_their_neighbouring_turns():
    ours, theirs = iter([9.0, 1.0, 2.0, 6.0]), iter([1.0, 1.0, 1.0, 2.0])
    found = rivals.compare(partial(next, ours), partial(next, theirs), 3)
    assert found == {"Pellucid": 2.0, "transformers": 1.0, "ratio": 2.0}


def test_both_rivals_write_all_the_tokens_that_are_counted(monkeypatch):
    monkeypatch.setattr(rivals, "NEW_TOKENS", 3)
    counted = []
    monkeypatch.setattr(rivals, "tokens_per_second", lambda work: counted.append(work()))
    rivals.pellucid_decoding(SHAPE, CPU)()
    rivals.hugging_face_decoding(SHAPE, CPU)()
    assert counted == [2 * 3, 2 * 3]
    precision = resolve_precision("cpu", "fp32")
    rivals.pellucid_training(SHAPE, precision)()
    rivals.hugging_face_training(SHAPE, precision)()
    assert counted[2:] == [2 * 16, 2 * 16]


def test_no_cpu_time_passes_while_nothing_is_computed():
    taken = cpu_and_clock(partial(time.sleep, 0.1))
    assert taken.clock >= 0.1 > taken.cpu


def test_programs_are_compared_in_the_turns_of_one_round():
    times = {"a": [Seconds(1, 2), Seconds(2, 2), Seconds(4, 2)], "b": [Seconds(2, 2), Seconds(2, 6), Seconds(2, 8)]}
    row = others.beside(times, "a", "b", tokens=10)
    assert list(row.values()) == [5, 5, 1, 0.5, 2, 3, 1, 4]


def test_what_is_compared_decodes_the_same_function():
    config = DecoderConfig.model_validate({**others.LLAMA, **SIZES, "context_length": 8})
    ours, tokens_BT = build_model(config, vocab_size=300).eval(), torch.arange(16).view(2, 8)
    theirs = others.hugging_face_model(config, ours)
    with torch.no_grad():
        assert_close(theirs(tokens_BT).logits, ours(tokens_BT), rtol=1e-4, atol=1e-5)
    assert others.tokenizer_of(300).vocab_size == 300


def test_what_is_measured_in_int8_is_what_a_loaded_run_writes_with():
    config = DecoderConfig.model_validate({**others.LLAMA, **SIZES, "d_model": 64, "d_ff": 64, "context_length": 8})
    smaller = others.in_int8(build_model(config, vocab_size=300))
    layers = [module for name, module in smaller.named_modules() if isinstance(module, torch.nn.Linear)]
    assert len(layers) > 3
    assert all(int8_of(layer.weight) is not None for layer in layers)


def test_a_program_that_is_not_here_is_left_out_and_named(capsys, monkeypatch):
    monkeypatch.setattr(others, "is_here", lambda *packages: False)
    monkeypatch.setattr(others, "TRAINED", {"tiny": (SHAPE, 1)})
    assert next(others.measure(rounds=1)).figures == {}
    nanogpt, *packages = capsys.readouterr().out.splitlines()
    assert nanogpt.startswith("nanoGPT is left out: name a clone of https://github.com/")
    left_out = "transformers is left out: pip install transformers", "llama.cpp is left out: pip install xllamacpp gguf"
    assert packages == [*left_out]


def test_a_folder_without_nanogpt_s_model_is_refused(tmp_path):
    with pytest.raises(SystemExit, match=r"error: --nanogpt .*: there is no model.py; name a clone of https://"):
        next(others.measure(nanogpt=tmp_path))


def test_a_part_of_the_benchmark_that_is_not_there_is_named():
    with pytest.raises(SystemExit, match="error: no part speed; choose among roof, training, decoding"):
        list(benchmark.measure("speed"))


def test_the_rows_of_a_table_of_limits_are_those_of_the_speeds(monkeypatch):
    monkeypatch.setattr(rivals, "SECONDS_A_TURN", 0.001)
    monkeypatch.setattr(rivals, "NEW_TOKENS", 3)
    monkeypatch.setattr(benchmark, "DECODED", {"1 sequence": SHAPE})
    monkeypatch.setattr(
        benchmark, "measure_roof", lambda device, dtypes: benchmark.Roof(dict.fromkeys(dtypes, 1e9), 1e9, 1)
    )
    [speeds], [limits] = (list(entry.figures.values()) for entry in benchmark.measure("decoding", pairs=1))
    for who in ("Pellucid", "transformers"):
        assert limits[f"{who} (ms)"] == pytest.approx(1000 * SHAPE.batch_size / speeds[who])
    assert limits["calls"] > 10


def test_servers_are_compared_in_the_turns_that_they_share():
    speeds = {
        (n, kind, name): [] for n in server.TEXTS_EACH for kind in server.KINDS for name in ("Pellucid", "transformers")
    }
    for (n, _, name), values in speeds.items():
        values += [n * rate for rate in ((2.0, 4.0) if name == "Pellucid" else (1.0, 1.0))]
    rows = server.rows_of(speeds)
    assert rows["1 client"] == {"Pellucid (tokens/s)": 3.0, "transformers (tokens/s)": 1.0, "ratio": 3.0}
    assert list(rows) == ["1 client", "1 client, streamed", "16 clients", "16 clients, streamed"]
    assert server.ratios_of(speeds) == {"16 clients to 1": 16.0, "16 clients to 1, streamed": 16.0}


def test_clients_count_the_tokens_that_a_server_says_it_wrote():
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"usage": {"completion_tokens": 7}}')
        writer.close()

    async def clients():
        listening = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        counts = [await server.ask(port, "demo", 7, is_streamed) for is_streamed in (False, True)]
        listening.close()
        return counts

    assert asyncio.run(clients()) == [7, 7]


def test_the_server_that_is_compared_says_how_many_tokens_it_wrote(place):
    testclient = pytest.importorskip("fastapi.testclient")
    import pellucid

    pellucid.load(place / "checkpoints/fables").export(folder := place / "exported")
    client = testclient.TestClient(server.app_of_transformers(folder))
    body = {"model": "any", "prompt": "Once upon a time", "max_tokens": 3}
    said = client.post("/v1/completions", json={**body, "stream": False}).json()
    assert 0 <= said["usage"]["completion_tokens"] <= 3
    streamed = client.post("/v1/completions", json={**body, "stream": True}).text.strip().split("\n\n")
    assert 0 <= json.loads(streamed[-1].removeprefix("data: "))["usage"]["completion_tokens"] <= 3


def test_an_exchange_is_what_an_update_takes_more_than_its_own_work():
    found = engines.as_table(
        {1: {"no exchange": 100.0, "ddp": 100.0}, 2: {"no exchange": 60.0, "ddp": 80.0}}, tokens=50
    )
    alone, two = found.values()
    assert (alone["of it exchanges (%)"], alone["tokens/s"], alone["efficiency (%)"]) == (0, 500, 100)
    assert two["of it exchanges (%)"] == pytest.approx(25)
    assert two["efficiency (%)"] == pytest.approx(100 * 625 / 1000)


@pytest.fixture
def one_process(tmp_path):
    dist.init_process_group("gloo", init_method=(tmp_path / "meet").as_uri(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_every_engine_makes_the_same_update(place, one_process, monkeypatch):
    monkeypatch.chdir(place)
    in_this_process.train_small(monkeypatch)
    config = load_run_config(ROOT / "configs/fables.yaml", ["train.device=cpu"])
    losses = {}
    for name in set(engines.ENGINES) - {"accelerate"}:
        trainer = engines.ENGINES[name](config, place / "data", World(0, 1, 0))
        losses[name] = [trainer.update().loss for _ in range(2)]
    for found in losses.values():
        assert found == pytest.approx(losses["ddp"], rel=1e-5)


def test_processes_are_beside_what_is_predicted():
    one, two = processes.as_table({1: 100.0, 2: 160.0}, {1: (90.0, 0.0), 2: (135.0, 0.25)}).values()
    assert (one["measured efficiency (%)"], one["predicted efficiency (%)"]) == (100, 100)
    assert two["measured efficiency (%)"] == pytest.approx(80)
    assert two["predicted efficiency (%)"] == pytest.approx(75)
    assert two["communication, predicted (%)"] == 25


def test_a_machine_is_measured_by_the_processes_that_share_it(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "ALL_REDUCES", 1)
    monkeypatch.setattr(processes, "measure_machine", lambda device, dtype: Machine("any", 1.0, 2.0, 3.0))
    runs.one_of(0, 1, tmp_path, processes.shared_machine, (400, "fp32"))
    machine, bytes_per_second = json.loads((tmp_path / "value.json").read_text())
    assert Machine(**machine) == Machine("any", 1.0, 2.0, 3.0)
    assert bytes_per_second > 0


def test_the_recorded_figures_of_devices_on_paper_are_computed_again():
    recorded = read()["devices"]["figures"]
    update, machine = devices.update_of(ROOT / "configs/gpt2_124m.yaml", [])
    for n in (8, 64):
        found = devices.plans(update, devices.gpus(n))
        for way in ("ddp", "fsdp"):  # of which none waits for room in memory
            efficiency = devices.percent(update, devices.gpus(n), found[way])
            assert efficiency == pytest.approx(recorded["efficiency"][f"124 M, {n} GPUs"][way], rel=1e-4)
    assert devices.plans(update, devices.gpus(1024))["ddp"] is None, "a batch has 512 rows"
    assert devices.percent(update, devices.gpus(1024), None) == "–"
    lines = devices.in_full(update, devices.gpus(64), machine)
    assert lines[0].startswith("64 GPUs, 8 in a node; an update reads 512 rows of 1,024 tokens")
    assert [line[:32] for line in lines[1:]] == [line[:32] for line in recorded["in full"][1:]]


def test_the_less_a_model_sees_the_higher_is_its_floor():
    fables = tiny_fables(0, most=100)
    texts = [text for text, _ in all_stories(fables.grammar.begin())]
    tokenizer = train_byte_pairs(texts, vocab_size=300, special_tokens=["<|endoftext|>"])
    floors = ngram_floors.floors(fables, tokenizer, 2)
    none, one, all_of_it = (row["floor (nats per token)"] for row in floors.values())
    assert none > one > all_of_it > 0
    assert list(floors) == ["none", "the last one", "all"]


def test_a_text_to_prepare_is_as_long_as_asked_for_and_always_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "N_WORDS", 50)
    monkeypatch.setattr(preparation, "WORDS_AT_ONCE", 1200)
    for name in "ab":
        preparation.write_text(tmp_path / name, 0.01)
    text = (tmp_path / "a").read_text()
    assert 10_000 <= len(text) <= 30_000
    assert (tmp_path / "b").read_text() == text
    assert preparation.mebibytes(os.getpid()) > 1 or not Path("/proc/self/smaps_rollup").exists()  # Linux alone tells
    assert preparation.mebibytes(2**30) == 0


def test_the_larger_text_holds_the_small_one_and_ends_near_its_limit(monkeypatch):
    monkeypatch.setattr(own_text, "TINY_BYTES", 10)
    monkeypatch.setattr(own_text, "LARGE_BYTES", 10)
    texts = own_text.three_texts({"a": "éa"})
    assert (len(texts["tiny"]), own_text.n_bytes(texts["small"])) == (1, 3)
    assert texts["large"].items() > {"a": "éa", "README.md": (ROOT / "README.md").read_text("utf-8")}.items()


def test_the_demo_s_figures_are_in_percent():
    scores = {"excess_nats_per_token": 0.01, "floor_nats_per_token": 0.5}
    scores["skills"] = {name: {"accuracy": 0.9} for name in (*demo.SKILLS, "choice")}
    assert list(demo.figures_from(scores).values()) == pytest.approx([2, 90, 90, 90])


def test_a_story_is_accepted_whole_and_a_broken_one_up_to_its_fault():
    fables = tiny_fables(0, most=100)
    whole = fables.write(random.Random(0))
    assert list(stories.judged(fables, [whole, whole]).values()) == [2, 100]
    broken = whole[: len(whole) // 2] + "#" * (len(whole) - len(whole) // 2)
    accepted, share = stories.judged(fables, [whole, broken]).values()
    assert accepted == 1
    assert share == pytest.approx((100 + 50) / 2, abs=1)


def test_the_heads_of_the_shipped_demo_have_a_row_each():
    figures = the_one(heads.measure(DEMO, fables=2))
    looks, costs, of_mean = (figures[name] for name in ("looks", "costs", "costs of the mean"))
    assert list(looks) == ["spread evenly", *costs]
    assert costs.keys() == of_mean.keys()
    assert len(costs) == len({row.split(".")[0] for row in costs}) * len({row.split(".")[1] for row in costs})
    for row in figures["done"].values():
        assert row["looks"] > row["evenly"]
        assert row["costs"] >= row["next head costs"]


def test_what_a_probe_reads_is_in_percent(monkeypatch):
    monkeypatch.setattr(probe, "load_trained_run", lambda run: (None, None))
    scores = {"after block 1": {"animal": Estimate(0.5, 0.0125)}}
    monkeypatch.setattr(probe, "probe_run", lambda trained, texts, most: SimpleNamespace(scores=scores))
    assert the_one(probe.measure(DEMO)) == {"after block 1": {"animal": "50.0 ± 1.2"}}


def test_a_mask_writes_other_texts_than_the_model_given_the_form():
    """a or b: the mask writes each as often, but of what the model begins with a, only a quarter ends there."""
    tokenizer = train_characters(["ab"], special_tokens=["<|endoftext|>"])
    model = Bigram(tokenizer.vocab_size, 8).eval()
    end, a, b = tokenizer.end_of_text, *tokenizer.encode("ab")
    p_VV = torch.full((3, 3), 1e-12)
    p_VV[end, [a, b]], p_VV[a, [end, b]], p_VV[b, [end, b]] = torch.tensor([[0.5, 0.5], [0.25, 0.75], [1.0, 1e-12]])
    model.logits_VV.data = p_VV.log()
    row = constrained.row_of(model, tokenizer, OwnGrammar("word\n    1 a\n    1 b\n", "word"), drafted=40)
    drafts = row.pop("drafts per text")
    assert row == pytest.approx({"texts": 2, "of the model's texts (%)": 62.5, "distance of the mask (%)": 30})
    assert 1 < drafts < 1 / 0.625


def test_the_shipped_demo_is_the_newest_checkpoint_in_sixteen_bits(place, tmp_path, monkeypatch):
    monkeypatch.setattr(shipped_demo, "DEMO", tmp_path / "demo")
    monkeypatch.setattr(shipped_demo, "measure_parts", lambda step: None)
    scores = SimpleNamespace(loss=1.0, excess_nats_per_token=0.1, floor_nats_per_token=0.5)
    monkeypatch.setattr("pellucid.load", lambda folder: SimpleNamespace(evaluate=lambda: scores))
    run = place / "checkpoints/fables"
    figures = the_one(shipped_demo.measure(run))
    [shipped], [newest] = (tmp_path / "demo").glob("step-*"), run.glob("step-*4")
    exact = read_checkpoint(newest).model
    for name, tensor in read_checkpoint(shipped).model.items():
        assert_close(tensor, exact[name].half().float(), rtol=0, atol=0)
    assert figures["steps"] == 4
    assert figures["excess (% of the floor)"] == pytest.approx(20)


def test_the_larger_model_of_the_page_has_learned_nothing_and_its_own_shape(place, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "TEN_MILLION", {"n_layers": 3})
    run = page.with_random_weights(place / "checkpoints/fables", tmp_path / "larger")
    [step] = run.glob("step-*")
    names = read_checkpoint(step).model
    assert {name.split(".")[1] for name in names if name.startswith("blocks.")} == {"0", "1", "2"}


def test_what_is_photographed_is_on_the_page():
    static = ROOT / "src/pellucid/web/static"
    code = "\n".join(file.read_text("utf-8") for file in [static / "index.html", *static.rglob("*.js")])
    for part in ('id="part-text"', 'id="part-attention"', '"div.big"', '"data-row"', "does ${skill}."):
        assert part in code, part


def test_figures_are_drawn_from_what_is_recorded(ink, tmp_path):
    entries = read()
    time, memory = context_drawn.costs_of_a_token(entries["context"]["figures"]).axes
    rows = entries["context"]["figures"].values()
    for axes, unit in ((time, "ms"), (memory, "KB")):
        known = [[row[f"{name} ({unit})"] for row in rows] for name in context.ATTENTIONS]
        assert [list(line.get_ydata()) for line in axes.lines[:3]] == known
    grown = {name: {"Pellucid": 2.0, "transformers": 1.0} for name in ("context 64", "width 64", "width 1024")}
    by_context, by_width = growth.speeds(grown, "bf16").axes
    assert list(by_width.lines[0].get_xdata()) == [64, 1024]
    assert [line.get_ydata() for line in by_context.lines] == [[2.0], [1.0]]
    [file] = roofline_drawn.draw(to=tmp_path / "roofline.png")
    assert file.stat().st_size > 1000


NANOGPT = """
from pathlib import Path
assert Path("data/shakespeare_char/prepared").read_text() == "To be"
print("step 0: train loss 4.2, val loss 4.2500\\niter 0: loss 4.2, time 1500.00ms, mfu -100.00%")
print("iter 1: loss 4.1, time 20.50ms, mfu 1.00%\\nstep 2: train loss 1.8, val loss 1.9000")
"""


def test_nanogpts_seconds_and_loss_are_those_that_it_prints(tmp_path):
    text, data = tmp_path / "text.txt", tmp_path / "nanoGPT" / "data" / "shakespeare_char"
    data.mkdir(parents=True)
    text.write_text("To be")
    prepare = "place = __file__.removesuffix('prepare.py')\n"
    prepare += "open(place + 'prepared', 'w').write(open(place + 'input.txt').read())"
    (data / "prepare.py").write_text(prepare)
    (tmp_path / "nanoGPT/train.py").write_text(NANOGPT)
    found = shakespeare.train_nanogpt(tmp_path / "nanoGPT", text, tmp_path / "copy")
    assert found == {"seconds": 1.5205, "nats per character": 1.9}


def test_what_a_model_lacks_is_nothing_if_it_knows_the_truth_and_adds_to_the_entropy_up_to_its_loss():
    truth = [{0: 0.25, 1: 0.75}, {1: 1.0}]
    knows, guesses = np.array([[0.25, 0.75], [1e-300, 1.0]]), np.full((2, 2), 0.5)
    assert floor_drawn.missing(truth, np.log(knows)) == pytest.approx([0, 0])
    entropy = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    assert floor_drawn.missing(truth, np.log(guesses)) == pytest.approx([math.log(2) - entropy, math.log(2)])
