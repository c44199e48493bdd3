"""F22, F23: any prompt is read as text or refused, and any way of sampling draws valid tokens or is refused."""

import itertools
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pellucid.config.load import load_run_config
from pellucid.generation import text as text_module
from pellucid.generation.engine import in_step
from pellucid.generation.writing import Writing
from pellucid.runs.train_run import train_run
from pellucid.tokenizer import Tokenizer
from tiny_run import TINY_RUN, VERSES, Result, assert_one_error_line

Pellucid = Callable[..., Result]

CONTEXT_LENGTH = 32
FAMILY, FLAG, ASTRONAUT = "👨\u200d👩\u200d👧", "🏳\ufe0f\u200d🌈", "👩🏽\u200d🚀"
COMBINED = "e\u0301\u0323" + "a" + "\u0300" * 50
SPELLS_CONTROL_TOKENS = ["<|endoftext|>", "<|user|>The fox<|endoftext|>", "<|endof<|user|>text|>", " <|user|> " * 9]
PROMPTS = {
    "empty": "",
    "blanks": " \n\t\r\n ",
    "lone CR": "The\rfox\r",
    "emoji": "The 🦊 said",
    "joined emoji": f"{FAMILY}{FLAG}{ASTRONAUT}",
    "joiners alone": "\u200d\u200d",
    "combining marks": COMBINED,
    "half of a cluster": "\u0301",
    "a byte-order mark": "\ufeffThe",
    "a replacement character": "\ufffd",
    "edges of Unicode": "\x01\x7f\x80\u2028\ue000\uffff\U0010ffff",
    "right to left": "\u202eשלום",
    **{f"spells {text!r}": text for text in SPELLS_CONTROL_TOKENS},
}
LONG_PROMPTS = {"70 kilobytes of words": "The fox said: " * 5_000}  # in the long form a megabyte
LONGER_PROMPTS = {
    "a megabyte of words": "The fox said: " * 75_000,
    "a megabyte without a blank": "e" * 1_000_000,
    "a megabyte of foxes": "🦊" * 250_000,
}
# A text file that holds these is refused, so a character vocabulary never has them.
PROMPTS_FOR_BYTES = {"NUL": "a\0b", "NULs": "\0" * 99, "a character of no corpus": "猫"}


