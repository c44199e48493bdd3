"""llama.cpp in this process, by the package `xllamacpp`, and GGUF files in fewer bits, by the package `gguf`."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

BLOCK = 32  # numbers that share a scale in q8_0 and in q4_0


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


def in_fewer_bits(file: Path, kind: str) -> Path:
    """A copy of a GGUF file with all matrices in this format, beside it."""
    import gguf

    reader, copied = gguf.GGUFReader(file), file.with_name(f"{kind}.gguf")
    architecture = reader.fields["general.architecture"].contents()
    copy = gguf.GGUFWriter(copied, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue  # which the writer writes itself
        of_items = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        copy.add_key_value(name, field.contents(), field.types[0], sub_type=of_items)
    to = gguf.GGMLQuantizationType[kind.upper()]
    for tensor in reader.tensors:
        numbers = np.array(tensor.data)
        if numbers.ndim == 2 and numbers.shape[1] % BLOCK == 0:
            copy.add_tensor(tensor.name, gguf.quantize(numbers, to), raw_dtype=to)
        else:
            copy.add_tensor(tensor.name, numbers)
    copy.write_header_to_file()
    copy.write_kv_data_to_file()
    copy.write_tensors_to_file()
    copy.close()
    return copied
