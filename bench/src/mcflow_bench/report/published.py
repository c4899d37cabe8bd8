"""Published results on tables and images, to be shown beside measured ones."""

from __future__ import annotations

__all__ = [
    "AUTHORS_PROGRAM",
    "CITATION",
    "CITED",
    "EMFLOW_TABLES",
    "PAPER_SIZES",
    "SOURCES",
    "TABLE_1",
    "Cited",
    "cited_rows",
    "paper_rmse",
    "to_beat",
]

from dataclasses import dataclass

from mcflow_bench.suites import RATES

#: Source of `TABLE_1`.
CITATION = (
    "Richardson, Wu, Lin, Xu and Bernal, MCFlow: Monte Carlo Flow Models for Data Imputation, CVPR 2020, Table 1 "
    "(UCI data sets, 20 % missing completely at random, five folds)"
)

#: Mean and standard deviation of the RMSE over folds, by method and by table.
TABLE_1: dict[str, dict[str, tuple[float, float]]] = {
    "mice": {"credit": (0.1763, 0.0007), "news": (0.2585, 0.0010), "letter": (0.1537, 0.0006)},
    "missforest": {"credit": (0.1623, 0.0120), "news": (0.1976, 0.0015), "letter": (0.1605, 0.0004)},
    "softimpute": {"credit": (0.2282, 0.0005), "news": (0.2602, 0.0073), "letter": (0.1442, 0.0006)},
    "autoencoder": {"credit": (0.1667, 0.0014), "news": (0.2388, 0.0005), "letter": (0.1351, 0.0009)},
    "em": {"credit": (0.1912, 0.0011), "news": (0.2604, 0.0015), "letter": (0.1563, 0.0012)},
    "gain": {"credit": (0.1441, 0.0007), "news": (0.1858, 0.0010), "letter": (0.1198, 0.0005)},
    "mcflow:paper": {"credit": (0.1233, 0.0012), "news": (0.1760, 0.0032), "letter": (0.1033, 0.0017)},
}

#: RMSE of MCFlow on the tables of `TABLE_1`, as the authors of EMFlow measured it.
EMFLOW_TABLES = {"letter": 0.121, "credit": 0.135, "news": 0.167}

#: RMSE on test rows of Letter by epoch of the program that MCFlow's authors published: single runs on one split, with
#: the rows, the mask and the scaling of the benchmark.
AUTHORS_PROGRAM = {1: 0.3008, 4: 0.1585, 16: 0.1469, 32: 0.1378, 64: 0.1306, 128: 0.1246}


def paper_rmse(method: str, table: str, mechanism: str, rate: float) -> tuple[float, float] | None:
    """Return mean and standard deviation of the paper's RMSE, or None if it has none."""
    return TABLE_1.get(method, {}).get(table) if (mechanism, rate) == ("mcar", 0.2) else None


#: Sources of `CITED`.
SOURCES = {
    "MCFlow's paper": "Richardson, Wu, Lin, Xu and Bernal, MCFlow: Monte Carlo Flow Models for Data Imputation, CVPR "
    "2020, Tables 2 to 4",
    "EMFlow's paper": "Ma and Ghosh, EMFlow: Data Imputation in Latent Space via EM and Deep Flow Models, 2021",
}

#: Numbers of training and test images in MCFlow's paper.
PAPER_SIZES = {"mnist": (60_000, 10_000), "cifar10": (50_000, 10_000), "celeba": (162_770, 19_962)}


@dataclass(frozen=True)
class Cited:
    """A row of a published table, for 10 % to 90 % of the pixels missing completely at random."""

    source: str  # a key of `SOURCES`
    title: str  # the method, as the source calls it
    measure: str  # "rmse", "accuracy" or "frechet", as `image_scores` calls it
    images: str  # name of the set
    values: tuple[float, ...]  # one for each tenth
    # Names of our methods that should not be worse; none for "frechet", whose features are those of another network.
    methods: tuple[str, ...] = ()

    def at(self, mask: str) -> float | None:
        """Return the result for a mask, or None if there is none."""
        return self.values[RATES.index(mask)] if mask in RATES else None


