"""Pellucid beside the programs that people would take instead: transformers, nanoGPT's model and llama.cpp.

Remakes: training beside others, demo update, decoding beside others, decoding in int8
Takes: 6 minutes
Needs: transformers; xllamacpp and gguf for llama.cpp; a folder with nanoGPT's model.py, if --nanogpt names it

What is missing is left out. All take turns, with as many threads each. A row gives tokens per second of CPU time, that
of all threads, and how many times as fast Pellucid is: the median, the lowest and the highest of the rounds, by CPU
time and by the clock.

    training   a decoder of GPT-2's design with AdamW, on the same random tokens, in the machine's best number format
    decoding   the most likely tokens after a prompt, by a Llama with the same weights in all programs, in float32;
               q8_0 and q4_0 are our GGUF file with all matrices in 8 and in 4 bits, int8 is `pellucid quantize`
"""

import copy
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

import torch
from measurements import llama_cpp
from measurements.rivals import Shape, hugging_face_updates, nanogpt_updates, pellucid_trainer
from results import Entry, here
from runs import FABLES
from timing import Seconds, cpu_and_clock, take_turns

from pellucid.adapters.lora import merge
from pellucid.adapters.quantized import quantize
from pellucid.config.load import load_run_config
from pellucid.config.model import DecoderConfig
from pellucid.exchange.architectures import to_hugging_face
from pellucid.exchange.gguf import write_gguf
from pellucid.generation.engine import in_step
from pellucid.generation.sampling import Sampling
from pellucid.generation.writing import Writing
from pellucid.kernels.freed_memory import keep_freed_memory
from pellucid.model.build import build_model
from pellucid.model.decoder import Decoder
from pellucid.recipe import build_trainer, prepare_data
from pellucid.runtime.precision import Precision, resolve_precision
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.train import train_byte_pairs

NANOGPT = "https://github.com/karpathy/nanoGPT"
TRAINED = {  # shape, and updates a turn
    "4L d128": (Shape(8, 128, vocab_size=4096, d_model=128, n_layers=4, n_heads=4), 4),
    "6L d384": (Shape(4, 128, vocab_size=8192, d_model=384, n_layers=6, n_heads=6), 2),
}
DEMO_UPDATES = 3  # a turn
CONTEXT, N_BYTES = 640, 256
LLAMA: dict[str, Any] = {"norm": "rms_norm", "activation": "swiglu", "position": {"type": "rope"}}
D384 = {**LLAMA, "d_model": 384, "n_layers": 6, "n_heads": 6, "d_ff": 1024}  # with 8,192 tokens: 14 million parameters
D576 = {**LLAMA, "d_model": 576, "n_layers": 12, "n_heads": 9, "d_ff": 1536}  # 52
GPT2: dict[str, Any] = {"activation": "gelu_tanh", "position": {"type": "learned"}, "bias": True}
D768 = {**GPT2, "d_model": 768, "n_layers": 12, "n_heads": 12}  # with 50,257 tokens: 124


@dataclass(frozen=True)
class Texts:
    """What is asked for: so many texts at the same time, each with a prompt of its own and of this length."""

    n: int
    n_read: int
    n_written: int

    @property
    def tokens(self) -> int:
        """Those that count: all that are written, or, where that is but one, all that are read."""
        return self.n * (self.n_written if self.n_written > 1 else self.n_read)

    def prompts(self) -> list[list[int]]:
        prompts: list[list[int]] = torch.randint(
            N_BYTES, (self.n, self.n_read), generator=torch.Generator().manual_seed(0)
        ).tolist()
        return prompts


ONE, EIGHT, PROMPT = "1 sequence", "8 sequences", "a prompt of 512"
ASKED = {ONE: Texts(1, 16, 128), EIGHT: Texts(8, 16, 64), PROMPT: Texts(1, 512, 1)}
OURS, OUR_INT8, TRANSFORMERS, LLAMA_CPP = "Pellucid", "Pellucid in int8", "transformers", "llama.cpp"
LLAMA_CPPS: dict[str, Literal["fp32", "q8_0", "q4_0"]] = {  # and the number format of its file
    f"{LLAMA_CPP} f32": "fp32",
    f"{LLAMA_CPP} q8_0": "q8_0",
    f"{LLAMA_CPP} q4_0": "q4_0",
}
IN_FLOAT32, *IN_FEWER_BITS = LLAMA_CPPS
PAIRS = (
    *((OURS, theirs) for theirs in (TRANSFORMERS, IN_FLOAT32, *IN_FEWER_BITS)),
    *((OUR_INT8, theirs) for theirs in (OURS, IN_FEWER_BITS[0])),
)
BESIDE_ALL = (OURS, OUR_INT8, TRANSFORMERS, IN_FLOAT32, *IN_FEWER_BITS)
DECODED = {  # the model, its vocabulary, what is asked of it, and beside whom
    "6L d384": (D384, 8192, (ONE, EIGHT, PROMPT), BESIDE_ALL),
    "12L d576": (D576, 8192, (ONE, EIGHT, PROMPT), BESIDE_ALL),
    "GPT-2 124M": (D768, 50257, (PROMPT,), (OURS, TRANSFORMERS)),
}

