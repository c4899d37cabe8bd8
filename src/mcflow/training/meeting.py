"""Where processes that were started together meet, and never those of an earlier start."""

from __future__ import annotations

__all__ = ["fresh_store"]

import secrets
import time

from torch.distributed.distributed_c10d import PrefixStore, Store

#: Seconds between two looks at what the others have written.
PAUSE = 0.02


def fresh_store(store: Store, rank: int, number: int) -> Store:
    """Return a part of a store in which nothing is written yet, the same for all processes of a start.

    Parameters
    ----------
    store : Store
        Shared by all; it may hold what processes of an earlier start have left.
    rank, number : int
        Which process this is, and of how many.

    Returns
    -------
    Store

    Notes
    -----
    torchrun keeps its store when it starts workers anew, and gloo would find the addresses of the dead in it. Counts of
    restarts do not help, as each machine has its own. So each process writes a new word. The first one repeats all
    words that it reads together with its own, until all others have answered to that; and the others wait until they
    read the word they wrote.
    """
    own = secrets.token_hex(8)
    store.set(f"mcflow/word/{rank}", own)
    while True:
        if rank == 0:
            words = [store.get(f"mcflow/word/{k}").decode() for k in range(number)]
            store.set("mcflow/words", " ".join(words))
            answers = [f"mcflow/answer/{k}" for k in range(1, number)]
            if store.check(answers) and all(store.get(name).decode() == own for name in answers):
                return PrefixStore(own, store)
        else:
            first, *others = store.get("mcflow/words").decode().split()
            if own in others:
                store.set(f"mcflow/answer/{rank}", first)
                return PrefixStore(first, store)
        time.sleep(PAUSE)
