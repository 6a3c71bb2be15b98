"""The documentation says what is so: every Python block runs, every command parses, every public name and parameter is there.

Blocks of one page run in order, in one namespace and a folder of their own. A block marked ``python`` always runs, unless a comment before
it says why it cannot (``<!-- not run: … -->``) or what it needs (``<!-- needs: torch -->``). Blocks with another mark, or none, are not
Python; the ``psp`` commands in them are checked against the command line's own options.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import inspect
import io
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import typer.main
from sklearn.decomposition import IncrementalPCA

import online_psp
from online_psp import OnlinePCA
from online_psp.cli.main import app
from tests import ROOT, docs_setup

DOCS = ROOT / "docs"
GENERATED = ("_build", "gallery", "generated")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "matlab" / "README.md",
    *sorted(path for path in DOCS.rglob("*.md") if not set(path.relative_to(DOCS).parts) & set(GENERATED)),
]
BLOCK = re.compile(r"((?:^<!--[^\n]*-->\n)*)^(```+)([^\n`]*)\n(.*?)^\2\s*$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page."""

    line: int
    remarks: str
    language: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        yield Block(text.count("\n", 0, match.start(4)) + 1, match[1], match[3].strip(), match[4])


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def missing(block: Block) -> str:
    """The packages and programs that a block needs and that are not installed."""
    needed = re.search(r"<!-- needs: (.*?) -->", block.remarks)
    names = [name.strip() for name in needed[1].split(",")] if needed else []
    return ", ".join(name for name in names if importlib.util.find_spec(name) is None and shutil.which(name) is None)


def runnable(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "python" and "<!-- not run:" not in block.remarks]


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=name_of)
@pytest.mark.filterwarnings("default")
def test_every_python_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace: dict[str, Any] = {"__name__": "page"}
    docs_setup.prepare(name_of(page), namespace)
    absent = ", ".join(dict.fromkeys(filter(None, map(missing, runnable(page)))))
    chosen = [block for block in runnable(page) if not missing(block)]
    if "SCIPY_ARRAY_API" in page.read_text(encoding="utf-8"):  # read when SciPy is imported: a process of its own
        Path("page.py").write_text("\n".join(block.text for block in chosen), encoding="utf-8")
        monkeypatch.setenv("SCIPY_ARRAY_API", "1")
        done = subprocess.run([sys.executable, "page.py"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name_of(page)}: {done.stderr}"
    else:
        for block in chosen:
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")  # so that a failure names the line of the page
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, namespace)
    if absent:
        pytest.skip(f"some blocks of {name_of(page)} need {absent}")


# Commands


def commands(page: Path) -> Iterator[tuple[int, list[str]]]:
    """The ``psp`` commands in blocks that are not Python, with their lines."""
    for block in blocks(page):
        if block.language not in ("", "console", "sh", "bash"):
            continue
        for number, line in enumerate(block.text.splitlines()):
            for part in re.split(r"\s\|\s", line.removeprefix("$ ")):
                if re.match(r"\s*(\.venv/bin/)?psp [a-z]", part):
                    yield block.line + number, shlex.split(part, comments=True)


@pytest.mark.parametrize("page", [page for page in PAGES if any(commands(page))], ids=name_of)
def test_commands_have_the_options_that_the_pages_show(page: Path) -> None:
    for line, words in commands(page):
        command: Any = typer.main.get_command(app)
        rest = words[1:]
        while hasattr(command, "commands") and rest and rest[0] in command.commands:
            command = command.commands[rest.pop(0)]
        assert command.name != "psp", f"{name_of(page)}, line {line}: there is no command psp {words[1]}"
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {"--help", "--debug"}
        used = {word.split("=")[0] for word in rest if re.match(r"--?[a-zA-Z]", word)}
        assert used <= known, f"{name_of(page)}, line {line}: psp {command.name} has no option {', '.join(sorted(used - known))}"


# Docstrings


def modules() -> list[str]:
    """The modules whose docstrings have examples."""
    files = [path for path in sorted((ROOT / "src").rglob("*.py")) if ">>>" in path.read_text(encoding="utf-8")]
    return [".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__") for path in files]


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(str(error))
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    told = io.StringIO()
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        runner.run(test, out=told.write)
    assert runner.summarize(verbose=False).failed == 0, told.getvalue()


# What is listed


TABLES = (DOCS / "guides" / "incremental_pca.md").read_text(encoding="utf-8")
FIRST_COLUMN = set(re.findall(r"^\| `(\w+)` \|", TABLES, re.MULTILINE))


def test_the_switch_names_everything_that_incremental_pca_has() -> None:
    rows = np.random.default_rng(0).standard_normal((20, 4))
    fitted = IncrementalPCA(2).fit(rows)
    parameters = set(inspect.signature(IncrementalPCA).parameters)
    documented = set(re.findall(r"^(\w+_) : ", inspect.getdoc(IncrementalPCA) or "", re.MULTILINE))
    attributes = {name for name in vars(fitted) if name.endswith("_") and not name.startswith("_")} | documented
    methods = {name for name in dir(IncrementalPCA) if not name.startswith("_") and callable(getattr(IncrementalPCA, name))}
    wanted = parameters | attributes | methods
    assert FIRST_COLUMN == wanted, (
        f"not in the tables: {sorted(wanted - FIRST_COLUMN)}; not in IncrementalPCA: {sorted(FIRST_COLUMN - wanted)}"
    )


