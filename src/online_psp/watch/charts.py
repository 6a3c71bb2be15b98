"""The charts of the page, as Bokeh figures over data sources that are filled later."""

from __future__ import annotations

from typing import Any

from bokeh.models import (
    ColumnDataSource,
    CustomJSTicker,
    CustomJSTickFormatter,
    DataRange1d,
    HoverTool,
    LinearColorMapper,
    LogColorMapper,
    NoOverlap,
    NumeralTickFormatter,
    TapTool,
)
from bokeh.palettes import Cividis256
from bokeh.plotting import figure

from online_psp.watch.pictures import BLUE, BROWN, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from online_psp.watch.story import VARIANCES

_LINES = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BROWN, GREY)
_TEXT = "13px"
_PALETTE = list(Cividis256[24:])  # without its darkest end, which cannot be seen on a dark page

_SHORT = (
    "const s = Math.abs(tick); return s && (s >= 1e5 || s < 1e-3) ? tick.toExponential(1).replace('.0', '') : String(+tick.toPrecision(6))"
)
# Thousands, millions and billions, with enough digits to tell two ticks apart.
_ROWS = """
const step = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : Math.abs(tick)
const [unit, letter] = tick >= 1e9 ? [1e9, "b"] : tick >= 1e6 ? [1e6, "m"] : tick >= 1e4 ? [1e3, "k"] : [1, ""]
if (step < unit / 1000) return tick.toLocaleString("en-US")
return +(tick / unit).toFixed(3) + letter
"""
# Powers of ten or, if few of them are in range, also multiples of them; there, Bokeh's own ticks would be spaced as on a linear axis.
_DECADES = """
const low = Math.max(Math.min(cb_data.start, cb_data.end), 1e-320), high = Math.max(cb_data.start, cb_data.end), found = []
const decades = Math.log10(high / low), step = Math.max(1, Math.ceil(decades / 5))
const parts = decades > 2.5 ? [1] : decades > 0.8 ? [1, 2, 5] : decades > 0.3 ? [1, 1.5, 2, 3, 4, 5, 6, 8] : null
if (parts === null) {
  const width = 10 ** Math.floor(Math.log10(high - low)), many = (high - low) / width
  const by = width * (many > 5 ? 2 : many > 2 ? 1 : 0.5)
  for (let i = Math.ceil(low / by); i * by <= high && found.length < 20; i++) found.push(i * by)
  return found
}
for (let k = Math.floor(Math.log10(low)); k <= Math.log10(high); k++) {
  if (k % step) continue
  for (const part of parts) { const at = Number(part + "e" + k); if (at >= low && at <= high) found.push(at) }
}
return found
"""

Sources = dict[str, ColumnDataSource]


def _blank(name: str, label: str, *, x: str = "row", log: bool = False, height: int = 240, x_range: Any = None) -> figure:
    """A figure that takes its colours for text and lines from the page, light or dark."""
    chart = figure(
        name=name,
        height=height,
        min_width=200,
        sizing_mode="stretch_width",
        y_axis_type="log" if log else "linear",
        x_range=x_range if x_range is not None else DataRange1d(only_visible=True, range_padding=0.02),
        y_range=DataRange1d(only_visible=True, range_padding=0.08),
        tools="pan,box_zoom,reset",
        active_drag=None,  # a finger scrolls the page until a tool is chosen
        toolbar_location="above",
        toolbar_inner=True,
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        min_border_right=12,
        min_border_left=68,
        output_backend="canvas",
    )
    chart.toolbar.logo = None
    chart.toolbar.autohide = True
    chart.xaxis.axis_label, chart.yaxis.axis_label = x, label
    for axis in (chart.xaxis, chart.yaxis):
        axis.axis_label_text_font_size = axis.major_label_text_font_size = _TEXT
        axis.axis_label_text_font_style = "normal"
        axis.minor_tick_line_color = None
    chart.xaxis.formatter = CustomJSTickFormatter(code=_ROWS) if x == "row" else NumeralTickFormatter(format="0")
    chart.yaxis.formatter = CustomJSTickFormatter(code=_SHORT)
    chart.xaxis.ticker.desired_num_ticks = 5
    if log:
        ticks = CustomJSTicker(major_code=_DECADES, minor_code="return []")
        chart.yaxis.ticker = chart.ygrid.ticker = ticks
    else:
        chart.yaxis.ticker.desired_num_ticks = 5
    chart.xaxis.major_label_policy, chart.yaxis.major_label_policy = NoOverlap(min_distance=8), NoOverlap(min_distance=4)
    chart.xgrid.grid_line_color = None
    return chart


def explained(sources: Sources) -> figure:
    """Share of the variance explained over rows."""
    chart = _blank("explained", "% of the variance", height=220)
    chart.y_range.default_span = 0.1
    chart.line("row", "share", source=sources["explained"], line_width=2, color=BLUE)
    chart.scatter("row", "share", source=sources["explained"], size=3, color=BLUE)
    chart.add_tools(HoverTool(tooltips=[("row", "@row{0,0}"), ("explained", "@share{0.00} %")], mode="vline", line_policy="nearest"))
    return chart


