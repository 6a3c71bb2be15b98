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


def test_another_thread_does_not_wait() -> None:
    done = threading.Event()

    def learn() -> None:
        with suited_threads(0):
            done.set()

    with suited_threads(0):
        threading.Thread(target=learn).start()
        assert done.wait(10), "a second thread should learn beside the first"
