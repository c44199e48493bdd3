"""A checkpoint as a model ready for use: to write, to be evaluated, to start another run from."""

from dataclasses import dataclass
from pathlib import Path

import torch

from pellucid.adapters.build import adapt
from pellucid.adapters.lora import merge
from pellucid.adapters.quantized import quantize
from pellucid.checkpoint.run_directory import find_step_directory, run_of, step_directories
from pellucid.checkpoint.step_directory import MODEL_FILE, Checkpoint, State, Tensors, read_checkpoint
from pellucid.checkpoint.training_state import (
    first_not_finite,
    load_first_weights,
    load_model_tensors,
    model_tensors,
    require_fit,
)
from pellucid.config.data import CorpusConfig
from pellucid.config.load import parse_run_config
from pellucid.config.post_training import Quantization
from pellucid.config.run import RunConfig
from pellucid.corpora.build import build_corpus
from pellucid.corpora.corpus import Corpus
from pellucid.data.prepare import fingerprint_of
from pellucid.errors import CheckpointError, ConfigError, DataError
from pellucid.files import sha256
from pellucid.model.build import build_model
from pellucid.model.language_model import LanguageModel
from pellucid.runtime.precision import Precision, precision_here
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.build import tokenizer_settings

OTHER_VERSION = "use the version of Pellucid that wrote it"