_MCFLOW = "MCFlow's paper"
_EMFLOW = "EMFlow's paper"
_OWN = ("mcflow", "mcflow:paper")

#: All published rows.
CITED: tuple[Cited, ...] = (
    Cited(_MCFLOW, "GAIN", "rmse", "mnist",
          (.11508, .12441, .13988, .14745, .16281, .18233, .20734, .24179, .27258), ("gain",)),
    Cited(_MCFLOW, "MisGAN", "rmse", "mnist",
          (.11740, .10997, .11377, .11297, .12174, .13393, .15445, .19455, .27806), ("misgan",)),
    Cited(_MCFLOW, "MCFlow", "rmse", "mnist",
          (.07464, .07929, .08508, .09187, .10045, .11255, .12996, .15806, .20801), _OWN),
    Cited(_MCFLOW, "GAIN", "rmse", "cifar10",
          (.10053, .12700, .13248, .11785, .12451, .13130, .13832, .18728, .53728), ("gain",)),
    Cited(_MCFLOW, "MisGAN", "rmse", "cifar10",
          (.18923, .15223, .14746, .12947, .13027, .14746, .17335, .24060, .31722), ("misgan",)),
    Cited(_MCFLOW, "MCFlow", "rmse", "cifar10",
          (.06012, .06232, .06686, .07215, .08311, .10048, .13132, .15015, .16939), _OWN),
    Cited(_MCFLOW, "GAIN", "rmse", "celeba",
          (.06752, .07493, .08367, .08479, .09292, .10608, .11720, .14042, .52050), ("gain",)),
    Cited(_MCFLOW, "MCFlow", "rmse", "celeba",
          (.05733, .06243, .06266, .06946, .07261, .07890, .08487, .11073, .12225), _OWN),
    Cited(_MCFLOW, "GAIN", "frechet", "mnist", (.0696, .4035, 1.24, 3.277, 6.337, 12.44, 22.91, 43.69, 92.74)),
    Cited(_MCFLOW, "MisGAN", "frechet", "mnist", (.0529, .1015, .2085, .2691, .3634, .8870, 1.324, 2.334, 6.325)),
    Cited(_MCFLOW, "MCFlow", "frechet", "mnist", (.0521, .0779, .2295, .6097, .8366, .9082, 1.951, 6.765, 15.11)),
    Cited(_MCFLOW, "GAIN", "accuracy", "mnist", (.989, .988, .985, .978, .969, .931, .852, .629, .261), ("gain",)),
    Cited(_MCFLOW, "MisGAN", "accuracy", "mnist", (.989, .988, .986, .980, .968, .945, .872, .690, .334), ("misgan",)),
    Cited(_MCFLOW, "MCFlow", "accuracy", "mnist", (.991, .990, .990, .988, .985, .979, .963, .905, .705), _OWN),
    Cited(_EMFLOW, "EMFlow", "rmse", "mnist",
          (.0726, .0775, .0832, .0901, .0986, .1100, .1260, .1504, .1951), ("mcflow",)),
    Cited(_EMFLOW, "MCFlow, run again", "rmse", "mnist",
          (.0835, .0879, .0894, .0941, .1027, .1119, .1251, .1463, .2020), ("mcflow",)),
    Cited(_EMFLOW, "EMFlow", "rmse", "cifar10",
          (.0444, .0479, .0525, .0575, .0619, .0689, .0782, .0926, .1188), ("mcflow",)),
    Cited(_EMFLOW, "EMFlow", "accuracy", "mnist",
          (.9894, .9884, .9882, .9878, .9860, .9824, .9696, .9253, .7502), ("mcflow",)),
)  # fmt: skip


def cited_rows(measure: str, images: str) -> list[Cited]:
    """Return the published rows of a measure on a set."""
    return [row for row in CITED if (row.measure, row.images) == (measure, images)]


def to_beat(measure: str, images: str, mask: str, method: str) -> tuple[float, Cited] | None:
    """Return the best published result that a method of ours should not be worse than, or None if there is none."""
    found = [(row.at(mask), row) for row in cited_rows(measure, images) if method in row.methods]
    known = [(value, row) for value, row in found if value is not None]
    best = max if measure == "accuracy" else min
    return best(known, key=lambda pair: pair[0]) if known else None
