"""The number of BLAS threads follows the size of the basis, and comes back."""

from __future__ import annotations

import threading

import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from online_psp.engine.threads import PER_THREAD, suited_threads


def threads() -> int:
    return max(int(library.num_threads) for library in ThreadpoolController().select(user_api="blas").lib_controllers)


def test_small_bases_take_one_thread_and_large_ones_all() -> None:
    with threadpool_limits(2, "blas"):
        if threads() < 2:
            pytest.skip("this BLAS has one thread")
        with suited_threads(1000):
            assert threads() == 1
            with suited_threads(4 * PER_THREAD):  # the outer block decides
                assert threads() == 1
        assert threads() == 2, "the number of threads was not restored"
        with suited_threads(4 * PER_THREAD):
            assert threads() == 2
        with pytest.raises(ZeroDivisionError), suited_threads(0):
            raise ZeroDivisionError
        assert threads() == 2, "the number of threads was not restored after an error"


def test_never_more_than_the_user_allows() -> None:
    with threadpool_limits(1, "blas"), suited_threads(100 * PER_THREAD):
        assert threads() == 1


def test_several_learners_do_not_wait_and_the_last_one_sets_the_number_back() -> None:
    begun, done = threading.Event(), threading.Event()

    def learn() -> None:
        with suited_threads(0):
            begun.set()
            done.wait(10)

    with threadpool_limits(2, "blas"):
        most, other = threads(), threading.Thread(target=learn)
        with suited_threads(0):
            other.start()
            assert begun.wait(10), "a second thread should learn beside the first"
        assert threads() == 1, "the second one is still at work"
        done.set()
        other.join()
        assert threads() == most
