"""The thread that owns a model, and the jobs that requests give it.

    event loop    submit ──► inbox ──┐                        ┌──► wake the jobs that have something new
    engine thread                    └─► step, step, step … ──┘

The thread steps while there is anything to write, and sleeps otherwise. After a step, a single call wakes all jobs that
wait for it: a call for each token would slow down both threads. Whatever else needs the model is called between steps.
"""

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from time import perf_counter
from typing import TypeVar

from pellucid.errors import ConfigError, PellucidError, explained, is_out_of_memory, without_frames
from pellucid.generation.engine import Engine
from pellucid.generation.penalties import require_tokens
from pellucid.generation.slots import make_slots
from pellucid.generation.stream import Piece
from pellucid.generation.text import never_written
from pellucid.generation.writing import Writing
from pellucid.model.language_model import LanguageModel
from pellucid.runtime.precision import Precision
from pellucid.tokenizer import Tokenizer
from pellucid.web.errors import ApiError
from pellucid.web.openai.metrics import Totals

N_SLOTS = 16
MOST_WAITING = 32  # texts that may wait for a slot
GIL_SECONDS = 0.0005  # a thread's longest turn while the other waits; Python's default of 5 ms is many steps

Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class Job:
    """The texts of one request. Used in the event loop; the thread only adds to `writings`."""

    def __init__(self, writings: Sequence[Writing], is_streamed: bool) -> None:
        self.writings = writings
        self.is_streamed = is_streamed
        self.started = perf_counter()
        self.engine_error: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._has_news = asyncio.Event()
        self._n_reported = [0] * len(writings)

    @property
    def error(self) -> BaseException | None:
        """The error that ended the job early, of the engine or of one of its texts."""
        return self.engine_error or next((writing.error for writing in self.writings if writing.error), None)

    @property
    def has_ended(self) -> bool:
        return self.error is not None or all(writing.has_ended for writing in self.writings)

    async def news(self) -> list[tuple[int, Piece]]:
        """The pieces written since the last call, each with the number of its text; waits until there are some."""
        await self._has_news.wait()
        self._has_news.clear()
        if self.error is not None:
            raise failure(self.error)
        new_pieces = []
        for number, writing in enumerate(self.writings):
            pieces = writing.pieces[self._n_reported[number] :]
            self._n_reported[number] += len(pieces)
            new_pieces += [(number, piece) for piece in pieces]
        return new_pieces

    async def end(self) -> None:
        """Wait until everything is written."""
        while not self.has_ended:
            await self.news()
        if self.error is not None:
            raise failure(self.error)

    def cancel(self) -> None:
        """Stop all texts after the current token."""
        for writing in self.writings:
            writing.has_ended = True

    def wake(self) -> None:
        self._has_news.set()


