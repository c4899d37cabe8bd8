"""Published figures of imputation of images, to stand beside measured ones."""

from __future__ import annotations

__all__ = ["CITED", "PAPER_SIZES", "SOURCES", "Cited", "cited_rows", "to_beat"]

from dataclasses import dataclass

#: Where the figures are from.
SOURCES = {
    "MCFlow's paper": "Richardson, Wu, Lin, Xu and Bernal, MCFlow: Monte Carlo Flow Models for Data Imputation, CVPR "
    "2020, Tables 2 to 4",
    "EMFlow's paper": "Ma and Ghosh, EMFlow: Data Imputation in Latent Space via EM and Deep Flow Models, 2021",
}

#: Training and test images of MCFlow's paper.
PAPER_SIZES = {"mnist": (60_000, 10_000), "cifar10": (50_000, 10_000), "celeba": (162_770, 19_962)}


@dataclass(frozen=True)
class Cited:
    """A row of a published table, at 10 % to 90 % of the pixels missing completely at random.

    Parameters
    ----------
    source : str
        A key of `SOURCES`.
    title : str
        The method, as the source calls it.
    measure : str
        "rmse", "accuracy" or "frechet", as `image_scores` calls it.
    images : str
        Name of the set.
    values : tuple of float
        One for each tenth.
    methods : tuple of str
        Our methods, without parameters, that should not be worse. None of them for "frechet": the distances are those
        of another network's features.
    """

    source: str
    title: str
    measure: str
    images: str
    values: tuple[float, ...]
    methods: tuple[str, ...] = ()

    def at(self, mask: str) -> float | None:
        """Return the figure at a share of missing pixels, None where there is none.

        Examples
        --------
        >>> CITED[0].at("0.5"), CITED[0].at("blocks:0.25")
        (0.16281, None)
        """
        rates = [f"0.{tenth}" for tenth in range(1, 10)]
        return self.values[rates.index(mask)] if mask in rates else None


_OURS, _THEIRS = "MCFlow's paper", "EMFlow's paper"
_MCFLOW = ("mcflow", "mcflow:paper")

#: All rows.
CITED: tuple[Cited, ...] = (
    Cited(_OURS, "GAIN", "rmse", "mnist",
          (.11508, .12441, .13988, .14745, .16281, .18233, .20734, .24179, .27258), ("gain",)),
    Cited(_OURS, "MisGAN", "rmse", "mnist",
          (.11740, .10997, .11377, .11297, .12174, .13393, .15445, .19455, .27806), ("misgan",)),
    Cited(_OURS, "MCFlow", "rmse", "mnist",
          (.07464, .07929, .08508, .09187, .10045, .11255, .12996, .15806, .20801), _MCFLOW),
    Cited(_OURS, "GAIN", "rmse", "cifar10",
          (.10053, .12700, .13248, .11785, .12451, .13130, .13832, .18728, .53728), ("gain",)),
    Cited(_OURS, "MisGAN", "rmse", "cifar10",
          (.18923, .15223, .14746, .12947, .13027, .14746, .17335, .24060, .31722), ("misgan",)),
    Cited(_OURS, "MCFlow", "rmse", "cifar10",
          (.06012, .06232, .06686, .07215, .08311, .10048, .13132, .15015, .16939), _MCFLOW),
    Cited(_OURS, "GAIN", "rmse", "celeba",
          (.06752, .07493, .08367, .08479, .09292, .10608, .11720, .14042, .52050), ("gain",)),
    Cited(_OURS, "MCFlow", "rmse", "celeba",
          (.05733, .06243, .06266, .06946, .07261, .07890, .08487, .11073, .12225), _MCFLOW),
    Cited(_OURS, "GAIN", "frechet", "mnist", (.0696, .4035, 1.24, 3.277, 6.337, 12.44, 22.91, 43.69, 92.74)),
    Cited(_OURS, "MisGAN", "frechet", "mnist", (.0529, .1015, .2085, .2691, .3634, .8870, 1.324, 2.334, 6.325)),
    Cited(_OURS, "MCFlow", "frechet", "mnist", (.0521, .0779, .2295, .6097, .8366, .9082, 1.951, 6.765, 15.11)),
    Cited(_OURS, "GAIN", "accuracy", "mnist", (.989, .988, .985, .978, .969, .931, .852, .629, .261), ("gain",)),
    Cited(_OURS, "MisGAN", "accuracy", "mnist", (.989, .988, .986, .980, .968, .945, .872, .690, .334), ("misgan",)),
    Cited(_OURS, "MCFlow", "accuracy", "mnist", (.991, .990, .990, .988, .985, .979, .963, .905, .705), _MCFLOW),
    Cited(_THEIRS, "EMFlow", "rmse", "mnist",
          (.0726, .0775, .0832, .0901, .0986, .1100, .1260, .1504, .1951), ("mcflow",)),
    Cited(_THEIRS, "MCFlow, run again", "rmse", "mnist",
          (.0835, .0879, .0894, .0941, .1027, .1119, .1251, .1463, .2020), ("mcflow",)),
    Cited(_THEIRS, "EMFlow", "rmse", "cifar10",
          (.0444, .0479, .0525, .0575, .0619, .0689, .0782, .0926, .1188), ("mcflow",)),
    Cited(_THEIRS, "EMFlow", "accuracy", "mnist",
          (.9894, .9884, .9882, .9878, .9860, .9824, .9696, .9253, .7502), ("mcflow",)),
)  # fmt: skip


def cited_rows(measure: str, images: str) -> list[Cited]:
    """Return what is published of a measure on a set.

    Parameters
    ----------
    measure, images : str
        As in `Cited`.

    Returns
    -------
    list of Cited

    Examples
    --------
    >>> [row.title for row in cited_rows("rmse", "celeba")]
    ['GAIN', 'MCFlow']
    """
    return [row for row in CITED if (row.measure, row.images) == (measure, images)]


def to_beat(measure: str, images: str, mask: str, method: str) -> tuple[float, Cited] | None:
    """Return the best published figure that a method of ours should not be worse than, None where there is none.

    Parameters
    ----------
    measure, images, mask : str
        As in `Cited`.
    method : str
        Name of ours without parameters.

    Returns
    -------
    tuple of float and Cited, or None

    Examples
    --------
    >>> to_beat("rmse", "mnist", "0.8", "mcflow")[0], to_beat("rmse", "mnist", "0.8", "mcflow:paper")[0]
    (0.1463, 0.15806)
    """
    found = [(row.at(mask), row) for row in cited_rows(measure, images) if method in row.methods]
    known = [(value, row) for value, row in found if value is not None]
    best = max if measure == "accuracy" else min
    return best(known, key=lambda pair: pair[0]) if known else None
