"""``psp info``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from online_psp.cli._common import one_sentence, print_json

_BARS = 20


def info(
    model: Annotated[Path, typer.Argument(help="The model file.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """What a model file holds: settings, samples seen, source and position, and the variances as a picture."""
    with one_sentence():
        from online_psp.io import runs as streams
        from online_psp.pca import files as pca_state

        fitted, header = pca_state.load(model)
        run = streams.from_header(fitted, header) if "source" in header else None
        facts = _facts(fitted, run, header)
    if as_json:
        print_json({"model": str(model), **facts})
    else:
        _show(model, facts)


def _facts(model: Any, run: Any, header: dict[str, Any]) -> dict[str, Any]:
    parameters = {name: value for name, value in model.get_params().items() if name not in ("learning_rate", "random_state")}
    facts: dict[str, Any] = {"kind": type(model).__name__, "settings": parameters, "samples": 0}
    if hasattr(model, "_stream"):
        facts |= {
            "samples": model.n_samples_seen_,
            "features": int(model.n_features_in_),
            "components": model.n_components_,
            "phase": "streaming" if model._stream.exact is None else "exact",
            "explained_variance": model.explained_variance_.tolist(),
            "explained_variance_ratio": model.explained_variance_ratio_.tolist(),
            "noise_variance": model.noise_variance_,
        }
    if run is not None:
        facts["source"] = {key: value for key, value in run.source.items() if key != "feature_names"}
        facts |= {name: getattr(run, name) for name in ("epoch", "row", "epochs", "block", "shuffle_buffer", "seed", "skipped", "finished")}
    if isinstance(header.get("merged"), list):
        facts["merged"] = [str(name) for name in header["merged"]]
    return facts


def _show(path: Path, facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")
    table.add_row("model", f"{path}: {facts['kind']}, {facts.get('phase', 'nothing learned yet')}")
    if "components" in facts:
        table.add_row("components", f"{facts['components']} of {facts['features']} features")
    table.add_row("samples seen", f"{facts['samples']:,}")
    table.add_row("settings", ", ".join(f"{name}={value}" for name, value in facts["settings"].items() if value is not None))
    if "source" in facts:
        total = facts["source"].get("total")
        place = f"epoch {facts['epoch'] + 1} of {facts['epochs']}, row {facts['row']:,}{f' of {total:,}' if total is not None else ''}"
        table.add_row("source", str(facts["source"]["name"]))
        table.add_row("position", f"{place}, {'finished' if facts['finished'] else 'not finished: psp fit … --resume goes on'}")
        if facts["skipped"]:
            table.add_row("bad rows", f"{facts['skipped']:,} skipped")
    if "merged" in facts:
        table.add_row("merged from", ", ".join(facts["merged"]))
    console.print(table, markup=False)
    if facts.get("explained_variance"):
        console.print("\nvariance explained", markup=False)
        console.print(_scree(facts["explained_variance_ratio"], max(20, console.width - 32)), markup=False)


def _scree(ratios: list[float], width: int) -> str:
    """A bar a component, eighths of a character fine."""
    largest = max(ratios) or 1.0
    lines, total = [], 0.0
    for i, ratio in enumerate(ratios):
        total += ratio
        if i < _BARS or i == len(ratios) - 1:
            eighths = round(8 * width * ratio / largest)
            bar = "█" * (eighths // 8) + ("" if eighths % 8 == 0 else "▏▎▍▌▋▊▉"[eighths % 8 - 1])
            lines.append(f"{i + 1:>5} {100 * ratio:7.3f} % {100 * total:8.3f} %  {bar}")
        elif i == _BARS:
            lines.append("    …")
    return "\n".join(lines)
