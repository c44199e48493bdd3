"""The Fourier spectrum of the embeddings of numbers, for runs that learned sums modulo p.

Remakes: docs/experiments/sums/spectrum.png
Takes: a few seconds
Needs: runs of `pellucid experiment configs/experiments/sums.yaml`: checkpoints/experiments/sums/runs/*-seed0-*

A model that adds modulo p can turn a number n into angles: for a few frequencies k, its embedding holds cos(2πkn/p) and
sin(2πkn/p). Then the spectrum of the embedding, as a function of the number n, has a few peaks, and that of random
weights is flat (Nanda et al. 2023).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from results import ROOT

from pellucid.config.languages import SumsConfig
from pellucid.figures import PALETTE, new_figure
from pellucid.model.language_model import LanguageModel
from pellucid.trained import TrainedModel, load_trained_run

FILE = ROOT / "docs/experiments/sums/spectrum.png"
N_PEAKS = 5


def draw(*runs: Path, to: Path = FILE) -> list[Path]:
    spectra([load_trained_run(run)[0] for run in runs]).savefig(to, dpi=150)
    return [to]


def spectra(runs: Sequence[TrainedModel]) -> Figure:
    """A panel for each."""
    figure = new_figure("The embeddings of numbers, as a sum of waves", 7.5, 1.0 + 1.7 * len(runs))
    panels = figure.subplots(len(runs), squeeze=False, sharex=True).flat
    for axes, trained in zip(panels, runs, strict=True):
        after, before = (spectrum_of(trained, model) for model in (trained.model, trained.untrained()))
        frequencies = np.arange(1, len(after) + 1)
        axes.bar(frequencies, 100 * after, color=PALETTE[0], label="trained")
        axes.step(frequencies, 100 * before, where="mid", color="black", linewidth=1, label="untrained")
        peaks, flat = share_of_peaks(after), share_of_peaks(before)
        title = f"{trained.config.name}: {peaks:.0%} in the five strongest frequencies, untrained {flat:.0%}"
        axes.set_title(title, loc="left")
        axes.set_ylabel("power (%)")
    axes.set_xlabel("frequency: waves around the circle of numbers")
    axes.legend()
    return figure


def spectrum_of(trained: TrainedModel, model: LanguageModel) -> NDArray[np.float64]:
    """The share of each frequency 1 … (p − 1) / 2 in the power of the embeddings of 0 … p − 1, their mean left out."""
    corpus = trained.config.corpus
    if not isinstance(corpus, SumsConfig) or corpus.modulus is None:
        raise SystemExit("take a run of corpus.type sums with a modulus")
    ids = [trained.tokenizer.encode(f" {n}") for n in range(corpus.modulus)]
    if any(len(each) != 1 for each in ids):
        raise SystemExit("each number must be one token; raise tokenizer.vocab_size")
    embedding_PD = model.embeddings.embedding_VD.detach()[[each[0] for each in ids]].double().numpy()
    power_K = (np.abs(np.fft.rfft(embedding_PD, axis=0)) ** 2).sum(axis=1)[1:]
    return power_K / power_K.sum()


def share_of_peaks(spectrum_K: NDArray[np.float64]) -> float:
    """The share of the five strongest frequencies."""
    return float(np.sort(spectrum_K)[-N_PEAKS:].sum())
