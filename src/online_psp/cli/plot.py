"""``psp plot``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from online_psp.cli._charts import draw_scores, read_table
from online_psp.cli._common import check_not_source, echo, image_shape, read_fitted, writing
from online_psp.cli._errors import usage
from online_psp.cli._options import IMAGE, Force, Quiet, grouped
from online_psp.engine.extras import need_matplotlib

_SUFFIXES = (".png", ".pdf", ".svg", ".jpg")
_PICTURES = 24


@grouped(picture={"image": IMAGE})
def plot(
    model: Annotated[Path, typer.Argument(help="Model file, or a CSV table from psp score or psp fit --monitor.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Image file: .png, .pdf, .svg or .jpg.")],
    picture: dict[str, Any],
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Plot variances and pictures of a model, or T² and SPE of a table."""
    if output.suffix not in _SUFFIXES:
        usage(f"The output must end in {', '.join(_SUFFIXES)}; got {output}.")
    need_matplotlib("psp plot")
    check_not_source(output, [str(model)])
    with writing(output, force) as target:
        from online_psp.io.files import replacing

        if model.suffix.lower() == ".csv":
            figure = draw_scores(read_table(model), model.name)
        else:
            from online_psp.io.runs import check_image

            stored, shape = read_fitted(model), picture.get("image")
            if shape is not None:
                check_image(shape, stored.model.n_features_in_)
            figure = _draw(stored.model, shape or _shape(image_shape(stored.header), stored.model), model.name)
        with replacing(target) as file:
            figure.savefig(file, dpi=130, format=output.suffix[1:])
    if not quiet:
        echo(output)


def _shape(shape: Any, model: Any) -> tuple[int, ...] | None:
    if not isinstance(shape, list) or not all(type(length) is int and length > 0 for length in shape):
        return None
    return tuple(shape) if len(shape) in (2, 3) and math.prod(shape) == model.n_features_in_ else None


def _draw(model: Any, shape: tuple[int, ...] | None, name: str) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count = min(model.n_components_, _PICTURES) if shape else 0
    across = min(8, count) or 1
    down = -(-count // across)
    figure = Figure(figsize=(7.5, 3.6 + 1.05 * down), layout="constrained")
    FigureCanvasAgg(figure)
    parts: Any = figure.subfigures(2, 1, height_ratios=[3.6, 1.05 * down]) if count else [figure]
    _scree(parts[0].subplots(), model, name)
    if shape and count:
        panels = parts[1].subplots(down, across, squeeze=False).ravel()
        for axes in panels:
            axes.axis("off")
        for i, component in enumerate(model.components_[:count]):
            _picture(panels[i], component.reshape(shape), i + 1)
    return figure


def _scree(axes: Any, model: Any, name: str) -> None:
    import numpy as np

    ratios = 100 * model.explained_variance_ratio_
    numbers = np.arange(1, len(ratios) + 1)
    axes.bar(numbers, ratios, color="#4c78a8")
    axes.set(title=f"{name}: {model.n_samples_seen_:,} samples", xlabel="component", ylabel="variance explained, %")
    axes.xaxis.get_major_locator().set_params(integer=True)
    total = axes.twinx()
    total.plot(numbers, np.cumsum(ratios), color="#e45756", marker="." if len(numbers) < 40 else None)
    total.set(ylabel="cumulative, %", ylim=(0, 105))


def _picture(axes: Any, values: Any, number: int) -> None:
    largest = abs(values).max() or 1.0
    if values.ndim == 2:
        axes.imshow(values, cmap="RdBu_r", vmin=-largest, vmax=largest)
    else:
        axes.imshow(0.5 + 0.5 * values / largest)
    axes.set_title(str(number), fontsize=7, pad=2)