def test_the_switch_names_everything_that_online_pca_adds() -> None:
    fitted = OnlinePCA(2).fit(np.random.default_rng(0).standard_normal((20, 4)))
    names = (
        set(inspect.signature(OnlinePCA).parameters) | {name for name in dir(OnlinePCA) if not name.startswith("_")} | {"n_features_in_"}
    )
    absent = sorted(name for name in names if f"`{name}`" not in TABLES)
    assert not absent, f"the guide does not name {absent}"
    for name in FIRST_COLUMN - {"batch_size_", "feature_names_in_"}:
        assert hasattr(fitted, name), f"the guide says that OnlinePCA has {name}, and it has not"


PUBLIC = (
    "online_psp",
    "online_psp.algorithms",
    "online_psp.datasets",
    "online_psp.distributed",
    "online_psp.integrations.anndata",
    "online_psp.integrations.river",
    "online_psp.io.runs",
    "online_psp.io.sources",
    "online_psp.metrics",
    "online_psp.monitoring",
    "online_psp.pca",
    "online_psp.suite",
    "online_psp.watch",
)


def public_names(module: str) -> list[str]:
    """``__all__``; without one, what is defined there and has no underscore before it."""
    found: Any = importlib.import_module(module)
    if hasattr(found, "__all__"):
        return list(found.__all__)
    return [
        name
        for name, value in vars(found).items()
        if not name.startswith("_")
        and getattr(value, "__module__", None) == module
        and (inspect.isclass(value) or inspect.isfunction(value))
    ]


def reference() -> dict[str, Any]:
    """The objects that the reference lists, by their full names there."""
    text = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    found, module = {}, ""
    for line in text.splitlines():
        if match := re.match(r"\.\. currentmodule:: ([\w.]+)", line):
            module = match[1]
        elif match := re.match(r"   ([A-Za-z][\w.]*)$", line):
            *inner, name = match[1].split(".")
            found[f"{module}.{match[1]}"] = getattr(importlib.import_module(".".join([module, *inner])), name)
    return found


@pytest.mark.parametrize("module", PUBLIC)
def test_everything_public_is_in_the_reference(module: str) -> None:
    try:
        names = public_names(module)
    except ImportError as error:
        pytest.skip(str(error))
    text = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    listed = list(reference().values())
    for name in names:
        value = getattr(importlib.import_module(module), name)
        known = any(value is other for other in listed) if callable(value) else f".{name}`" in text
        assert known, f"docs/api/index.md does not list {module}.{name}"


def test_nothing_private_is_in_the_reference() -> None:
    for name, value in reference().items():
        assert not any(part.startswith("_") for part in name.split(".")), f"{name} is private"
        assert inspect.getdoc(value), f"{name} has no docstring"


def test_every_promise_names_tests_that_are_there() -> None:
    named = re.findall(r"`((?:unit|contract|slow)/[\w/]+\.py)`", (DOCS / "reliability.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    absent = sorted({name for name in named if not (ROOT / "tests" / name).exists()})
    assert not absent, f"docs/reliability.md names {absent}"


def test_one_version_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert online_psp.__version__ == project["version"], "online_psp.__version__ is not that of pyproject.toml"
    assert f"\nversion: {project['version']}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8"), "CITATION.cff has another version"
    assert f"## {project['version']}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), "CHANGELOG.md does not have this version"


def test_the_conda_recipe_asks_for_the_same_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    assert f'version: "{project["version"]}"' in recipe, "the recipe has another version"
    assert f'python_min: "{project["requires-python"].removeprefix(">=")}"' in recipe, "the recipe has another Python"
    wanted = {re.sub(r"\s*>=", " >=", dependency) for dependency in project["dependencies"]}
    listed = set(re.findall(r"^    - ([\w-]+ >=[\d.]+)$", recipe.partition("  run:")[2], re.MULTILINE))
    assert listed == wanted, f"only in pyproject.toml: {sorted(wanted - listed)}; only in the recipe: {sorted(listed - wanted)}"


def test_extras_that_are_named_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for path in [*PAGES, *sorted((ROOT / "src").rglob("*.py"))]:
        for named in re.findall(r"online-psp\[([\w,-]+)\]", path.read_text(encoding="utf-8")):
            unknown = set(named.split(",")) - set(extras)
            assert not unknown, f"{name_of(path)} names the extra {', '.join(unknown)}, which pyproject.toml does not have"
    inside = set(re.findall(r"[\w-]+", extras["all"][0].partition("[")[2]))
    for part in list(inside):
        inside |= set(re.findall(r"[\w-]+", extras[part][0].partition("[")[2])) if extras[part][0].startswith("online-psp[") else set()
    assert inside == set(extras) - {"all", "dev", "docs", "release"}, "all does not mean all"


def test_the_import_contract_names_every_module_and_the_map_every_room() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"][0]
    assert "ignore_imports" not in contract
    layers = [name.strip() for layer in contract["layers"] for name in layer.split("|")]
    source = ROOT / "src" / "online_psp"
    modules = {".".join(path.relative_to(source).with_suffix("").parts) for path in source.rglob("*.py")}
    modules -= {"__init__", "io.__init__", "watch.__init__"}
    unnamed = {module for module in modules if not any(module == layer or module.startswith(f"{layer}.") for layer in layers)}
    assert not unnamed, f"modules in no layer of the import contract: {sorted(unnamed)}"
    drawn = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## A new algorithm")[0]
    rooms = {path.name for path in source.iterdir() if (path / "__init__.py").exists()}
    assert not (absent := {room for room in rooms if f"`{room}/`" not in drawn}), f"rooms that the map leaves out: {sorted(absent)}"
