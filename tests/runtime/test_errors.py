"""Errors are one line each, and no longer than a person reads."""

import pickle

from pellucid.errors import ConfigError


def test_a_part_of_an_error_that_is_long_is_cut_in_its_middle():
    error = ConfigError("a" * 10_000, "first" + "b" * 10_000 + "last", "fix it")
    where, what, fix = str(error).split(";")[0].partition(": ")[0], error.what, error.fix
    assert len(str(error)) < 1_100
    assert set(where) == {"a", " ", "…"}
    assert (what[:5], what[-4:], fix) == ("first", "last", "fix it")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
