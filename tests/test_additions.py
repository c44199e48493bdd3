"""The table "to add X, edit Y" of docs/code.md is true: what it says is enough, for everything that a model meets.

Each addition edits a copy of the package in the files of its row, and in no other. Then the copy trains, resumes,
writes, evaluates, explains, embeds and counts.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tiny_run import TINY_RUN

ROOT = Path(__file__).parents[1]

COMMANDS = [
    ["train", "NAME.yaml"],
    ["train", "NAME.yaml", "--resume"],
    ["generate", "checkpoints/NAME", "--max-new-tokens", "4"],
    ["evaluate", "checkpoints/NAME"],
    ["explain", "checkpoints/NAME", "--prompt", "Once"],
    ["embed", "checkpoints/NAME", "--text", "Once"],
    ["verify", "checkpoints/NAME"],
    ["cost", "NAME.yaml"],
]
RUN_ALL = """
import functools, json, sys
from pathlib import Path
import torch
import pellucid
from matplotlib.figure import Figure
from pellucid.cli import app_for
from pellucid.cost import machine
# As everywhere in the tests: blank figures, a machine that is measured once.
Figure.draw = lambda self, renderer: None
machine.measure_machine = functools.cache(machine.measure_machine)
for command in json.loads(sys.argv[1]):
    app_for(command[0])(command, standalone_mode=False)
from pellucid.errors import ConfigError
from pellucid.web.export import export_page
for name in ("parts", "layers"):
    run = pellucid.load(f"checkpoints/{name}")
    ids = [run.tokenizer.end_of_text, *run.tokenizer.encode("Once")]
    with torch.no_grad():
        for _ in range(8):
            ids.append(int(run.model(torch.tensor([ids]))[0, -1].argmax()))
    assert run.generate("Once", temperature=0, max_new_tokens=8) == run.tokenizer.decode(ids[-8:])
    for to in ("hf", "gguf"):
        try:
            run.export(f"{name}-{to}", to=to)
        except ConfigError as refusal:
            print(f"{name} to {to}: {refusal}")
    print(f"{name} in a browser: {export_page([Path('checkpoints', name)], Path(f'{name}.html'))}")
"""

# Of each row: a file, the text before which something is put, and what is put there. Without such a text: a new file.
ADDITIONS = {
    "a kind of model": [
        (
            "model/low_rank.py",
            None,
            """from torch import nn

from pellucid.model.bigram import TokensRead
from pellucid.model.language_model import LanguageModel


class LowRank(LanguageModel):
    def __init__(self, vocab_size, context_length):
        super().__init__(vocab_size, context_length)
        self.embedding = nn.Embedding(vocab_size, 8)
        self.blocks = nn.ModuleList([nn.Linear(8, vocab_size)])

    def forward(self, tokens_BT, state=None):
        if state is not None:
            state.length += tokens_BT.size(1)
        return self.blocks[0](self.embedding(tokens_BT))

    def new_state(self, batch_size, capacity=None):
        return TokensRead()

    def hidden_modules(self):
        return [self.embedding]
""",
        ),
        (
            "config/model.py",
            "class RecurrentConfig",
            'class LowRankConfig(Section):\n    type: Literal["low_rank"]\n    context_length: int\n\n\n',
        ),
        ("config/model.py", "DecoderConfig | BigramConfig", "LowRankConfig | "),
        (
            "model/build.py",
            "        case RecurrentConfig",
            """        case _ if config.type == "low_rank":
            from pellucid.model.low_rank import LowRank
            return LowRank(vocab_size, config.context_length)
