"""The figures of the paper's Table 1, to stand beside measured ones."""

from __future__ import annotations

__all__ = ["CITATION", "TABLE_1", "paper_figure"]

#: Where the figures are from.
CITATION = (
    "Richardson, Wu, Lin, Xu and Bernal, MCFlow: Monte Carlo Flow Models for Data Imputation, CVPR 2020, Table 1 "
    "(UCI data sets, 20 % missing completely at random, five folds)"
)

#: RMSE, mean and deviation over folds, by method of ours and by table.
TABLE_1: dict[str, dict[str, tuple[float, float]]] = {
    "mice": {"credit": (0.1763, 0.0007), "news": (0.2585, 0.0010), "letter": (0.1537, 0.0006)},
    "missforest": {"credit": (0.1623, 0.0120), "news": (0.1976, 0.0015), "letter": (0.1605, 0.0004)},
    "softimpute": {"credit": (0.2282, 0.0005), "news": (0.2602, 0.0073), "letter": (0.1442, 0.0006)},
    "autoencoder": {"credit": (0.1667, 0.0014), "news": (0.2388, 0.0005), "letter": (0.1351, 0.0009)},
    "em": {"credit": (0.1912, 0.0011), "news": (0.2604, 0.0015), "letter": (0.1563, 0.0012)},
    "gain": {"credit": (0.1441, 0.0007), "news": (0.1858, 0.0010), "letter": (0.1198, 0.0005)},
    "mcflow:paper": {"credit": (0.1233, 0.0012), "news": (0.1760, 0.0032), "letter": (0.1033, 0.0017)},
}


def paper_figure(method: str, table: str, mechanism: str, rate: float) -> tuple[float, float] | None:
    """Return the paper's RMSE of a method, None where it has none.

    Parameters
    ----------
    method : str
        Name without parameters; "softimpute" stands for the paper's Matrix.
    table, mechanism : str
        The paper has letter, credit and news, with cells missing completely at random.
    rate : float
        The paper has 0.2.

    Returns
    -------
    tuple of float or None
        Mean and deviation.

    Examples
    --------
    >>> paper_figure("gain", "letter", "mcar", 0.2)
    (0.1198, 0.0005)
    """
    if mechanism != "mcar" or rate != 0.2:
        return None
    return TABLE_1.get(method, {}).get(table)