class EngineThread:
    """Writes texts for many requests at once. Call `submit` and `release` in the server's event loop."""

    def __init__(
        self, model: LanguageModel, tokenizer: Tokenizer, precision: Precision, totals: Totals | None = None
    ) -> None:
        self.model, self.tokenizer, self.totals = model, tokenizer, totals or Totals()
        self._precision = precision.for_decoding()
        self._inbox: SimpleQueue[Job | Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        sys.setswitchinterval(GIL_SECONDS)
        self._thread.start()

    def submit(self, writings: Sequence[Writing], *, is_streamed: bool) -> Job:
        """Start these texts as soon as there are slots. Always call `release` for the job at the end.

        ApiError 429 if too many texts are waiting, 400 if these alone are too many. ConfigError for ids of no token.
        """
        for writing in writings:
            require_tokens("logit_bias", writing.sampling.logit_bias, self.model.vocab_size)
            require_tokens("stop_token_ids", writing.stop_ids, self.model.vocab_size)
            ends = {*self.tokenizer.control_ids, *writing.stop_ids}
            if writing.min_new_tokens and len(ends) == self.model.vocab_size:
                raise ApiError(400, "min_tokens: all tokens are among stop_token_ids; leave some", param="min_tokens")
        self._add_texts(len(writings))
        job = Job(writings, is_streamed)
        self._inbox.put(job)
        return job

    async def call(self, function: Callable[[], Result]) -> Result:
        """Call this function of the model in its thread, and return what it returns. It counts as a text that waits."""
        self._add_texts(1)
        result: Future[Result] = Future()

        def run() -> None:
            if not result.set_running_or_notify_cancel():  # the client has left
                return
            try:
                result.set_result(function())
            except Exception as error:
                result.set_exception(error)

        self._inbox.put(run)
        try:
            return await asyncio.wrap_future(result)
        finally:
            self.totals.texts_running -= 1

    def _add_texts(self, n: int) -> None:
        most = N_SLOTS + MOST_WAITING
        if n > most:
            raise ApiError(400, f"{n} texts in one request; ask for {most} at most", param="n")
        if self.totals.texts_running + n > most:
            message = f"{self.totals.texts_running} texts are being written or wait already; try again in a second"
            raise ApiError(429, message, code="queue_full")
        self.totals.texts_running += n

    def release(self, job: Job) -> None:
        """Cancel and forget a job, finished or not."""
        job.cancel()
        self.totals.texts_running -= len(job.writings)
        n_read = {id(writing.prompt_ids): len(writing.prompt_ids) for writing in job.writings}  # n texts after each
        n_written = sum(len(writing.token_ids) for writing in job.writings)
        self.totals.add(perf_counter() - job.started, sum(n_read.values()), n_written)

    def close(self) -> None:
        """End the thread once all submitted texts are written."""
        self._inbox.put(None)

    def _run(self) -> None:
        engine: Engine | None = None
        jobs: dict[Writing, Job] = {}
        is_closing = False
        while True:
            added: list[Writing] = []
            while not (jobs or is_closing) or not self._inbox.empty():
                job = self._inbox.get()
                if job is None:
                    is_closing = True
                    break
                if not isinstance(job, Job):
                    job()
                    continue
                jobs |= dict.fromkeys(job.writings, job)
                added += job.writings
            if not jobs:
                return
            try:
                with self._precision.autocast():
                    engine = engine or self._new_engine()
                    for writing in added:
                        engine.add(writing)
                    written = engine.step()
            except Exception as error:  # a bug, or a full memory: the next request starts with a new engine
                _log.error("the engine failed: %s", error, exc_info=None if isinstance(error, PellucidError) else error)
                for job in jobs.values():
                    job.engine_error = without_frames(error)
                _wake(set(jobs.values()))
                engine, jobs = None, {}
                continue
            news = {jobs[writing] for writing in written}
            failed = [writing for writing in jobs if writing.error]
            news |= {jobs[writing] for writing in failed}
            for writing in failed:
                _log_failure(writing)
            _wake({job for job in news if job.is_streamed or job.has_ended})
            if any(writing.has_ended for writing in jobs):
                jobs = {writing: job for writing, job in jobs.items() if not writing.has_ended}

    def _new_engine(self) -> Engine:
        tokenizer, slots = self.tokenizer, make_slots(self.model.eval(), N_SLOTS)
        return Engine(self.model, slots, stop_ids=tokenizer.stop_ids, forbidden_ids=never_written(tokenizer))


def _log_failure(writing: Writing) -> None:
    """The log alone keeps the traceback of what ended a text: it would keep tensors."""
    error = writing.error
    assert error is not None
    _log.error("a text failed: %s", error, exc_info=None if isinstance(error, PellucidError) else error)
    writing.error = without_frames(error)


def failure(error: BaseException) -> ApiError:
    """The error for a client whose text ended by this one. What the client can fix is its own fault."""
    if isinstance(error, ConfigError):
        return ApiError(400, str(error), param=error.where)
    is_full = is_out_of_memory(error)
    why = "memory is full; ask for fewer or shorter texts at once" if is_full else explained(error)
    return ApiError(500, f"the engine failed: {why}")


def _wake(jobs: set[Job]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        by_loop.setdefault(job._loop, []).append(job)
    for loop, its_jobs in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_wake_here, its_jobs)


def _wake_here(jobs: list[Job]) -> None:
    for job in jobs:
        job.wake()
