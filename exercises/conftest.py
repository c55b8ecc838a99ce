"""Exercises run by nbval: pytest's summary says "exercise 4.2 is blank: write weights()"."""

from satcourse.exercises.summary import pytest_itemcollected, pytest_runtest_makereport  # noqa: F401
