"""Imputers that the benchmark's tests hand to it as a user would: good ones and bad ones."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np


class Means:
    """Fill with column means, after waiting or taking memory; write the process id to a file when a fit begins."""

    def __init__(self, seconds=0.0, mib=0, log=None, shift=0.0):
        self.seconds, self.mib, self.log, self.shift = seconds, mib, log, shift

    def fit(self, X, y=None):
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(f"{os.getpid()}\n")
        ballast = np.ones(self.mib << 17)
        time.sleep(self.seconds)
        self.means_ = np.nanmean(X, axis=0) + self.shift + 0 * ballast[:1].sum()
        return self

    def transform(self, X):
        return np.where(np.isnan(X), self.means_, X)


class Seeded(Means):
    """Fill with the seed."""

    def __init__(self, random_state=None):
        super().__init__()
        self.random_state = random_state

    def transform(self, X):
        return np.where(np.isnan(X), float(self.random_state), X)


class Drawn(Means):
    """Draw around the means; the third draw may fail."""

    def __init__(self, fails=False, seconds=0.0):
        super().__init__()
        self.fails, self.wait = fails, seconds

    def draw(self, X, m, random_state):
        rng = np.random.default_rng(random_state)
        time.sleep(self.wait)
        for number in range(m):
            if self.fails and number == 2:
                raise RuntimeError("no third draw")
            yield np.where(np.isnan(X), self.means_ + rng.normal(size=X.shape), X)


class Broken(Means):
    def fit(self, X, y=None):
        raise ValueError("no\n  good")


class Exhausted(Means):
    def fit(self, X, y=None):
        raise MemoryError


class Crashing(Means):
    def fit(self, X, y=None):
        print("about to fall", flush=True)
        os._exit(7)


class Killed(Means):
    def fit(self, X, y=None):
        os.kill(os.getpid(), signal.SIGKILL)


class Leaky(Means):
    def transform(self, X):
        return X
