"""A fault of a config is one line: which key, what, and how to fix it. Below stands one for each kind of fault.

That the line of the file is right for each key of the schema, tests/faults/test_bad_config.py shows.
"""

import re
from typing import Annotated, Literal

import pytest
from pydantic import Field, ValidationError

from pellucid.config.base import Section
from pellucid.config.faults import explain
from pellucid.config.load import parse_run_config
from pellucid.errors import ConfigError
from small_config import SMALL

CORPORA = "fables, instructions, grammar, chains, lookup, hops, brackets, sums, hidden, trees, text, hugging_face"


def error_of(*overrides: str, text: str = SMALL) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_run_config(text, "small.yaml", overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix("command line: ")


def cases(table: str) -> list[tuple[str, str]]:
    """The overrides of each case, and the error that stands below them, indented."""
    matches = re.findall(r"^(\S.*)\n    (.*(?:\n    .*)*)", table, re.M)
    return [(case, error.replace("\n    ", " ")) for case, error in matches]


# Each kind of fault that a value may have, in the order of `WORDS`; then those of keys and types.
VALUES = r"""
train.steps='100'
    train.steps: '100' is of the wrong type; give a whole number
train.steps=1e3
    train.steps: 1000.0 is of the wrong type; give a whole number: 1000
seed=99999999999999999999
    seed: this number is too large; give one of at most 18 digits
optimizer.lr=fast
    optimizer.lr: 'fast' is of the wrong type; give a number
optimizer.lr=.nan
    optimizer.lr: nan is of the wrong type; give a finite number
corpus={type: text, files: [a, 3]}
    corpus.files.1: 3 is of the wrong type; give text
train.compile=yes
    train.compile: 'yes' is of the wrong type; give true or false
trackers=wandb
    trackers: 'wandb' is of the wrong type; give a list, as "trackers=[wandb]"
model=3
    model: 3 is of the wrong type; give a section of keys and values
corpus=type:text
    corpus: 'type:text' is of the wrong type; give a section of keys and values, quoted:
    "corpus={type: text, files: [a.txt]}"
optimizer.lr=-1
    optimizer.lr: -1 is out of range; give a value greater than 0.0
model.attention={type: sliding_window, window: 0}
    model.attention.window: 0 is out of range; give a value of at least 1
optimizer.betas=[0.9, 2]
    optimizer.betas.1: 2 is out of range; give a value less than 1.0
sample.top_p=2
    sample.top_p: 2 is out of range; give a value of at most 1.0
optimizer.betas=[0.9]
    optimizer.betas: too few values; give a longer list
optimizer.betas=[0.9, 0.9, 0.9]
    optimizer.betas: too many values; give a shorter list
train.device=gpu
    train.device: 'gpu' is not a choice; use 'auto', 'cpu', 'cuda' or 'mps'
objective={type: masked}
    objective.type: masked needs a model that sees both sides; set model.attention_mask to none
model.attention_mask=none
    model.attention_mask: next_token needs a model that sees no later token; set model.attention_mask to causal
train.gradient_checkpointing=1
    train.gradient_checkpointing: 1 is not a choice; use 'none', 'attention', 'cheap' or 'block'
model.attention=linaer
    model.attention: 'linaer' is not a choice; use 'explicit', 'fused' or 'linear' or give a section of keys and values
model.attention=sliding_window
    model.attention: a sliding window needs its width; write {type: sliding_window, window: 64}
model.attention={type: linear}
    model.attention: 'linear' has no knobs; write the word alone, as `attention: linear`
name=my run
    name: 'my run' is not accepted; use letters, digits, '.', '_' and '-', the first a letter or a digit
corpus={type: hugging_face, path: json, data_files: 5}
    corpus.data_files: 5 is of the wrong type; give text
corpus={type: hugging_face, path: json, data_files: {train: [a, 5]}}
    corpus.data_files.train.1: 5 is of the wrong type; give text
"""
KEYS = r"""
model.attention={type: sliding_window}
    model.attention.window: this key is missing; add `window: ...`
model.type=mlp
    model.window: this key is missing; add `model.window=...`
model.position={type: rope, bse: 3}
    model.position.bse: unknown key; did you mean 'base'?
model.attention={type: sliding_window, window: 4, size: 3}
    model.attention.size: unknown key; the keys here are type, window, full_layers
train.Steps=3
    train.Steps: unknown key; did you mean 'steps'?
steps=5
    steps: unknown key; did you mean 'train.steps'?
train.seed=3
    train.seed: unknown key; did you mean 'seed' or 'corpus.seed'?
every_steps=3
    every_steps: unknown key; did you mean 'evaluation.every_steps' or 'sample.every_steps' or 'checkpoint.every_steps'?
a.b.c=1
    a: unknown key; the keys here are name, start_from, seed, corpus, tokenizer, data, model, quantization, adapter,
    objective, optimizer, schedule, train, evaluation, sample, checkpoint, trackers
optimizer.adamw_lr=1
    optimizer.adamw_lr: adamw has no such key; leave it out, or set type: muon, as
    "optimizer={type: muon, adamw_lr: 1}"
corpus.files=my.txt
    corpus.files: fables has no such key; leave it out, or set type: text or conversations or preferences or
    tokens, as "corpus={type: text, files: my.txt}"
model={type: lstm, context_length: 8, d_model: 8, n_heads: 2}
    model.n_heads: lstm has no such key; leave it out, or set type: decoder, as "model={type: decoder, n_heads: 2}"
model.position.type=spiral
    model.position.type: 'spiral' is not a choice; use one of 'sinusoidal', 'rope', 'learned', 'none'
corpus={files: [a]}
    corpus.type: this key is missing; add `type: ...`, one of CORPORA, conversations, preferences, tokens, none
corpus={tpye: text}
    corpus.tpye: unknown key; did you mean 'type'?
model=lstm
    model: 'lstm' is a type, not a section; write `{type: lstm}`, or model.type=lstm on the command line
adapter=lora
    adapter: 'lora' is a type, not a section; write `{type: lora}`, or adapter.type=lora on the command line
model.position=alibi
    model.position: 'alibi' is not a choice; use one of sinusoidal, rope, learned, none, as `{type: sinusoidal}`,
    or model.position.type=sinusoidal on the command line
""".replace("CORPORA", CORPORA)
# Rules of one section; of several keys the first is to blame, or the only one that was changed.
RULES = r"""
model.d_model=63
    model.d_model: 63 is not a multiple of n_heads 2; choose a multiple, or set head_width
model.n_heads=3
    model.n_heads: d_model 64 is not a multiple of n_heads 3; choose a multiple, or set head_width
model.n_kv_heads=3
    model.n_kv_heads: n_heads 2 is not a multiple of n_kv_heads 3; choose n_kv_heads as a divisor of n_heads
model.attention={type: sliding_window, window: 4, full_layers: [0, 9]}
    model.attention.full_layers: there is no layer 9; count them from 0
model.position={type: rope, unrotated_layers: [9]}
    model.position.unrotated_layers: there is no layer 9; count them from 0
model.d_model=6
    model.d_model: RoPE rotates pairs, but a head has 3 coordinates; choose d_model / n_heads even
model.head_width=7
    model.head_width: RoPE rotates pairs, but a head has 7 coordinates; choose an even number
model.position.rotated_fraction=0.1
    model.position.rotated_fraction: RoPE rotates pairs, but 0.1 of a head's 32 coordinates is 3;
    choose a share that makes it even
model={context_length: 8, d_model: 63, n_layers: 1, n_heads: 1, position: {type: sinusoidal}}
    model.d_model: sinusoidal positions need an even width, not 63; add one
model={context_length: 8, d_model: 64, n_layers: 1, n_heads: 2, n_kv_heads: 1, copying_init: true}
    model.copying_init: 1 value heads are too few to copy all that a token is, 2 are needed;
    leave out n_kv_heads, or copying_init
model={context_length: 8, d_model: 64, n_layers: 1, n_heads: 2, head_width: 8, copying_init: true}
    model.copying_init: 2 heads of 8 coordinates cannot hold all 64 of a token; leave out head_width, or copying_init
model={type: mlp, context_length: 8, d_model: 64, window: 9}
    model.window: 9 tokens are more than a training row has, context_length 8; see fewer, or lengthen the rows
model.feed_forward={type: moe, n_experts: 4, top_k: 5}
    model.feed_forward.top_k: a token cannot ask 5 of 4 experts; choose at most n_experts
tokenizer={type: bpe, vocab_size: 257, special_tokens: [a, b]}
    tokenizer.vocab_size: 257 has no room for 256 bytes and 2 special tokens; give at least 258
tokenizer={type: char, special_tokens: [a, a]}
    tokenizer.special_tokens: a token is empty or appears twice; name each token once
corpus={type: text}
    corpus.files: no text is named; give `files: [FILE]`, or `download: {url: ..., sha256: ...}`
corpus={type: text, download: {url: input.txt, sha256: abc}}
    corpus.download.url: 'input.txt' is not a web address; write https://...
corpus={type: text, download: {url: 'https://a.org/b', sha256: abc}}
    corpus.download.sha256: this is no SHA-256; give the 64 digits that `sha256sum FILE` prints
corpus={type: hugging_face, path: jsonl, data_files: a.jsonl}
    corpus.path: 'jsonl' is no format; did you mean 'json'?
corpus={type: hugging_face, path: json}
    corpus.data_files: json is a format, and no files are named; add `data_files: FILE`
corpus={type: lookup, pairs: 9, keys: 7}
    corpus.pairs: 9 pairs need as many keys, not 7; raise `keys`
corpus={type: lookup, pairs: 3, fewest_pairs: 4}
    corpus.fewest_pairs: 4 are more than `pairs`, 3; give fewer, or leave it out
corpus={type: sums, modulus: 7, digits: 3}
    corpus.digits: it has no effect, because the numbers of `modulus` are one symbol each; leave it out
corpus={type: hidden, states: 5}
    corpus.states: it has no effect, because the `process` is mess3; leave it out
corpus={type: hidden, process: random, own: 0.5}
    corpus.own: it has no effect, because the `process` is random; leave it out
schedule.warmup_steps=101
    schedule.warmup_steps: 101 is longer than train.steps 100; warm up for fewer steps
train.steps=5
    train.steps: schedule.warmup_steps 10 is longer than train.steps 5; warm up for fewer steps
"""
# What is not key=value, or what a shell has made of it.
OVERRIDES = r"""
steps
    'steps' is not key=value; write it without spaces, as optimizer.lr=3e-4
train..steps=3
    'train..steps=3' is not key=value; write it without spaces, as optimizer.lr=3e-4
'train.steps=5'
    "'train.steps=5'" is not key=value; your shell has kept its quote: put double ones around all of it,
    as "optimizer.lr=3e-4"
train.steps.x=3
    train.steps.x: 'steps' is a value, not a section; leave out what follows it
corpus.files=[*.txt]
    corpus.files: not readable as YAML: expected alphabetic or numeric character, but found '.';
    put single quotes around what begins with a star, as "corpus.files=['*.txt']"
.
    '.' is not key=value; to train on the files in it: "corpus.files=./*.txt"
small.txt
    'small.txt' is not key=value; to train on this file: corpus.files=small.txt
my.rules
    'my.rules' is not key=value; to train on this file: corpus.file=my.rules
corpus='{type:
    corpus: not readable as YAML: found unexpected end of stream;
    if the shell has split it, quote all of it: "corpus={type: text, files: [a.txt]}"
seed=!!python/name:os.system
    seed: not readable as YAML: tag tag:yaml.org,2002:python/name:os.system found;
    write one value after `=`, as optimizer.lr=3e-4
"""


# Rules between sections, for a run that starts from another.
SECTIONS = r"""
model.type=lstm & train.gradient_checkpointing=block
    train.gradient_checkpointing: the lstm has no block to recompute; leave it out, or use model.type decoder
train.compile=true & model.feed_forward={type: moe}
    train.compile: a compiled graph has fixed shapes, and an expert gets as many tokens as ask it;
    leave it out, or use model.feed_forward dense
corpus={type: instructions} & objective={type: ppo} & train.compile=true
    train.compile: the graph would leave out the scalar head, which ppo trains; leave it out
corpus={type: preferences, files: [a.jsonl]}
    corpus.type: preferences are pairs of answers, from which next_token does not learn;
    use objective reward_model or dpo
corpus={type: instructions}
    corpus.type: instructions are conversations, of which the answers alone are learned; add `objective: {type: sft}`
objective={type: sft}
    objective.type: fables holds no conversations for objective sft to learn from; use instructions or conversations
objective.type=dpo
    objective.type: fables holds no conversations for objective dpo to learn from; use instructions or preferences
corpus={type: conversations, files: [a.jsonl]} & objective={type: grpo}
    corpus.type: conversations have one answer to each question, and grpo needs several that are judged;
    use objective sft, or corpus instructions or preferences
corpus={type: preferences, files: [a.jsonl]} & objective={type: dpo, fork: true}
    objective: fork and cut need the token where an answer went wrong, which is not known for answers from a file;
    set fork to false and cut to none, or use corpus instructions
data={documents_see_each_other: false}
    data.documents_see_each_other: contiguous rows hold parts of documents, which see each other in evaluation, too;
    set it to true, or data.packing to documents
data={packing: documents, documents_see_each_other: false} & model.attention=linear
    data.documents_see_each_other: a mask in softmax attention keeps documents apart, and linear has none;
    set it to true, or use a decoder with another attention
data={packing: documents, documents_see_each_other: false} & model={type: bigram, context_length: 8}
    data.documents_see_each_other: a mask in softmax attention keeps documents apart, and bigram has none;
    set it to true, or use a decoder with another attention
data={packing: documents, documents_see_each_other: false} & corpus={type: instructions} & objective={type: dpo}
    data.documents_see_each_other: dpo does not keep the documents of a row apart; leave it out
corpus={type: instructions} & objective={type: reward_model} & start_from=null
    objective.type: reward_model compares answers, and start_from names no model to write them;
    add `start_from: RUN`, or use corpus preferences
corpus={type: instructions} & objective={type: dpo} & model={type: bigram, context_length: 8}
    objective.type: dpo trains a decoder, not a bigram; use model.type decoder
corpus={type: text, files: [a.txt]} & objective={type: distill, teacher: truth}
    objective.teacher: of text, nobody knows the exact distribution of the next token;
    name a RUN, or take a language that `pellucid configs` lists
corpus={type: instructions} & objective={type: distill, teacher: truth}
    corpus.type: instructions are conversations, of which the answers alone are learned; add `objective: {type: sft}`
objective={type: distill, teacher: truth, temperature: 2.0}
    objective.temperature: the truth teaches as it is; leave it out, or name a RUN
objective={type: distill, teacher: truth} & data={packing: documents, documents_see_each_other: false}
    data.documents_see_each_other: distill does not keep the documents of a row apart; leave it out
objective={type: distill, teacher: truth} & train.parallel=fsdp
    train.parallel: fsdp cannot be combined with objective distill; use ddp or auto
objective={type: distill, teacher: truth} & model.feed_forward={type: moe}
    model.feed_forward.load_balance_weight: the loss of distill has no part for balancing the experts; set it to 0
corpus={type: instructions} & objective={type: dpo} & start_from=null
    objective.type: dpo compares the model with the one it starts from, and start_from names none;
    add `start_from: RUN`
adapter={type: lora} & start_from=null
    adapter: there are no weights to freeze; add `start_from: RUN`, or leave out the adapter
corpus={type: instructions} & objective={type: grpo, price: 0.1}
    objective.price: it is the price of a thought that a policy may leave out, and here it may leave out none;
    leave the price out, or use corpus hops or sums with thoughts optional
corpus={type: hops} & objective={type: grpo, price: 0.1}
    objective.type: a policy decides whether it thinks, which optional thoughts alone allow, or it asks a tool;
    set corpus.thoughts to optional or tool, as in the run of start_from
corpus={type: sums, thoughts: tool} & objective={type: grpo, price: 0.1}
    objective.price: it is the price of a thought that a policy may leave out, and here it may leave out none;
    leave the price out, or use corpus hops or sums with thoughts optional
corpus={type: sums, thoughts: tool} & objective={type: distill, teacher: truth, on_policy: true}
    objective.type: gaps and on_policy have no way to leave out of the loss what a tool writes;
    set corpus.thoughts to way
corpus={type: sums, thoughts: tool, modulus: 7}
    corpus.thoughts: it has no effect, because the numbers of `modulus` are one symbol each; leave it out
corpus={type: hops, thoughts: optional} & objective={type: grpo, reward: {type: model, run: judge}}
    objective.reward: a reward model judges answers to instructions, not to the questions of hops; leave it out
corpus={type: chains} & objective={type: grpo}
    corpus.type: chains holds no conversations for objective grpo to learn from; use instructions or hops or sums
corpus={type: sums, thoughts: optional} & objective={type: ppo}
    corpus.type: sums holds no conversations for objective ppo to learn from; use instructions
corpus={type: instructions} & objective={type: grpo} & train.parallel=fsdp
    train.parallel: fsdp cannot be combined with objective grpo; use ddp or auto
corpus={type: instructions} & objective={type: ppo} & model.feed_forward={type: moe}
    model.feed_forward.load_balance_weight: the loss of ppo has no part for balancing the experts; set it to 0
corpus={type: instructions} & objective={type: ppo, reward_at: settled, reward: {type: model, run: judge}}
    objective.reward_at: only the verifier says which token settled a reward;
    set reward_at to end, or reward to {type: verifier}
corpus={type: instructions} & objective={type: grpo, credit_decay: 0.9, reward: {type: model, run: judge}}
    objective.credit_decay: only the verifier says which token settled a reward;
    set credit_decay to null, or reward to {type: verifier}
corpus={type: instructions} & objective={type: grpo, credit_decay: 0.9, kl: reward}
    objective.credit_decay: divergence belongs to all tokens; set credit_decay to null, or kl to loss
"""
AFTER_BASE = SMALL + "tokenizer: {type: bpe}\nstart_from: checkpoints/base\n"


@pytest.mark.parametrize(("override", "line"), cases(VALUES + KEYS + RULES + OVERRIDES))
def test_a_fault_is_one_line(override, line):
    assert error_of(override) == line


@pytest.mark.parametrize(("overrides", "line"), cases(SECTIONS))
def test_sections_that_do_not_agree_are_one_line(overrides, line):
    assert error_of(*overrides.split(" & "), text=AFTER_BASE) == line


def test_a_fault_in_a_file_has_its_line():
    assert error_of(text=SMALL.replace("n_heads: 2", "n_heads: 3")).startswith("small.yaml:5: model.d_model: 64 is not")
    message = error_of(text=SMALL + "  zzz: 1\n")
    assert message.startswith("small.yaml:16: train.zzz: unknown key; the keys here are steps, batch_size,")


def test_a_key_may_have_the_name_of_its_section_s_type():
    class Hops(Section):
        type: Literal["hops"]
        hops: int = 4
        names: int = 8

    class Chains(Section):
        type: Literal["chains"]

    class Run(Section):
        corpus: Annotated[Hops | Chains, Field(discriminator="type")]

    lines = {(): "x.yaml:1", ("corpus",): "x.yaml:1"}
    lines |= {("corpus", key): f"x.yaml:{line}" for line, key in enumerate(("type", "hops", "names"), 2)}
    for key in ("hops", "names"):
        data = {"corpus": {"type": "hops", "hops": 2, "names": 8, key: "many"}}
        with pytest.raises(ValidationError) as caught:
            Run.model_validate(data)
        error = explain(caught.value.errors(), data, lines, Run, ())
        assert str(error) == f"{lines['corpus', key]}: corpus.{key}: 'many' is of the wrong type; give a whole number"
