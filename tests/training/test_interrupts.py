"""Signals: the first is a wish, the handlers come back."""

import os
import signal
import sys
import threading

import pytest

from pellucid.training.interrupts import stop_requests, stop_with_parent


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)])
def test_the_first_signal_is_noted_and_the_second_has_its_default_effect(number):
    ours = signal.signal(number, signal.default_int_handler)  # nohup may have ignored it
    with stop_requests() as request:
        assert request.signal_number is None
        signal.raise_signal(number)
        assert request.signal_number == number
        assert signal.getsignal(number) == signal.SIG_DFL
    assert signal.signal(number, ours) == signal.default_int_handler


def test_a_run_is_asked_to_stop_when_the_pipe_to_its_parent_closes(monkeypatch):
    reading, writing = os.pipe()
    monkeypatch.delattr(os, "kill")  # on Windows it ends a process at once, without a save
    with os.fdopen(reading) as stdin, stop_requests() as request:
        monkeypatch.setattr(sys, "stdin", stdin)
        waiting = stop_with_parent()
        assert (waiting.is_alive(), request.signal_number) == (True, None)
        os.close(writing)
        waiting.join(600)
        assert request.signal_number == signal.SIGTERM


def test_while_a_run_waits_for_the_end_of_its_parent_its_standard_input_is_free(monkeypatch):
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, stop_requests():
        monkeypatch.setattr(sys, "stdin", stdin)
        waiting = stop_with_parent()
        assert os.read(stdin.fileno(), 1) == b""  # and not: a second one that waits on the pipe
        os.close(writing)
        waiting.join(600)


def test_a_hang_up_that_nohup_ignores_is_still_ignored(monkeypatch):
    ours = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_requests() as request:
            signal.raise_signal(signal.SIGHUP)
            assert request.signal_number is None
    finally:
        signal.signal(signal.SIGHUP, ours)


def test_outside_of_the_main_thread_signals_are_left_to_the_program():
    handlers = []

    def train() -> None:
        with stop_requests() as request:
            handlers.append((signal.getsignal(signal.SIGINT), request.signal_number))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert handlers == [(signal.getsignal(signal.SIGINT), None)]
