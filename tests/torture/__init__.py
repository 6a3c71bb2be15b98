"""Attacks at random, for as long as one likes: ``python -m tests.torture --minutes 60``. Not part of the tests; see docs/reliability.md."""
