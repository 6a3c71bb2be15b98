"""``python -m benchmarks [NAME …]``: all of them, or the ones named."""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks import engine, missing, pca, scale, streams, threads, tracking, watch

BENCHMARKS: dict[str, Callable[[], object]] = {
    "engine": engine.main,
    "missing": missing.main,
    "pca": pca.main,
    "scale": scale.main,
    "streams": streams.main,
    "threads": threads.main,
    "tracking": tracking.main,
    "watch": watch.main,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark named {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    for name in names or BENCHMARKS:
        BENCHMARKS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
