"""Computes what the page shows of a checkpoint, from its model and its corpus, and caches it.

Forward passes run one at a time, as a trace puts hooks into the model, which may change its results.

Shapes: N points of the residual stream, L layers, H heads, T positions as queries, S as keys, V vocabulary.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import torch

from pellucid.config.gaps import require_next_tokens
from pellucid.config.shipped import DEMO
from pellucid.corpora.corpus import KnownConversations
from pellucid.corpora.drawn import Drawn
from pellucid.errors import ConfigError, DataError
from pellucid.files import write_whole
from pellucid.inspection.attribution import attribute, what_decides
from pellucid.inspection.beliefs import BeliefMaps, belief_maps
from pellucid.inspection.build import known_corpus_of, scores_of_run
from pellucid.inspection.explain import beginning_that_fits
from pellucid.inspection.gaps import trace_gaps
from pellucid.inspection.inside import has_experts
from pellucid.inspection.interventions import Place, places_of
from pellucid.inspection.knock_out import held_out_documents, knock_out_table
from pellucid.inspection.logit_parts import logit_parts
from pellucid.inspection.trace import Trace, require_decoder, trace, trace_outside
from pellucid.languages.fables import Fables
from pellucid.languages.fables.world import other_heroes
from pellucid.languages.hidden import Hidden
from pellucid.model.decoder import Decoder
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.chat import ids_of_marked
from pellucid.tokenizer.pieces import token_text
from pellucid.web.cache import Cache
from pellucid.web.descriptions import Json
from pellucid.web.runs import Opened, Runs
from pellucid.web.tensors import DType, packed
from pellucid.web.truths import truth_of_answer, truth_of_document, truth_of_gaps_in

MOST_ANSWERS = 64
SMALL_BYTES = 8_000_000  # two million weights
N_EXPLAINED = 5  # of the likeliest next tokens: what each part adds to their logits


class Changes(NamedTuple):
    """Interventions in a model: these places are knocked out or, with patch_text, patched from that text."""

    knock_out: Sequence[Place] = ()
    patch_text: str | None = None


UNCHANGED = Changes()
TABLES_FILE = "parts.json"  # in the folder of a run
NOTHING_DECIDES: Json = {"places": [], "swap": None}
NO_BELIEFS: Json = {"known": False}
N_DOCUMENTS_OF_BELIEFS = 200


class Microscope:
    """Results of the models of these runs. Raises PellucidError where a checkpoint or a text cannot be shown."""

    def __init__(self, runs: Sequence[Path]) -> None:
        self.runs = Runs(runs)
        self._truths: Cache[Json] = Cache(MOST_ANSWERS)
        self._measured: Cache[Json] = Cache(MOST_ANSWERS)
        self._maps: Cache[BeliefMaps] = Cache(MOST_ANSWERS)
        self._forward, self._measuring = Lock(), Lock()
        self._n_threads = torch.get_num_threads()

    def model(self, checkpoint: str) -> Json:
        """The model's parts and sizes, and its vocabulary: text and bytes of each token, and its merge."""
        opened = self.runs.open(checkpoint)
        tokenizer = opened.tokenizer
        ids = range(tokenizer.vocab_size)
        merges = [[rank, id_, *pair] for rank, (id_, pair) in enumerate(tokenizer.merges.items(), start=1)]
        return {
            "n_parameters": sum(parameter.numel() for parameter in opened.model.parameters()),
            "n_layers": len(opened.model.blocks),
            "config": opened.trained.config.model.model_dump(mode="json"),
            "weights": {name: list(weight.shape) for name, weight in opened.model.named_parameters()},
            "vocab_size": tokenizer.vocab_size,
            "context_length": opened.model.context_length,
            "end_of_text": tokenizer.end_of_text,
            "stop_ids": list(tokenizer.stop_ids),
            "has_chat": tokenizer.has_chat_tokens,
            "texts": [token_text(tokenizer, id_) for id_ in ids],
            "bytes": [tokenizer.token_bytes(id_).hex(" ") for id_ in ids],
            "merges": merges,
        }

    # Results for a text

    def trace(self, checkpoint: str, text: str, at: int | None = None, changes: Changes = UNCHANGED) -> Json:
        """Attention, surprise and the logit lens at all positions, and the logits at one of them."""
        opened = self.runs.open(checkpoint)
        with self._threads_for(opened):
            traced, shown = self._trace(checkpoint, text, changes)
            log_q_NTV = traced.unembed(traced.residuals).float().log_softmax(-1)  # too large to be kept with the trace
            own_end_TV = log_q_NTV[-1]
            best_NT = log_q_NTV.max(dim=-1)
            kl_NT = (own_end_TV - log_q_NTV).mul_(own_end_TV.exp()).sum(-1).clamp(min=0)
        following = torch.tensor(traced.ids[1:], dtype=torch.long)
        own_end_TV = own_end_TV[1:] if opened.fills_gaps else own_end_TV[:-1]  # where each of these is predicted
        return {
            "checkpoint": checkpoint,
            "text": shown,
            "is_cut": shown != text,
            "fills_gaps": opened.fills_gaps,
            "ids": traced.ids,
            "points": traced.points,
            "attention": packed(traced.attention, "float16"),
            **_experts(opened, traced),
            "surprise": packed(-own_end_TV.gather(-1, following[:, None])[:, 0]),
            "lens": {
                "ids": packed(best_NT.indices, "int32"),
                "probabilities": packed(best_NT.values.exp()),
                "kl": packed(kl_NT),
            },
            **self._logits_at(opened, traced, at),
        }

    def logits(self, checkpoint: str, text: str, at: int | None = None, changes: Changes = UNCHANGED) -> Json:
        """The logits at one position, after each point, for a click on a token; and what adds up to the largest."""
        return self._logits_at(self.runs.open(checkpoint), self._trace(checkpoint, text, changes)[0], at)

    def _logits_at(self, opened: Opened, traced: Trace, at: int | None) -> Json:
        last = len(traced.ids) - 1
        place = last if at is None else min(max(at, int(opened.fills_gaps)), last)  # what begins a text is never hidden
        logits_NV = traced.unembed(traced.residuals[:, place])
        answer: Json = {"at": place, "logits": packed(logits_NV), "added": None}
        if isinstance(opened.model, Decoder):
            ids = logits_NV[-1].topk(min(N_EXPLAINED, logits_NV.size(-1))).indices.tolist()
            with self._forward:  # heads are mixed again, which a trace beside it would record
                parts = logit_parts(opened.model, traced, place, ids)
            summands = parts and {name: packed(each) for name, each in parts._asdict().items()}
            answer["added"] = summands and {"at": place, "ids": ids, **summands}
        return answer

    def _trace(self, checkpoint: str, text: str, changes: Changes = UNCHANGED) -> tuple[Trace, str]:
        """The trace, and the text as far as it fits (`_read`)."""
        opened = self.runs.open(checkpoint)
        ids, shown = _read(opened, text)
        places, patch_text = tuple(changes.knock_out), changes.patch_text

        def compute() -> Trace:
            if opened.fills_gaps:
                if places:
                    require_next_tokens(opened.trained.config)
                if len(ids) == 1:
                    raise ConfigError("text", "it is empty, and no token of it can be hidden", "type one")
                with self._forward:
                    return trace_gaps(opened.model, opened.tokenizer, shown)
            other = None if patch_text is None else self._trace(checkpoint, patch_text)[0]
            with self._forward:
                if not places and not isinstance(opened.model, Decoder):
                    return trace_outside(opened.model, ids)
                model = require_decoder(opened.model, "knock_out")
                if other is None:
                    return trace(model, ids, knock_out=places)
                return trace(model, ids, patch=dict.fromkeys(places, other))

        return opened.traces.get((tuple(ids), places, patch_text), compute), shown

    @contextmanager
    def _threads_for(self, opened: Opened) -> Iterator[None]:
        """One thread for a small model: threads that wait for each other cost more than they compute."""
        torch.set_num_threads(1 if opened.n_bytes < SMALL_BYTES else self._n_threads)
        try:
            yield
        finally:
            torch.set_num_threads(self._n_threads)

    def traced(self, checkpoint: str, text: str, changes: Changes = UNCHANGED) -> tuple[Opened, Trace]:
        """The model and its trace of a text, for the exported page and for tours."""
        return self.runs.open(checkpoint), self._trace(checkpoint, text, changes)[0]

    def inside(
        self, checkpoint: str, text: str, layer: int, changes: Changes = UNCHANGED, dtype: DType = "float32"
    ) -> Json:
        """The steps of one layer."""
        opened = self.runs.open(checkpoint)
        require_next_tokens(opened.trained.config)
        require_decoder(opened.model, "inside")
        traced = self._trace(checkpoint, text, changes)[0]
        with self._forward:  # its layer computes again, which a trace beside it would record
            steps = traced.inside(layer)
        return {"steps": [{**step._asdict(), "values": packed(step.values, dtype)} for step in steps]}

    def heads(self, checkpoint: str) -> Json:
        """Scores and names of the heads, on random tokens read twice."""
        opened = self.runs.open(checkpoint)
        require_next_tokens(opened.trained.config)

        def compute() -> Json:
            with self._forward:
                return {"heads": [head.to_json() for head in scores_of_run(opened.trained)]}

        return self._measured.get(("heads", opened.digest), compute)

    def knock_out(self, checkpoint: str, n: int) -> Json:
        """The cost of each knock-out for each skill on n held-out fables, and the attribution of skills to heads.

        It takes seconds, so it is kept in the folder of the run, by the hash of the checkpoint.
        """
        opened = self.runs.open(checkpoint)
        require_next_tokens(opened.trained.config)
        corpus = known_corpus_of(opened.trained, "knock_out")

        def compute() -> Json:
            with self._forward:  # no trace changes the model while it is copied
                model = copy.deepcopy(require_decoder(opened.model, "knock_out"))  # so that traces need not wait for it
            fables = held_out_documents(corpus, opened.tokenizer, model.context_length, n)
            try:
                attribution = attribute(model, opened.tokenizer, corpus.language, fables)
            except ConfigError:  # attention weights that do not sum to 1; the costs are known all the same
                attribution = None
            costs = {head.costs.places[0]: head.costs for head in attribution.heads} if attribution else {}
            others = [[place] for place in places_of(model) if place not in costs]
            table = knock_out_table(model, fables, corpus.language.skills, others)
            costs |= {row.places[0]: row for row in table.rows}
            table = replace(table, rows=[costs[place] for place in places_of(model)])
            return {**table.to_json(), "attribution": attribution and attribution.to_json()}

        file = self.runs.folders[checkpoint.rpartition("@")[0]] / TABLES_FILE
        with self._measuring:  # other requests wait for the same answer
            key = f"{opened.digest} {n}"
            return self._measured.get(("knock out", key), lambda: table_in_file(file, key, compute))

    # The truth

    def truth(self, checkpoint: str, text: str) -> Json:
        """The exact distribution of the next token at each position, where the corpus knows it."""
        opened = self.runs.open(checkpoint)
        tokenizer = opened.tokenizer
        shown = _read(opened, text)[1]

        def compute() -> Json:
            corpus = self.runs.known(opened)
            with self.runs.grammar:
                if isinstance(corpus, KnownConversations):
                    return truth_of_answer(corpus, tokenizer, shown)
                truth = truth_of_gaps_in if opened.fills_gaps else truth_of_document
                return truth(corpus.language, tokenizer, shown) if corpus else {"known": False}

        if why := self.runs.why_no_truth(opened):
            return {"known": False, "why": why}
        return self._truths.get((opened.reading, shown), compute)

    def deciding(self, checkpoint: str, text: str) -> Json:
        """For each token, the places of those whose words decide the next one, and the text with another hero's name.

        No places where the language does not know them, and no such text (`swap`) but for fables.
        """
        opened = self.runs.open(checkpoint)
        corpus = self.runs.corpus(opened)
        if not isinstance(corpus, Drawn) or opened.fills_gaps:
            return NOTHING_DECIDES
        shown = beginning_that_fits(opened.tokenizer, text, opened.model.context_length - 1)

        def compute() -> Json:
            try:
                with self.runs.grammar:
                    places = what_decides(corpus.language, opened.tokenizer, shown)
            except DataError:  # no document begins like this
                return NOTHING_DECIDES
            is_fable = isinstance(corpus.language, Fables)
            return {"places": places, "swap": swapped(opened.tokenizer, shown) if is_fable else None}

        return self._truths.get(("deciding", opened.reading, shown), compute)

    def beliefs(self, checkpoint: str, text: str, changes: Changes = UNCHANGED) -> Json:
        """The belief about the hidden state at each token, exactly and as read at each point of the residual stream.

        {"known": False} unless the corpus is a hidden Markov model, and each symbol a token of a decoder.
        """
        opened = self.runs.open(checkpoint)
        require_next_tokens(opened.trained.config)
        language = getattr(self.runs.corpus(opened), "language", None)
        model, tokenizer = opened.model, opened.tokenizer
        if not isinstance(language, Hidden) or not isinstance(model, Decoder):
            return NO_BELIEFS
        traced, shown = self._trace(checkpoint, text, changes)
        try:
            truth = [language.stationary, *language.beliefs(shown)]
        except DataError:
            return NO_BELIEFS
        if len(truth) != len(traced.ids):
            return NO_BELIEFS

        def fit() -> BeliefMaps:
            with self._forward:
                return belief_maps(model, tokenizer, language, N_DOCUMENTS_OF_BELIEFS)

        maps = self._maps.get(opened.digest, fit)
        return {
            "known": True,
            "truth": truth,
            "read": maps.read(traced.residuals).tolist(),
            "explained": maps.explained,
        }