Write = Callable[[Texts], int]  # returns how many tokens it wrote
Rows = dict[str, dict[str, float]]
KINDS = {"cpu": "CPU time", "clock": "the clock"}


def measure(*, nanogpt: Path | None = None, rounds: int = 5) -> Iterator[Entry]:
    """nanogpt: a clone of nanoGPT, whose model.py is trained beside ours."""
    if nanogpt and not (nanogpt / "model.py").exists():
        sys.exit(f"error: --nanogpt {nanogpt}: there is no model.py; name a clone of {NANOGPT}")
    left_out = {
        f"nanoGPT is left out: name a clone of {NANOGPT} with --nanogpt": nanogpt is None,
        "transformers is left out: pip install transformers": not is_here("transformers"),
        "llama.cpp is left out: pip install xllamacpp gguf": not is_here("xllamacpp", "gguf"),
    }
    for line in (line for line, is_out in left_out.items() if is_out):
        print(line, flush=True)
    keep_freed_memory()
    precision = resolve_precision("auto", "auto")
    trained, decoded = Rows(), Rows()
    for name, of in TRAINED.items():
        trained |= training(name, *of, precision, nanogpt, rounds)
    yield Entry(here("training beside others"), trained)
    yield Entry(here("demo update"), {"an update": update_of_the_demo(rounds)}, ["fables/shape"])
    for name, each in DECODED.items():
        decoded |= decoding(name, *each, rounds)
    of_int8 = {name: row for name, row in decoded.items() if "in int8" in name}
    others = {name: row for name, row in decoded.items() if name not in of_int8}
    yield Entry(here("decoding beside others"), others, numbers="fp32")
    yield Entry(here("decoding in int8"), of_int8, numbers="fp32")


def is_here(*packages: str) -> bool:
    return all(importlib.util.find_spec(package) for package in packages)


def beside(times: Mapping[str, list[Seconds]], ours: str, theirs: str, tokens: int) -> dict[str, float]:
    """A row: how fast both are, and the ratios of the turns of one round."""
    row: dict[str, float] = {}
    for name, who in (("ours", ours), ("theirs", theirs)):
        row[name] = tokens / median(each.cpu for each in times[who])
    for kind, name in KINDS.items():
        pairs = zip(times[theirs], times[ours], strict=True)
        row |= spread("ratio", name, [getattr(other, kind) / getattr(own, kind) for other, own in pairs])
    return row


def spread(what: str, by: str, values: Sequence[float]) -> dict[str, float]:
    return {f"{what} by {by}": median(values), f"lowest by {by}": min(values), f"highest by {by}": max(values)}


def training(name: str, shape: Shape, updates: int, precision: Precision, nanogpt: Path | None, rounds: int) -> Rows:
    """Our updates beside theirs."""
    works: dict[str, Callable[[], object]] = {OURS: pellucid_trainer(shape, precision).update}
    if is_here("transformers"):
        works[TRANSFORMERS] = hugging_face_updates(shape, precision)
    if nanogpt:
        works["nanoGPT"] = nanogpt_updates(shape, precision, nanogpt)
    times = take_turns({who: partial(cpu_and_clock, work, updates) for who, work in works.items()}, rounds)
    tokens = updates * shape.batch_size * shape.context_length
    return {f"{name}, beside {theirs}": beside(times, OURS, theirs, tokens) for theirs in list(works)[1:]}


def update_of_the_demo(rounds: int) -> dict[str, float]:
    """Milliseconds, with all threads of one process."""
    config = load_run_config(FABLES, ["corpus.size=2000"])
    trainer, _ = build_trainer(config, prepare_data(config, Path("data")))
    [turns] = take_turns({OURS: partial(cpu_and_clock, trainer.update, DEMO_UPDATES)}, rounds).values()
    row: dict[str, float] = {}
    for kind, name in KINDS.items():
        row |= spread("ms", name, [1000 * getattr(turn, kind) / DEMO_UPDATES for turn in turns])
    return row


