"""The documentation site: ``make docs`` builds it into docs/_build/html, warnings are errors."""

from __future__ import annotations

import os
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # for pages that use torch under scikit-learn's array_api_dispatch

_ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(_ROOT / "docs"))
_VERSION = re.search(r'^version = "(.+)"', (_ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
assert _VERSION is not None

project = "online-psp"
author = "The online-psp developers"
project_copyright = "The online-psp developers, BSD-3-Clause"
version = release = _VERSION[1]

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "examples", "gallery/**/*.ipynb", "gallery/**/*.py", "gallery/**/*.zip", "gallery/**/*.json"]
templates_path = ["_templates"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
language = "en"

_OTHERS = {
    "numpy": "https://numpy.org/doc/stable/",
    "scipy": "https://docs.scipy.org/doc/scipy/",
    "sklearn": "https://scikit-learn.org/stable/",
}


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}objects.inv", timeout=3):
            return True
    except OSError:
        return False


# Links into other documentation, where it can be reached: the site can be built without a network.
intersphinx_mapping = {name: (address, None) for name, address in _OTHERS.items() if _answers(address)}

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]  # sphinx-gallery's configuration holds objects that cannot be pickled

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings have types with shapes
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
numpydoc_class_members_toctree = False

copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": ["examples"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"/plot_",
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 10**6,
    "write_computation_times": False,
    "plot_gallery": True,
    "remove_config_comments": True,
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
}

html_math_renderer = "mathml"
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = f"online-psp {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": f"online-psp {version}", "image_light": "img/logo.svg", "image_dark": "img/logo.svg"},
    "show_nav_level": 1,
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "show_prev_next": True,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
# Pages without a bar at their side; that of the reference would be a list of a hundred names.
_WHOLE = ("index", "start", "algorithms", "how_it_works", "which_one", "when_not", "faq", "api/index", "api/generated/*")
html_sidebars: dict[str, list[str]] = {name: [] for name in _WHOLE}


def _escape_shapes(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Shapes such as (n_components_, D) are text: a word that ends in an underscore would be a link in reStructuredText."""
    lines[:] = [re.sub(r"(?<!`)n_components_(?=[,)])", r"n_components\\_", line) for line in lines]


def _inline_math(writer: Any, node: nodes.math) -> None:
    """Formulas as MathML, which browsers draw by themselves: the pages need no network."""
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _block_math(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math-block">{tex2mathml(node.astext().strip(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Called by Sphinx."""
    import write_commands

    app.connect("builder-inited", lambda _: write_commands.write(_ROOT / "docs" / "api" / "generated"))
    app.add_html_math_renderer("mathml", (_inline_math, None), (_block_math, None))
    app.connect("autodoc-process-docstring", _escape_shapes, priority=900)  # after numpydoc