@dataclass(frozen=True)
class TrainedModel:
    """A checkpoint as generation and evaluation need it: model, tokenizer and config."""

    config: RunConfig
    tokenizer: Tokenizer
    model: LanguageModel
    step: int
    data_fingerprint: str

    def corpus(self) -> Corpus:
        """The corpus that it was trained on: its truth is the only one by which the model may be judged.

        CheckpointError if the corpus is another one now; DataError if it cannot be read.
        """
        corpus, config = build_corpus(self.config.corpus), self.config
        settings = tokenizer_settings(config.tokenizer, of_run=self.tokenizer)
        if fingerprint_of(corpus.identity, settings) != self.data_fingerprint:
            fix = "bring back the files, or the version of Pellucid, that it was trained with, or train again"
            raise CheckpointError(f"run {config.name}", "its corpus has changed since training", fix)
        return corpus

    def untrained(self) -> LanguageModel:
        """A model like this one with the initial weights of the run's seed, for comparison."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.config.seed)
            model = build_model(self.config.model, self.tokenizer.vocab_size)
        return model.to(next(self.model.parameters()).device).eval()


def give_tool(model: LanguageModel, corpus: CorpusConfig, tokenizer: Tokenizer) -> None:
    """Let the tool of this language answer whenever the model writes."""
    from pellucid.generation.environment import tool_of  # few languages have one

    model.environment = tool_of(corpus, tokenizer)


@dataclass(frozen=True)
class Base:
    """The checkpoint that another run starts from. Its adapter is merged into the weights, if it has one."""

    directory: Path
    checkpoint: Checkpoint
    weights: Tensors
    quantization: Quantization

    @property
    def run(self) -> Path:
        return run_of(self.directory)

    @property
    def config(self) -> RunConfig:
        return config_of(self.checkpoint, str(self.directory))

    @property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.from_json(self.checkpoint.tokenizer_json, f"{self.directory}/tokenizer.json")

    @property
    def sha256(self) -> str:
        """The hash of the weights. A run that needs them later saves it."""
        return sha256(self.directory / MODEL_FILE)

    def load_into(self, model: LanguageModel, config: RunConfig) -> None:
        """Copy the weights into the model; quantize them and add the adapter, if the config says so.

        Raises CheckpointError, naming a tensor, if one has another shape.
        """
        if self.quantization != "none":
            quantize(model, self.quantization)
        load_first_weights(model, self.weights, config.seed, str(self.directory))
        adapt(model, config.quantization, config.adapter)


def load_trained_model(step_directory: Path) -> TrainedModel:
    """Check a step directory and load its model on the CPU, with adapters merged and weights dequantized.

    Raises CheckpointError if it is damaged, its weights do not fit its config or are not finite, or the base of its
    adapter is gone.
    """
    return trained_model(read_checkpoint(step_directory), step_directory)


def trained_model(checkpoint: Checkpoint, step_directory: Path) -> TrainedModel:
    """Build the trained model of a checkpoint that was read from `step_directory`. Raises CheckpointError."""
    if (culprit := first_not_finite(checkpoint.model)) is not None:
        what = f"{culprit} holds NaN or infinity, and would write nonsense"
        raise CheckpointError(str(step_directory), what, "use another checkpoint of the run")
    trained = _build(checkpoint, step_directory)
    merge(trained.model)
    return trained


def find_checkpoint(run: Path, which: str) -> tuple[Checkpoint, Path]:
    """The checkpoint that RUN and best|latest|STEP name, and its folder.

    Training may delete it at any time, so this looks once more if it disappears before it is read. Raises
    CheckpointError as `find_step_directory` and `read_checkpoint` do.
    """
    step_directory = find_step_directory(run, which)
    try:
        return read_checkpoint(step_directory), step_directory
    except CheckpointError:
        if step_directory.exists():
            raise
    step_directory = find_step_directory(run, which)
    return read_checkpoint(step_directory), step_directory


def load_trained_run(run: Path, which: str = "best") -> tuple[TrainedModel, Precision]:
    """The model that RUN and best|latest|STEP name, on the device and in the precision that it was trained with.

    A machine without these warns and uses its own. Raises CheckpointError as `find_checkpoint` does.
    """
    trained = trained_model(*find_checkpoint(run, which))
    precision = precision_here(trained.config.train.device, trained.config.train.precision)
    trained.model.to(precision.device)
    return trained, precision


def verify(step_directory: Path) -> State:
    """Check a checkpoint and return its state: hashes, shapes, finite numbers. Raises CheckpointError."""
    checkpoint = read_checkpoint(step_directory)
    require_fit(_build(checkpoint, step_directory).model, checkpoint, str(step_directory))
    return checkpoint.state


def config_of(checkpoint: Checkpoint, where: str) -> RunConfig:
    """The config that the run was trained with. Raises CheckpointError if this version cannot read it.

    A vocabulary that came from a file is now read from the checkpoint: the file may be gone.
    """
    try:
        config = parse_run_config(checkpoint.config_yaml, f"{where}/config.yaml")
    except ConfigError as error:
        raise CheckpointError(error.where, error.what, OTHER_VERSION) from None
    return with_own_tokenizer(config, Path(where))


def with_own_tokenizer(config: RunConfig, folder: Path) -> RunConfig:
    """The config; if it names a vocabulary file, it now names the one in this folder."""
    if config.tokenizer.type != "file":
        return config
    tokenizer = config.tokenizer.model_copy(update={"path": (folder / "tokenizer.json").as_posix()})
    return config.model_copy(update={"tokenizer": tokenizer})


def find_base(run: Path, digest: str | None, directory: Path) -> Path:
    """The folder of the checkpoint of `run` whose weights have this SHA-256, which the checkpoint `directory` needs.

    The config's path is relative to the folder in which the run was trained; so it is also looked for from each
    folder above the run, and beside it. CheckpointError if it is gone.
    """
    above = run_of(directory.resolve()).parents
    beside = above[0] / run.name
    for candidate in dict.fromkeys([run, beside, *(folder / run for folder in above)]):
        for step in step_directories(candidate):
            if (step / MODEL_FILE).is_file() and sha256(step / MODEL_FILE) == digest:
                return step
    what = "the weights that this run started from, and still needs, are"
    what += " no longer here" if run.resolve() == beside else f" neither here nor in {beside}"
    raise CheckpointError(str(run), what, "bring that checkpoint back")


def base_in(directory: Path, above: tuple[Path, ...] = ()) -> Base:
    """Read a checkpoint to start from. Its adapter is merged, so that the next run needs only one base.

    above: the checkpoints that start from it. Raises CheckpointError if it is one of them, or damaged.
    """
    if directory in above:
        raise CheckpointError(str(directory), "damaged: it starts from itself", "use another checkpoint of the run")
    checkpoint = read_checkpoint(directory)
    config = config_of(checkpoint, str(directory))
    if config.adapter is None:
        return Base(directory, checkpoint, checkpoint.model, config.quantization)
    model = _build(checkpoint, directory, above).model
    merge(model)
    return Base(directory, checkpoint, model_tensors(model), "none")


def _require_possible(config: RunConfig, tensors: Tensors, where: str) -> None:
    """Raise CheckpointError for a config whose model is larger than the weights, before memory is allocated for it.

    Each layer has at least one tensor and, unless only an adapter is stored, a matrix as large as a feed-forward one.
    """
    sizes = {"n_layers": 1, "d_model": 1, **config.model.model_dump()}
    n_layers, d_model = sizes["n_layers"], sizes["d_model"]
    n_numbers = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) * 2  # of four bits at least
    is_whole = config.adapter is None
    if n_layers > len(tensors) or (is_whole and n_layers * d_model * (sizes.get("d_ff") or d_model) > n_numbers):
        what = "damaged: the model that config.yaml describes is larger than the weights that are here"
        raise CheckpointError(where, what, "use another checkpoint of the run")


def _build(checkpoint: Checkpoint, directory: Path, above: tuple[Path, ...] = ()) -> TrainedModel:
    """Build the model as it was trained: with its adapter, around the weights of its base."""
    where = str(directory)
    config = config_of(checkpoint, where)
    try:
        tokenizer = Tokenizer.from_json(checkpoint.tokenizer_json, f"{where}/tokenizer.json")
    except DataError as error:
        raise CheckpointError(error.where, error.what, OTHER_VERSION) from None
    _require_possible(config, checkpoint.model, where)
    model = build_model(config.model, tokenizer.vocab_size, learns_scores=config.learns_scores)
    if config.adapter is not None and config.base_run is not None:
        base = find_base(config.base_run[0], checkpoint.state.base_sha256, directory)
        base_in(base, (*above, directory)).load_into(model, config)
    else:
        adapt(model, config.quantization, config.adapter)
    load_model_tensors(model, checkpoint.model, where)
    if getattr(config.corpus, "thoughts", "none") == "tool":
        give_tool(model, config.corpus, tokenizer)
    return TrainedModel(config, tokenizer, model.eval(), checkpoint.state.step, checkpoint.state.data_fingerprint)