def decoding(
    name: str, sizes: dict[str, Any], vocab_size: int, asked: Sequence[str], programs: Sequence[str], rounds: int
) -> Rows:
    """Our decoding beside theirs."""
    config = DecoderConfig.model_validate({**sizes, "context_length": CONTEXT})
    model = build_model(config, vocab_size).eval()
    writers = writers_of(config, model, programs)
    rows: Rows = {}
    for what in asked:
        texts = ASKED[what]
        turns = {who: partial(cpu_and_clock, partial(all_of, write, texts)) for who, write in writers.items()}
        times = take_turns(turns, rounds)
        for ours, theirs in PAIRS:
            if {ours, theirs} <= times.keys():
                label = f"{name}{ours.removeprefix(OURS)}, {what}, beside {theirs}"
                rows[label] = beside(times, ours, theirs, texts.tokens)
    return rows


def all_of(write: Write, texts: Texts) -> None:
    written = write(texts)
    assert written == texts.n * texts.n_written, f"{written} tokens of {texts}"


def writers_of(config: DecoderConfig, model: Decoder, programs: Sequence[str]) -> dict[str, Write]:
    """The programs that are here, all with this model."""
    writers: dict[str, Write] = {OURS: pellucid_writer(model)}
    if OUR_INT8 in programs:
        writers[OUR_INT8] = pellucid_writer(in_int8(model))
    if TRANSFORMERS in programs and is_here("transformers"):
        writers[TRANSFORMERS] = hugging_face_writer(hugging_face_model(config, model))
    if IN_FLOAT32 in programs and is_here("xllamacpp", "gguf"):
        for program, precision in LLAMA_CPPS.items():
            file, tokenizer = Path(f"{precision}.gguf"), tokenizer_of(model.vocab_size)
            write_gguf(config, model.state_dict(), tokenizer, file, name="model", precision=precision)
            writers[program] = llama_cpp_writer(file, in_float32=program == IN_FLOAT32)
    return writers


def tokenizer_of(vocab_size: int) -> Tokenizer:
    """The bytes and "the", and control tokens for the rest: a GGUF file must hold a vocabulary, and merges."""
    texts, end = ["the the"], "<|endoftext|>"
    n_spare = vocab_size - train_byte_pairs(texts, vocab_size=vocab_size, special_tokens=[end]).vocab_size
    spare = [f"<|spare {i}|>" for i in range(n_spare)]
    return train_byte_pairs(texts, vocab_size=vocab_size, special_tokens=[end, *spare])


def in_int8(model: Decoder) -> Decoder:
    """A copy as `pellucid generate` has it after `pellucid quantize`."""
    quantize(smaller := copy.deepcopy(model), "int8")
    merge(smaller)
    return smaller


def pellucid_writer(model: Decoder) -> Write:
    def write(texts: Texts) -> int:
        writings = [
            Writing(prompt, texts.n_written, Sampling(temperature=0), (0, i))
            for i, prompt in enumerate(texts.prompts())
        ]
        for _ in in_step(model, writings, stop_ids=()):
            pass
        return sum(len(writing.token_ids) for writing in writings)

    return write


def hugging_face_model(config: DecoderConfig, model: Decoder) -> Any:
    """The same function as a model of transformers, which never ends a text."""
    import transformers

    transformers.logging.set_verbosity_error()
    hf_config, tensors = to_hugging_face(config, model.state_dict(), model.vocab_size)
    theirs = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**hf_config))
    theirs.load_state_dict(tensors, strict=False)  # it has a tied matrix under two names
    theirs.generation_config.eos_token_id = None
    return theirs.eval()


def hugging_face_writer(theirs: Any) -> Write:
    def write(texts: Texts) -> int:
        prompts_BT = torch.tensor(texts.prompts())
        settings = {"do_sample": False, "max_new_tokens": texts.n_written, "pad_token_id": 0}
        written = theirs.generate(prompts_BT, attention_mask=torch.ones_like(prompts_BT), **settings)
        return int(written[:, texts.n_read :].numel())

    return write


def llama_cpp_writer(file: Path, *, in_float32: bool = False) -> Write:
    most, threads = max(texts.n for texts in ASKED.values()), torch.get_num_threads()
    server = llama_cpp.served(file, context=CONTEXT, texts=most, threads=threads, in_float32=in_float32)
    write = llama_cpp.writer(server)
    return lambda texts: write(texts.prompts(), texts.n_written)
