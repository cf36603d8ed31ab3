from __future__ import annotations

import ctypes
import resource
import sys

import pytest
import torch

from consort.training.compute import Compute, keep_freed_pages

TOUCHED = 40 << 20  # glibc by itself never keeps more than 32 MiB


@pytest.fixture(autouse=True)
def _threads_as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [2, 1])
def test_the_number_of_threads_is_set(threads):
    Compute(threads=threads).apply()
    assert torch.get_num_threads() == threads


def test_by_default_there_is_one_thread_and_no_cohort_step():
    assert (Compute().threads, Compute().cohort_step) == (1, False)


def test_settings_are_values():
    assert Compute(threads=2) == Compute(2)
    assert len({Compute(), Compute(), Compute(channels_last=False)}) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_freed_memory_is_reused_without_faults():
    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(TOUCHED, dtype=torch.uint8)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    keep_freed_pages()
    # The first few may still take new pages, until every free stretch has been touched once.
    assert min(faults() for _ in range(16)) < TOUCHED / resource.getpagesize() / 100


def test_without_glibc_nothing_happens(monkeypatch):
    def missing(name: str) -> ctypes.CDLL:
        raise OSError(f"{name} not found")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    keep_freed_pages()


def test_on_other_systems_the_library_is_not_even_looked_for(monkeypatch):
    def unexpected(name: str) -> ctypes.CDLL:
        raise AssertionError(f"{name} was opened")

    monkeypatch.setattr(ctypes, "CDLL", unexpected)
    monkeypatch.setattr(sys, "platform", "darwin")
    keep_freed_pages()
