"""Tokenizers as other projects have them, learned from a small text: GPT-2, Llama 3, Qwen, Llama 2, Gemma and T5."""

import json

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

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


def llama2(vocab_size: int = 340) -> tokenizers.Tokenizer:
    """As it was published: a blank before each text, written into it. TinyLlama and Phi-3 mini have it, too."""
    library = _of_pieces(vocab_size)
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    library.decoder = decoders.Sequence([*_TO_BLANKS, decoders.Strip(" ", 1, 0)])
    return library


def llama2_as_saved_today(vocab_size: int = 340) -> tokenizers.Tokenizer:
    library = _of_pieces(vocab_size)
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    library.decoder = decoders.Sequence([*_TO_BLANKS, decoders.Strip(" ", 1, 0)])
    return library


def gemma(vocab_size: int = 340) -> tokenizers.Tokenizer:
    """No blank before a text, and runs of line ends that are tokens, though not special."""
    library = _of_pieces(vocab_size - 1)
    library.normalizer = normalizers.Replace(" ", "▁")
    library.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    library.decoder = decoders.Sequence(_TO_BLANKS)
    library.add_tokens([AddedToken("\n\n", normalized=False)])
    return library


def t5(vocab_size: int = 120) -> tokenizers.Tokenizer:
    """Unigram, without single bytes: it does not know every character."""
    library = tokenizers.Tokenizer(models.Unigram())
    library.normalizer = normalizers.NFKC()
    library.pre_tokenizer, library.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    names = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, special_tokens=names, unk_token="<unk>", show_progress=False
    )
    library.train_from_iterator([TEXT.replace("\n", " ")], trainer)
    library.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return library


_TO_BLANKS = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]


def _of_pieces(vocab_size: int) -> tokenizers.Tokenizer:
    """Byte pairs of characters, a blank as ▁, and single bytes for what the vocabulary lacks."""
    controls = ["<unk>", "<s>", "</s>"]
    first = {token: id_ for id_, token in enumerate([*controls, *(f"<0x{byte:02X}>" for byte in range(256))])}
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size - len(first), show_progress=False)
    library.train_from_iterator([TEXT.replace("\n", " ")], trainer)
    learned = json.loads(library.to_str())["model"]
    vocabulary = first | {token: id_ + len(first) for token, id_ in learned["vocab"].items()}
    merges = [tuple(pair) for pair in learned["merges"]]
    library.model = models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    library.pre_tokenizer = None
    library.add_special_tokens(controls)
    library.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
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