class Watch:
    """Sees every token id that goes into the decoding loop, and all that come out."""

    def __init__(self) -> None:
        self.writings: list[Writing] = []

    def __call__(self, model: object, writings: list[Writing], **options: object) -> Iterator[None]:
        self.writings = writings
        return in_step(model, writings, **options)  # type: ignore[arg-type]

    @property
    def read(self) -> list[int]:
        return list(self.writings[0].prompt_ids)

    @property
    def drawn(self) -> list[int]:
        return [id_ for writing in self.writings for id_ in writing.token_ids]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    monkeypatch.setattr(text_module, "in_step", watch)
    return watch


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs of two steps, `bpe` and `char`, whose corpus has every character of PROMPTS."""
    place = tmp_path_factory.mktemp("prompts")
    characters = sorted(set("".join(PROMPTS.values())) - {"\ufeff"})
    (place / "corpus.txt").write_text(f"{VERSES}\n\n{''.join(characters)}\ufeff\n\n{VERSES}", newline="")
    (place / "tiny.yaml").write_text(TINY_RUN.replace("steps: 20", "steps: 2"))
    for kind in ("bpe, vocab_size: 300", "char"):
        tokenizer = f'tokenizer={{type: {kind}, special_tokens: ["<|endoftext|>", "<|user|>"]}}'
        config = load_run_config(place / "tiny.yaml", [tokenizer, f"corpus.files=[{place / 'corpus.txt'}]"])
        run = place / kind.split(",")[0]
        train_run(config, place / "data", run, resume=False, overwrite=False, note=lambda line: None)
    return place


def tokenizer_of(run: Path) -> Tokenizer:
    return Tokenizer.load(run / "tokenizer.json")


def of_exactly(n_tokens: int, tokenizer: Tokenizer) -> str:
    """A start of the verses."""
    return next(text for i in range(999) if len(tokenizer.encode(text := VERSES[:i])) == n_tokens)


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_f22_a_prompt_is_read_as_text(place, pellucid: Pellucid, watch: Watch, tally, soak, tmp_path, kind):
    """No control id comes from text, and the text that is streamed, the decoded ids and the JSON are the same."""
    run = place / kind
    tokenizer = tokenizer_of(run)
    lengths = {f"{n} tokens": of_exactly(n, tokenizer) for n in range(CONTEXT_LENGTH - 2, CONTEXT_LENGTH + 3)}
    prompts = (
        PROMPTS | lengths | (LONGER_PROMPTS if soak else LONG_PROMPTS) | (PROMPTS_FOR_BYTES if kind == "bpe" else {})
    )
    for name, prompt in prompts.items():
        with tally.attempt(f"{kind}: {name}"):
            (tmp_path / "prompt").write_text(prompt, encoding="utf-8", newline="")
            prompt = prompt.removeprefix("\ufeff")  # it says how the file is written, and is not of the text
            arguments = ("generate", run, "--prompt-file", tmp_path / "prompt", "--seed", 1, "--max-new-tokens", 12)
            streamed = pellucid(*arguments)
            assert streamed.exit_code == 0, streamed.stderr
            [sample] = json.loads(pellucid(*arguments, "--json").stdout)["samples"]

            assert watch.read[0] == tokenizer.end_of_text
            assert not set(watch.read[1:]) & set(tokenizer.control_ids)
            assert tokenizer.decode(watch.read) == prompt
            assert not set(watch.drawn) & (set(tokenizer.control_ids) - {tokenizer.end_of_text})
            assert sample["prompt"] == prompt
            assert sample["completion"] == tokenizer.decode(watch.drawn)
            assert streamed.stdout == prompt + sample["completion"] + "\n"
            n_unread = max(0, len(watch.read) - 1 - CONTEXT_LENGTH)
            assert (f"its first {n_unread} tokens were not read" in streamed.stderr) == (n_unread > 0)


@pytest.mark.parametrize("content", [b"\xff", b"fox \xed\xa0\xbe", "fox".encode("utf-16")])
def test_f22_a_prompt_file_that_is_no_text_is_refused(place, pellucid: Pellucid, tmp_path, content):
    (tmp_path / "prompt").write_bytes(content)
    result = pellucid("generate", place / "bpe", "--prompt-file", tmp_path / "prompt")
    at = 0 if content[0] > 0x7F else 4
    assert_one_error_line(result, 2, f"byte {at} is not UTF-8")


def test_f23_every_way_of_sampling_draws_valid_tokens_or_is_refused(
    place, pellucid: Pellucid, watch: Watch, tally, soak
):
    """In the long form with more of each; `generation/test_sampling.py` draws with each at once."""
    tokenizer = tokenizer_of(place / "bpe")
    vocab_size = tokenizer.vocab_size
    possible = set(range(vocab_size)) - (set(tokenizer.control_ids) - {tokenizer.end_of_text})
    temperatures = (0.0, 1e-30, 1e-4, 1e4, math.nan, -1.0) if soak else (0.0, 1e4, math.nan)
    top_ks = (0, 1, vocab_size, vocab_size + 1, 2**31) if soak else (0, vocab_size + 1)
    top_ps = (0.0, 1.0, 1.1) if soak else (1.0, 1.1)
    for temperature, top_k, top_p in itertools.product(temperatures, top_ks, top_ps):
        for seed in range(10) if soak else (0,):
            with tally.attempt(f"temperature {temperature}, top-k {top_k}, top-p {top_p}, seed {seed}"):
                watch.writings = []
                options = ("--temperature", temperature, "--top-k", top_k, "--top-p", top_p, "--seed", seed)
                lengths = ("--num-samples", 32 if soak else 2, "--max-new-tokens", 12)
                result = pellucid("generate", place / "bpe", *options, *lengths, "--json")
                if temperature >= 0 and top_k >= 1 and 0 < top_p <= 1:
                    assert result.exit_code == 0, result.stderr
                    assert watch.drawn
                    assert set(watch.drawn) <= possible
                else:
                    assert_one_error_line(result, 2)
                    assert watch.drawn == []
                    assert result.stdout == ""
