"""Tokenizers as other projects have them, learned from a small text: those of GPT-2, Llama 3 and Qwen."""

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = "The fox said: “I can't.”\n\nThe hen ran 12345 steps; she's gone...\n\n\tSchön, 猫猫猫!\r\nHAVEN'T we'll   see. "
TEXT *= 9
LLAMA_CUTS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
LLAMA_CUTS += r"\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN_CUTS = LLAMA_CUTS.replace(r"\p{N}{1,3}", r"\p{N}")


def gpt2(vocab_size: int = 310) -> tokenizers.Tokenizer:
    library = _learned(pre_tokenizers.ByteLevel(add_prefix_space=False), vocab_size - 1)
    library.post_processor = processors.ByteLevel(trim_offsets=False)
    library.add_special_tokens(["<|endoftext|>"])
    return library


def llama(vocab_size: int = 310) -> tokenizers.Tokenizer:
    library = _learned(cut_by(LLAMA_CUTS), vocab_size - 3)
    library.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    template = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", vocab_size - 3)]
    )
    library.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return library


def qwen(vocab_size: int = 310) -> tokenizers.Tokenizer:
    """With tokens that are not special, and that text may spell."""
    library = _learned(cut_by(QWEN_CUTS), vocab_size - 5)
    library.normalizer = normalizers.NFC()
    library.post_processor = processors.ByteLevel(trim_offsets=False)
    library.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    library.add_tokens(["<think>", "</think>"])
    return library


def cut_by(rule: str) -> pre_tokenizers.PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(rule), "isolated"), byte_level])


def _learned(cuts: pre_tokenizers.PreTokenizer, vocab_size: int) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer, library.decoder = cuts, decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator([TEXT], trainer)
    return library
