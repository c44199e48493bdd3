"""llama.cpp in this process, by the package `xllamacpp`."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any


def served(file: Path, *, context: int, texts: int = 1, threads: int = 1, in_float32: bool = False) -> Any:
    """A server for as many texts at the same time. In float32 it also keeps keys and values, and no fused attention."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(file)
    settings.n_parallel, settings.n_ctx = texts, texts * context
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
    settings.warmup = settings.fit_params = settings.cache_prompt = False
    settings.port, settings.verbosity = 0, -1
    if in_float32:
        settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return xllamacpp.Server(settings)


def writer(server: Any) -> Callable[[Sequence[Sequence[int]], int], int]:
    """Writes the likeliest tokens after each of the prompts, all at the same time; returns how many it wrote."""

    def write(prompts: Sequence[Sequence[int]], n_tokens: int) -> int:
        settings = {"n_predict": n_tokens, "temperature": 0.0, "ignore_eos": True}
        with ThreadPoolExecutor(len(prompts)) as callers:
            answers = callers.map(lambda ids: server.handle_completions({"prompt": ids, **settings}), prompts)
        return sum(answer["usage"]["completion_tokens"] for answer in answers)

    return write
