"""The spectrum of the embeddings of numbers: a wave has its own frequency, and a run's picture is drawn."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from drawings.spectrum import draw, share_of_peaks, spectrum_of

import in_this_process
from pellucid.config.languages import SumsConfig

TINY = """\
name: sums
corpus: {type: sums, modulus: 7, size: 60}
tokenizer: {type: bpe, vocab_size: 280}
data: {packing: documents}
model: {context_length: 6, d_model: 8, n_layers: 1, n_heads: 2}
optimizer: {type: adamw, lr: 1e-2}
schedule: {type: constant}
train: {steps: 1, batch_size: 2, device: cpu, precision: fp32}
"""


def test_the_power_of_a_wave_is_at_its_frequency():
    p, k = 11, 3
    angles = 2 * math.pi * k * torch.arange(p) / p
    numbers = SimpleNamespace(encode=lambda text: [int(text)])
    config = SimpleNamespace(corpus=SumsConfig(type="sums", modulus=p))
    wave_VD = torch.stack([torch.cos(angles), torch.sin(angles), torch.full((p,), 5.0)], dim=1)
    model = SimpleNamespace(embeddings=SimpleNamespace(embedding_VD=wave_VD))
    spectrum = spectrum_of(SimpleNamespace(config=config, tokenizer=numbers), model)
    assert spectrum.tolist() == pytest.approx([0, 0, 1, 0, 0], abs=1e-6)
    assert share_of_peaks(spectrum) == pytest.approx(1)


def test_the_spectrum_of_a_run_is_drawn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sums.yaml").write_text(TINY)
    in_this_process.pellucid(["train", "sums.yaml"])
    [file] = draw(Path("checkpoints/sums"), to=Path("spectrum.png"))
    assert file.stat().st_size > 1000
