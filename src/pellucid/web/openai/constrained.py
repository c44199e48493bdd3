"""From the form that a request asks for to what holds its text to it.

Rules in our own notation need nothing else. JSON schemas, Lark grammars and regular expressions are read by llguidance,
which also says which tokens come next.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pellucid.errors import ConfigError, DataError
from pellucid.generation.constraints import Constraint, Exactly, Form, Masked
from pellucid.generation.grammar_form import GrammarForm
from pellucid.generation.sampling import Sampling
from pellucid.languages.grammar.own import OwnGrammar
from pellucid.tokenizer import Tokenizer
from pellucid.web.errors import ApiError
from pellucid.web.openai.schemas import GenerationRequest

BLANKS = {"whitespace_pattern": " "}  # one at most where JSON allows some: a weak model would write them for ever


def read_form(body: GenerationRequest, tokenizer: Tokenizer) -> Form | None:
    """The form that a request asks for. ApiError for one that cannot be read, and for what does not go with it."""
    if body.form_source is None:
        if body.exact:
            raise ApiError(400, "exact: only with a response_format other than text", param="exact")
        return None
    _require_compatible(body)
    syntax, source = body.form_source
    try:
        if syntax == "rules":
            return GrammarForm(OwnGrammar(source, "response_format").grammar, tokenizer)
        return LibraryForm(syntax, source, tokenizer)
    except (ConfigError, DataError) as error:
        raise ApiError(400, str(error), param="response_format") from None


def constraint_for(form: Form | None, body: GenerationRequest, choice: int) -> Constraint | None:
    """A new one for each text."""
    if form is None:
        return None
    if not body.exact:
        return Masked(form)
    seed = body.seed_of(choice)
    return Exactly(form, body.sampling.temperature, None if seed is None else (*seed, 1))  # numbers of its own


def _require_compatible(body: GenerationRequest) -> None:
    if body.min_tokens:
        message = "min_tokens: not with a response_format, which says where a text may end"
        raise ApiError(400, message, param="min_tokens")
    if not body.exact:
        return
    if body.stream:
        raise ApiError(400, "exact: not with stream, as a text is dropped or kept at its end", param="exact")
    only_temperature = Sampling(temperature=body.sampling.temperature)
    if body.sampling != only_temperature or body.stops or body.stop_token_ids or not body.sampling.temperature:
        what = "exact: a temperature above 0 may be set beside it, and no other setting of sampling, nor stops"
        raise ApiError(400, what, param="exact")


class LibraryForm:
    """The texts that llguidance recognizes: of a JSON schema, a Lark grammar or a regular expression.

    Raises ConfigError if it is not installed or cannot read the source.
    """

    def __init__(self, syntax: str, source: Any, tokenizer: Tokenizer) -> None:
        try:
            from llguidance import LLMatcher
        except ModuleNotFoundError:
            what = "llguidance, which reads schemas and grammars, is not installed where the server runs"
            raise ConfigError("response_format", what, "pip install 'pellucid[schemas]'") from None
        if syntax == "schema":
            grammar = LLMatcher.grammar_from_json_schema(json.dumps(source), overrides=BLANKS)
        else:
            grammar = getattr(LLMatcher, f"grammar_from_{syntax}")(source)
        self.tokenizer, self._matcher = tokenizer, LLMatcher(library_tokenizer(tokenizer), grammar, log_level=0)
        require_no_error(self._matcher)

    def begin(self) -> LibraryBeginning:
        return LibraryBeginning(self._matcher.deep_copy(), self.tokenizer)


class LibraryBeginning:
    def __init__(self, matcher: Any, tokenizer: Tokenizer) -> None:
        self._matcher, self._tokenizer = matcher, tokenizer

    def allowed(self) -> Tensor:
        bias_V = np.frombuffer(self._matcher.compute_logit_bias(), np.uint8)[: self._tokenizer.vocab_size]
        require_no_error(self._matcher)
        allowed_V = torch.from_numpy(bias_V > 0)
        allowed_V[list(self._tokenizer.stop_ids)] = allowed_V[self._tokenizer.end_of_text].clone()
        return allowed_V

    def add(self, token_id: int) -> None:
        self._matcher.consume_token(token_id)
        require_no_error(self._matcher)


class LibraryTokens:
    """Our vocabulary as llguidance asks for it."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.eos_token_id, self.special_token_ids = tokenizer.end_of_text, list(tokenizer.control_ids)
        self.tokens = [tokenizer.token_bytes(id_) for id_ in range(tokenizer.vocab_size)]
        self._tokenizer = tokenizer

    def __call__(self, text: str | bytes) -> list[int]:
        return self._tokenizer.encode(text.decode() if isinstance(text, bytes) else text)


@lru_cache(maxsize=2)
def library_tokenizer(tokenizer: Tokenizer) -> Any:
    from llguidance import LLTokenizer, TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(LibraryTokens(tokenizer)))


def require_no_error(matcher: Any) -> None:
    """Raise ConfigError, with the first line of what the library says."""
    if matcher.is_error():
        what = " ".join(matcher.get_error().split("\n\n")[0].split())
        raise ConfigError("response_format", what[:300], "ask for another form")