""",
        ),
    ],
    "an activation": [
        ("model/feed_forward.py", "class FeedForward", "def cosine(x):\n    return x.cos()\n\n\n"),
        ("config/model.py", '"relu", "gelu"', '"cosine", '),
        (
            "model/build.py",
            '        case "gelu"',
            '        case "cosine":\n            from pellucid.model.feed_forward import cosine as activation\n',
        ),
    ],
    "a feed-forward layer": [
        (
            "model/feed_forward.py",
            "class FeedForward",
            """class Bilinear(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.W_1, self.V = nn.Linear(d_model, d_ff), nn.Linear(d_model, d_ff)
        self.W_2 = nn.Linear(d_ff, d_model)

    def forward(self, x_BTD):
        return self.W_2(self.W_1(x_BTD) * self.V(x_BTD))


""",
        ),
        ("config/model.py", '"relu", "gelu"', '"bilinear", '),
        (
            "model/build.py",
            '        case "gelu"',
            """        case "bilinear":
            from pellucid.model.feed_forward import Bilinear
            return Bilinear(config.d_model, d_ff)
""",
        ),
    ],
    "a kind of position": [
        (
            "model/positions.py",
            "class Sinusoidal",
            """class Parity(NoPositions):
    def __init__(self, d_model):
        super().__init__()
        self.odd_D = nn.Parameter(torch.zeros(d_model))

    def add_to_embeddings(self, embeddings_BTD, positions):
        return embeddings_BTD + (positions % 2)[..., None] * self.odd_D


""",
        ),
        (
            "config/model.py",
            "class NoPositionConfig",
            'class ParityConfig(Section):\n    type: Literal["parity"]\n\n\n',
        ),
        ("config/model.py", "SinusoidalConfig | RotaryConfig", "ParityConfig | "),
        (
            "model/build.py",
            "        case kinds.NoPositionConfig",
            """        case _ if config.position.type == "parity":
            from pellucid.model.positions import Parity
            return Parity(config.d_model)
""",
        ),
    ],
    "a way to attend": [
        (
            "model/attention.py",
            "class MultiHeadAttention",
            "def later_attention(q_BHTK, k_BHSK, v_BHSK, dropout, mask_TS):\n"
            "    return explicit_attention(q_BHTK, k_BHSK, v_BHSK.flip(1), dropout, mask_TS)\n\n\n",
        ),
        ("config/model.py", '"explicit", "fused"', '"later", '),
        (
            "model/build.py",
            '        case "fused"',
            """        case "later":
            from pellucid.model.attention import later_attention
            return MultiHeadAttention(attend=later_attention, **parts)
""",
        ),
    ],
    "a term of the loss": [
        (
            "objectives/next_token.py",
            "def nats_of(",
            """def squared_z(logits_BTV, targets_BT):
    z_BT = logits_BTV.float().logsumexp(dim=-1) * (targets_BT != IGNORE_INDEX)
    return z_BT.flatten().square()


""",
        ),
        ("objectives/next_token.py", ') -> Tensor:\n    """The loss of each prediction of a model', ", z_loss=0.0"),
        (
            "objectives/next_token.py",
            "    return cross_entropies(logits_BTV",
            "    if z_loss:\n        nats_N = cross_entropies(logits_BTV.flatten(0, 1), targets_BT.flatten())\n"
            "        return nats_N + z_loss * squared_z(logits_BTV, targets_BT)\n",
        ),
        ("config/post_training.py", '    type: Literal["next_token"]', "    z_loss: float = 0.0\n"),
    ],
    "a source of text": [
        ("corpora/listed.py", None, (ROOT / "tests/listed_corpus.py").read_text(encoding="utf-8")),
        (
            "config/data.py",
            "class DownloadConfig",
            'class ListedConfig(Section):\n    type: Literal["listed"]\n\n\n',
        ),
        ("config/data.py", "    FablesConfig\n    | Inst", "    ListedConfig |"),
        (
            "corpora/build.py",
            "        case languages.InstructionsConfig",
            """        case _ if config.type == "listed":
            from pellucid.corpora.listed import ListedCorpus
            return ListedCorpus({f"The {hue} {animal} sat.": 1 / 9 for hue in HUES for animal in ANIMALS})
""",
        ),
        ("corpora/build.py", "def build_corpus", 'HUES, ANIMALS = ("red", "grey", "white"), ("fox", "hen", "crow")\n'),
    ],
    "a norm": [
        (
            "model/norms.py",
            "class RMSNorm",
            """class MaxNorm(nn.Module):
    def forward(self, x_BTD):
        return x_BTD / (EPSILON + x_BTD.abs().amax(dim=-1, keepdim=True))


""",
        ),
        ("config/model.py", '"layer_norm", "rms_norm"', '"max_norm", '),
        (
            "model/build.py",
            '        case "rms_norm"',
            """        case "max_norm":
            from pellucid.model.norms import MaxNorm
            return MaxNorm()
""",
        ),
    ],
    "an optimizer": [
        (
            "training/optimizers.py",
            "def sgd",
            "def rprop(model, lr):\n    return [torch.optim.Rprop(model.parameters(), lr=lr)]\n\n\n",
        ),
        (
            "config/training.py",
            "class SGDConfig",
            'class RpropConfig(Section):\n    type: Literal["rprop"]\n    lr: LearningRate = 1e-3\n\n\n',
        ),
        ("config/training.py", "AdamWConfig | MuonConfig", "RpropConfig | "),
        (
            "training/optimizers.py",
            "        case SGDConfig",
            """        case _ if config.type == "rprop":
            return rprop(model, config.lr)
""",
        ),
    ],
    "a learning-rate schedule": [
        ("training/schedules.py", "def cosine", "def halves(step):\n    return 0.5 ** (step // 8)\n\n\n"),
        (
            "config/training.py",
            "class ConstantConfig",
            'class HalvesConfig(WarmupSection):\n    type: Literal["halves"]\n\n\n',
        ),
        ("config/training.py", "ConstantConfig | CosineConfig", "HalvesConfig | "),
        (
            "training/schedules.py",
            "        case CosineConfig",
            '        case _ if config.type == "halves":\n            return halves\n',
        ),
    ],
}