def scree(sources: Sources) -> figure:
    """Variances now, at half the rows, and the noise level."""
    chart = _blank("scree", "variance", x="component", log=True, height=220)
    source = sources["scree"]
    chart.line("component", "earlier", source=source, line_width=2, line_dash="dotted", color=ORANGE)
    chart.line("component", "noise", source=source, line_width=1.5, line_dash="dashed", color=GREY)
    chart.scatter("component", "noise", source=source, marker="dash", size=12, line_width=1.5, color=GREY)  # a line takes two points
    chart.line("component", "now", source=source, line_width=2, color=BLUE)
    chart.scatter("component", "now", source=source, size=7, color=BLUE)
    chart.xaxis.ticker.min_interval = 1
    chart.add_tools(HoverTool(tooltips=[("component", "@component{0}"), ("variance", "@now{0.000a}"), ("noise", "@noise{0.000a}")]))
    return chart


def variances(sources: Sources) -> figure:
    """The first variances and the noise level over rows."""
    chart = _blank("variances", "variance", log=True, height=220)
    source = sources["variances"]
    for k in range(VARIANCES):
        chart.line(
            "row", f"v{k + 1}", source=source, line_width=1.8, color=_LINES[k % len(_LINES)], line_dash="solid" if k < 4 else "dotdash"
        )
        chart.scatter("row", f"v{k + 1}", source=source, size=3, color=_LINES[k % len(_LINES)])
    chart.line("row", "noise", source=source, line_width=1.5, line_dash="dashed", color=GREY)
    chart.scatter("row", "noise", source=source, size=2, color=GREY)
    return chart


def scores(sources: Sources) -> tuple[figure, figure]:
    """T² and SPE over rows, with their limits, outliers and alarms; the whole run, or the newest rows."""
    first = _score("t2", "T²", sources, None)
    return first, _score("spe", "SPE", sources, first.x_range)


def _score(name: str, label: str, sources: Sources, x_range: Any) -> figure:
    chart = _blank(name, label, log=True, height=265, x_range=x_range)
    whole, newest = sources["whole"], sources["newest"]
    drawn = [
        chart.varea("row", name, f"{name}_most", source=whole, fill_color=SKY, fill_alpha=0.32),
        chart.line("row", name, source=whole, line_width=2, color=BLUE),
        chart.line("row", f"{name}_limit", source=whole, line_width=1.5, line_dash="dashed", color=GREY),
        chart.scatter("row", f"{name}_over", source=whole, marker="triangle", size=7, color=VERMILION, alpha=0.8),
    ]
    for renderer in drawn:
        renderer.tags = ["whole"]
    close = [
        chart.scatter("row", name, source=newest, size=3, color=BLUE, alpha=0.6),
        chart.line("row", f"{name}_limit", source=newest, line_width=1.5, line_dash="dashed", color=GREY),
        chart.scatter("row", f"{name}_over", source=newest, marker="triangle", size=8, color=VERMILION, alpha=0.9),
    ]
    for renderer in close:
        renderer.tags, renderer.visible = ["newest"], False
    chart.x_range.renderers = [*chart.x_range.renderers, *drawn, *close] if x_range is not None else [*drawn, *close]  # without the alarms
    chart.y_range.renderers = [*drawn, *close]
    spans = chart.vspan("row", source=sources["marks"], line_color=PURPLE, line_width=3, line_alpha=0.9)
    chart.add_tools(
        HoverTool(
            renderers=[drawn[1], close[0]],
            tooltips=[("row", "@row{0,0}"), (label, f"@{name}{{0.00a}}"), ("limit", f"@{name}_limit{{0.00a}}")],
        ),
        TapTool(renderers=[spans], mode="replace"),
    )
    return chart


def plane(sources: Sources, id_names: list[str]) -> tuple[figure, Any, dict[str, Any]]:
    """The newest rows in the plane of two components: the figure, its points, and the mappers that colour them."""
    chart = _blank("plane", "component 2", x="component 1", height=420)
    chart.xaxis.formatter = CustomJSTickFormatter(code=_SHORT)
    mappers = {"row": LinearColorMapper(palette=_PALETTE), "spe": LogColorMapper(palette=_PALETTE, nan_color=GREY)}
    points = chart.scatter(
        "s1",
        "s2",
        source=sources["rows"],
        size=6,
        fill_alpha=0.85,
        line_color=GREY,
        line_width=0.4,
        fill_color={"field": "row", "transform": mappers["row"]},
    )
    tooltips = [("row", "@row{0,0}"), ("SPE", "@spe{0.00a}")]
    tooltips += [(_plain(name), f"@id{i}") for i, name in enumerate(id_names)]
    chart.add_tools(HoverTool(tooltips=tooltips, renderers=[points]))
    return chart, points, mappers


def _plain(name: str) -> str:
    """A label for a tooltip, without characters that Bokeh would take for a field or for markup."""
    return "".join(each if each.isalnum() or each in " _-." else " " for each in name)[:40] or "id"