def table_in_file(file: Path, key: str, compute: Callable[[], Json]) -> Json:
    """The table of this key in a file, or else the computed one, which is added if the file can be written."""
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
        json.dumps(read, allow_nan=False)  # as it is sent to a page
    except (OSError, ValueError, RecursionError):
        read = None
    tables: dict[str, Json] = read if isinstance(read, dict) else {}
    if not isinstance(tables.get(key), dict) or not isinstance(tables[key].get("knocked_out"), list):
        tables[key] = compute()
        if file.parent != DEMO:  # it belongs to the package
            with suppress(OSError):
                write_whole(file, json.dumps(tables))
    return tables[key]


def swapped(tokenizer: Tokenizer, text: str) -> Json | None:
    """A fable's beginning with another hero's name of as many tokens, for a patch; None if there is none."""
    hero, others = other_heroes(text)
    length = len(tokenizer.encode(text))
    for other in others:
        changed = re.sub(rf"\b{hero}\b", other, text)
        if len(tokenizer.encode(changed)) == length:
            return {"from": hero, "to": other, "text": changed}
    return None


def _experts(opened: Opened, traced: Trace) -> Json:
    """The share of each expert in the output of its layer, at each token; nothing for a model without experts."""
    shares_LTE = traced.shares_of_experts() if has_experts(opened.model) else None
    return {} if shares_LTE is None else {"experts": packed(shares_LTE)}


def _read(opened: Opened, text: str) -> tuple[list[int], str]:
    """The tokens of a text that fit, and their text. A model of conversations reads it in the chat template."""
    tokenizer, length = opened.tokenizer, opened.model.context_length
    if tokenizer.has_chat_tokens:
        ids = ids_of_marked(tokenizer, text)
        is_cut = len(ids) > length
        return ids[:length], "".join(token_text(tokenizer, id_) for id_ in ids[1:length]) if is_cut else text
    shown = beginning_that_fits(tokenizer, text, length - 1)
    return [tokenizer.end_of_text, *tokenizer.encode(shown)], shown
