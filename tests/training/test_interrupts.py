"""Signals: the first is a wish, the handlers come back."""

import signal

import pytest

from pellucid.training.interrupts import stop_requests


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_the_second_has_its_default_effect(number):
    before = signal.getsignal(number)
    with stop_requests() as request:
        assert request.signal_number is None
        signal.raise_signal(number)
        assert request.signal_number == number
        assert signal.getsignal(number) == signal.SIG_DFL
    assert signal.getsignal(number) == before
