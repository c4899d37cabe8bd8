"""Imputers of images that the benchmark's tests hand to it as a user would: good ones and bad ones."""

from __future__ import annotations

import os
import time


class Grey:
    """Fill with one grey; refuse to be shown what is hidden."""

    def __init__(self, level=100, seconds=0.0):
        self.level, self.seconds = level, seconds

    def fit(self, X, y=None, *, mask):
        assert not X[mask].any(), "hidden training pixels were shown"
        time.sleep(self.seconds)
        return self

    def transform(self, X, *, mask):
        assert not X[mask].any(), "hidden test pixels were shown"
        filled = X.copy()
        filled[mask] = self.level
        return filled


class Drawn(Grey):
    """Draw a grey that the seed decides."""

    def __init__(self, random_state=None, fails=False):
        super().__init__()
        self.random_state, self.fails = random_state, fails

    def draw(self, X, m, random_state, *, mask):
        if self.fails:
            raise RuntimeError("no draw")
        for number in range(m):
            filled = X.copy()
            filled[mask] = 10 * random_state + number
            yield filled


class Broken(Grey):
    def fit(self, X, y=None, *, mask):
        raise ValueError("no\n  good")


class Crashing(Grey):
    def fit(self, X, y=None, *, mask):
        print("about to fall", flush=True)
        os._exit(7)


class Floating(Grey):
    def transform(self, X, *, mask):
        return X / 255


class Forgetful(Grey):
    """Fill the test images, and fail at the training images."""

    def transform(self, X, *, mask):
        if getattr(self, "used", False):
            raise RuntimeError("only once")
        self.used = True
        return super().transform(X, mask=mask)
