"""The source files of a user's algorithm: its module, and what that imports from the same folder or package."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path


def algorithm_digest(algorithm: str) -> str:
    """A digest of the code of a user's ``module:Class``; empty if its file is not known.

    It covers the module and all that it imports, also indirectly, from the folder or package that it lies in. An installed package, which
    changes only with its version, counts by that module and the version. Imports at run time by computed names are not seen.
    """
    module, colon, _ = algorithm.partition(":")
    origin = _origin(module) if colon else None
    if origin is None:
        return ""
    digest = hashlib.sha256()
    for file in _files(module, origin):
        digest.update(file.read_bytes())
    if _installed(origin):
        digest.update(str(getattr(sys.modules.get(module.partition(".")[0]), "__version__", "")).encode())
    return digest.hexdigest()[:12]


def _origin(module: str) -> Path | None:
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None
    return Path(found.origin).absolute() if found is not None and found.origin and Path(found.origin).is_file() else None


def _installed(origin: Path) -> bool:
    return any(origin.is_relative_to(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib", "platstdlib"))


def _files(module: str, origin: Path) -> list[Path]:
    """The module's own file first, then what it imports."""
    if _installed(origin) or origin.suffix != ".py":
        return [origin]
    depth = module.count(".") + (origin.name == "__init__.py")
    root = origin.parents[depth]
    found, waiting = {origin: module}, [origin]
    while waiting:
        file = waiting.pop()
        package = found[file] if file.name == "__init__.py" else found[file].rpartition(".")[0]
        for name in _imported(file.read_bytes(), package):
            place = root.joinpath(*name.split("."))
            for candidate in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
                if candidate.is_file() and candidate not in found:
                    found[candidate] = name
                    waiting.append(candidate)
    return [origin, *sorted(file for file in found if file != origin)]


@lru_cache(maxsize=256)
def _imported(source: bytes, package: str) -> tuple[str, ...]:
    """Names of all modules that a source file may import, and of the packages that hold them."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # the import of it will say what is wrong
        return ()
    names = dict.fromkeys(name for node in ast.walk(tree) for name in _named(node, package))
    parts = (name.split(".") for name in names)
    return tuple(dict.fromkeys(".".join(words[:n]) for words in parts for n in range(1, len(words) + 1)))


def _named(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        outer = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
        base = ".".join(filter(None, [*outer, node.module or ""]))
        yield from (f"{base}.{alias.name}" for alias in node.names if base and alias.name != "*")
        if base:
            yield base
