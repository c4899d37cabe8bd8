"""`mcflow impute-images`: fill the missing pixels of a folder of images."""

from __future__ import annotations

__all__ = ["impute_images"]

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from mcflow.config import Interval, check_parameter
from mcflow.errors import ModelFileError, OutputError, ParameterError

if TYPE_CHECKING:
    from mcflow.imputers import MCFlowImageImputer


def impute_images(
    source: Path,
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o")],
    masks: Path | None = None,
    model: Path | None = None,
    save: Path | None = None,
    draws: int | None = None,
    interval: float | None = None,
    preset: str = "default",
    max_epochs: int | None = None,
    max_time: float | None = None,
    checkpoint_dir: Path | None = None,
    device: str = "auto",
    seed: int = 0,
    quiet: Annotated[bool, Parameter(alias="-q")] = False,
) -> None:
    """Fill the missing pixels of all images of a folder.

    Parameters
    ----------
    source
        Folder of PNG, JPEG, WebP or BMP files of one size.
    output
        Folder for the filled images, as PNG; draws go to its subfolders draw-01, draw-02 and so on.
    masks
        Folder of images with the same names, white where a pixel is missing. By default transparent pixels are missing.
    model
        Use this fitted model instead of fitting one.
    save
        Also save the fitted model to this file.
    draws
        Also write this many draws of every image.
    interval
        Also write the bounds of prediction intervals with this coverage, to the folders low and high.
    preset
        Settings to start from: default, or paper for the method of the MCFlow paper.
    max_epochs
        Maximum number of epochs.
    max_time
        Time limit of the fit in seconds.
    checkpoint_dir
        Folder for checkpoints; an interrupted fit resumes from there.
    device
        auto, cpu, cuda or mps.
    seed
        Random seed.
    quiet
        Print errors only.
    """
    from mcflow.images.folders import read_image_folder, write_image_folder
    from mcflow.imputers import MCFlowImageImputer

    check_parameter("draws", draws, Interval(int, 1, optional=True))
    if interval is not None and not 0 < interval < 1:
        raise ParameterError(f"--interval is {interval}, but has to be between 0 and 1.")
    if output.resolve() in {source.resolve(), *([masks.resolve()] if masks else [])}:
        raise OutputError(f"{output} is an input folder. Choose another folder for the filled images.")
    images, mask, names = read_image_folder(source, masks)
    chosen: dict[str, Any] = {"preset": preset, "max_epochs": max_epochs, "max_time": max_time}
    chosen["checkpoint_dir"] = checkpoint_dir
    if model is None:
        imputer = MCFlowImageImputer(**chosen, device=device, random_state=seed, verbose=not quiet)
        imputer.fit(images, mask=mask)
    else:
        imputer = _loaded(model, device, chosen)
    write_image_folder(imputer.transform(images, mask=mask), output, names)
    for number, drawn in enumerate(imputer.draw(images, draws, seed, mask=mask) if draws else (), 1):
        write_image_folder(drawn, output / f"draw-{number:02d}", names)
    if interval is not None:
        for name, bound in zip(("low", "high"), imputer.interval(images, interval, mask=mask), strict=True):
            write_image_folder(bound, output / name, names)
    if save is not None:
        imputer.save(save)
    if not quiet:
        words = f"Filled {mask.mean():.1%} of the pixels of {len(names)} images. Written to {output}"
        Console().print(words, highlight=False)


def _loaded(model: Path, device: str, chosen: dict[str, Any]) -> MCFlowImageImputer:
    from mcflow.imputers import MCFlowImageImputer, load

    given = [f"--{name.replace('_', '-')}" for name, value in chosen.items() if value not in (None, "default")]
    if given:
        raise ParameterError(
            f"{', '.join(given)} has no effect with --model, which is already fitted. Leave one of them out."
        )
    imputer = load(model, device=device)
    if not isinstance(imputer, MCFlowImageImputer):
        raise ModelFileError(f"{model} is a model of tables. `mcflow impute` uses it.")
    return imputer
