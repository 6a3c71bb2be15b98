"""``psp info``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from online_psp.cli._common import names_of, print_json
from online_psp.cli._errors import plain

_BARS = 20
_NO_SETTINGS = ("random_state", "batch_size", "copy")  # accepted by the estimator, but without effect
_NAMES = 12
_RUNS = 6
_ALARMS = 5  # newest ones shown


def info(
    model: Annotated[Path, typer.Argument(help="Model file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Show what a model file holds: settings, samples, source, variances, alarms."""
    from online_psp.io import runs

    fitted, header, monitor = runs.read_stored(model)
    names = names_of(fitted)
    run = runs.from_header(fitted, header) if "source" in header else None
    facts = _facts(fitted, run, header)
    if monitor is not None:
        facts["monitor"] = _monitor_facts(monitor)
    if names is not None:
        facts["feature_names"] = names
    if as_json:
        print_json({"model": str(model).encode("utf-8", "replace").decode(), **facts})
    else:
        _show(model, facts, monitor)


def _facts(model: Any, run: Any, header: dict[str, Any]) -> dict[str, Any]:
    parameters = {name: value for name, value in model.get_params().items() if name not in _NO_SETTINGS}
    facts: dict[str, Any] = {"kind": type(model).__name__, "settings": parameters, "samples": 0}
    if hasattr(model, "n_features_in_"):
        facts |= {
            "samples": model.n_samples_seen_,
            "features": int(model.n_features_in_),
            "components": model.n_components_,
            "exact": bool(model.exact_),
            "explained_variance": model.explained_variance_.tolist(),
            "explained_variance_ratio": model.explained_variance_ratio_.tolist(),
            "explained_variance_error": model.explained_variance_error_.tolist(),
            "subspace_error": model.subspace_error_,
            "component_errors": model.component_errors_.tolist(),
            "effective_rows": model.kish_samples_,
            "not_told_apart": [[first + 1, last + 1] for first, last in model.not_told_apart_],
            "noise_variance": model.noise_variance_,
        }
    if run is not None:
        facts["source"] = {key: value for key, value in run.source.items() if key != "feature_names"}
        names = ("epoch", "row", "epochs", "block", "skipped", "finished", "reading", "before")
        facts |= {name: getattr(run, name) for name in names}
    if isinstance(header.get("merged"), list):
        facts["merged"] = [str(name) for name in header["merged"]]
    return facts


def _monitor_facts(monitor: Any) -> dict[str, Any]:
    found = [{**alarm._asdict(), "features": [{"feature": i, "share": share} for i, share in alarm.features]} for alarm in monitor.alarms]
    names = ("alpha", "learn_outliers", "on_drift", "n_rows", "n_left_out")
    return {**{name: getattr(monitor, name) for name in names}, "alarms": found}


def _show(path: Path, facts: dict[str, Any], monitor: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    from online_psp.monitoring.results import in_words

    console = Console(highlight=False)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")
    learned = ", nothing learned yet" if "components" not in facts else ", exact so far" if facts["exact"] else ""
    table.add_row("model", plain(f"{path}: {facts['kind']}{learned}"))
    if "components" in facts:
        table.add_row("components", f"{facts['components']} of {facts['features']} features")
        table.add_row("error", f"{facts['subspace_error']:.2g} expected, to the population's subspace (0 is equal, 1.41 orthogonal)")
        if runs := facts["not_told_apart"]:
            told = ", ".join(f"{first} and {last}" if last == first + 1 else f"{first} to {last}" for first, last in runs[:_RUNS])
            more = ", …" if len(runs) > _RUNS else ""
            rows = f"{facts['effective_rows']:,.0f} rows: their axes may be any of their span"
            table.add_row("not told apart", f"components {told}{more} by {rows}")
    if "feature_names" in facts:
        shown = ", ".join(facts["feature_names"][:_NAMES]) + (", …" if len(facts["feature_names"]) > _NAMES else "")
        table.add_row("columns", plain(shown))
    table.add_row("samples seen", f"{facts['samples']:,}")
    settings = ", ".join(f"{name}={value}" for name, value in facts["settings"].items() if value is not None)
    table.add_row("settings", plain(settings))
    if "monitor" in facts:
        told = facts["monitor"]
        settings = ", ".join(f"{name}={told[name]}" for name in ("alpha", "learn_outliers", "on_drift"))
        table.add_row("monitor", plain(f"{settings}; {told['n_rows']:,} rows, {told['n_left_out']:,} left out"))
        for alarm in monitor.alarms[-_ALARMS:]:
            ago = told["n_rows"] - alarm.row - 1
            table.add_row("drift alarm", plain(f"{in_words(alarm, facts.get('feature_names'))}; {ago:,} rows ago"))
        if not monitor.alarms:
            table.add_row("drift alarm", "none")
    if "source" in facts:
        total = facts["source"].get("total")
        place = f"epoch {facts['epoch'] + 1} of {facts['epochs']}, row {facts['row']:,}{f' of {total:,}' if total is not None else ''}"
        table.add_row("source", plain(facts["source"]["name"]))
        table.add_row("position", f"{place}, {'finished' if facts['finished'] else 'not finished: psp fit … --resume continues'}")
        for entry in facts["before"][-5:]:
            table.add_row("learned earlier", plain(f"{entry['name']}: {entry.get('rows')} rows"))
        if facts["skipped"]:
            table.add_row("bad rows", f"{facts['skipped']:,} skipped")
    if "merged" in facts:
        table.add_row("merged from", plain(", ".join(facts["merged"])))
    console.print(table, markup=False)
    if facts.get("explained_variance"):
        console.print("\ncomponent, variance with standard error, share of the variance, cumulative share", markup=False)
        console.print(_scree(facts, max(8, console.width - 54)), markup=False)


def _scree(facts: dict[str, Any], width: int) -> str:
    """One bar per component."""
    ratios, variances, errors = (facts[f"explained_variance{what}"] for what in ("_ratio", "", "_error"))
    largest = max(ratios) or 1.0
    lines, total = [], 0.0
    for i, ratio in enumerate(ratios):
        total += ratio
        if i < _BARS or i == len(ratios) - 1:
            bar = "#" * round(width * ratio / largest)
            variance = f"{variances[i]:10.4g} ± {errors[i]:.2g}"
            lines.append(f"{i + 1:>5} {variance:<23} {100 * ratio:7.3f} % {100 * total:8.3f} %  {bar}")
        elif i == _BARS:
            lines.append("    ...")
    return "\n".join(lines)