CHANGES = {
    "parts": {
        "norm": "max_norm",
        "activation": "cosine",
        "optimizer": "{type: rprop}",
        "objective": "{type: next_token, z_loss: 1.0}",
    },
    "layers": {
        "corpus": "{type: listed}",
        "activation": "bilinear",
        "position": "{type: parity}",
        "attention": "later",
        "schedule": "{type: halves}",
    },
    "models": {"model": "{type: low_rank, context_length: 32}"},
}


def test_what_the_readme_says_to_edit_is_all_there_is_to_edit(tmp_path):
    """All rows in one copy, tried in one process: to import PyTorch takes longer than most commands."""
    shutil.copytree(ROOT / "src/pellucid", tmp_path / "pellucid", ignore=shutil.ignore_patterns("__pycache__"))
    for row, edits in ADDITIONS.items():
        named = {f"src/pellucid/{file if before else file.rpartition('/')[0] + '/'}" for file, before, _ in edits}
        assert named == set(files_of_row(row))
        for file, before, code in edits:
            put_before(tmp_path / "pellucid" / file, before, code)
    for name, changes in CHANGES.items():
        (tmp_path / f"{name}.yaml").write_text(config_with(name, changes), encoding="utf-8")
    commands = [[word.replace("NAME", name) for word in command] for name in CHANGES for command in COMMANDS]
    commands.append(["schema"])
    ended = subprocess.run(
        [sys.executable, "-c", RUN_ALL, json.dumps(commands)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    for shown in ("validation: loss", "\nparameters"):
        assert ended.stdout.count(shown) >= len(CHANGES), ended.stdout
    assert "note: the grammar cannot write this: at the start" in ended.stdout  # so the new source tells its truth
    first_row = json.loads((tmp_path / "checkpoints/parts/metrics.jsonl").read_text().partition("\n")[0])
    assert first_row["train_loss"] > 20  # (log 300)^2 is 33, and a guess costs 6 nats
    for name, parts in {"parts": "MaxNorm, cosine", "layers": "Bilinear"}.items():
        refused = f"model: {parts} has no name in other programs; export a model without it"
        for where, said in {"to hf": refused, "to gguf": refused, "in a browser": parts}.items():
            assert f"{name} {where}: {said}\n" in ended.stdout


def config_with(name, changes):
    """The tiny run on fables, with these values in its sections or, where they are no section, in its model."""
    config = TINY_RUN.replace("name: tiny", f"name: {name}").replace("steps: 20", "steps: 5")
    config = re.sub(r"^corpus: .*$", "corpus: {type: fables, size: 40}", config, flags=re.MULTILINE)
    sections = ("corpus", "objective", "optimizer", "schedule", "model")
    for key in sections:
        if key in changes:
            config = re.sub(rf"^{key}: .*\n", "", config, flags=re.MULTILINE) + f"{key}: {changes[key]}\n"
    model = ", ".join(f"{key}: {value}" for key, value in changes.items() if key not in sections)
    return config.replace("model: {", f"model: {{{model}, ") if model else config


def files_of_row(row):
    """The files that the table of docs/code.md names for it, and the folder of a new one."""
    page = (ROOT / "docs/code.md").read_text(encoding="utf-8")
    (cells,) = re.findall(rf"^\| {row} \|(.*)\|$", page, re.MULTILINE)
    return re.findall(r"`(src/pellucid/[\w/]+(?:\.py)?)`", cells)


def put_before(file, text, code):
    if text is None:
        file.write_text(code, encoding="utf-8")
        return
    content = file.read_text(encoding="utf-8")
    assert text in content, f"{file.name}: {text}"
    file.write_text(content.replace(text, code + text, 1), encoding="utf-8")
