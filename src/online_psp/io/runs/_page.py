"""A live page beside a run: rows with their times and IDs, the age of the checkpoint, the rows that are left."""

from __future__ import annotations

import time
from typing import Any

from online_psp.io.runs._driving import Saving
from online_psp.io.runs._run import Learned, Run


class RunPage:
    """Serve a page of a run's model or monitor, and show on it what the run learns; as a context manager, it says how the run ended.

    Parameters
    ----------
    run : Run
    saving : Saving
    port : int, optional
        As for `watch.Dashboard`.
    """

    def __init__(self, run: Run, saving: Saving, port: int | None = None) -> None:
        from online_psp.watch.dashboard import Dashboard

        image = tuple(run.source.get("image_shape") or ())
        self._run, self._saving, self._offset, self._last = run, saving, 0, 0
        self.page = Dashboard(
            run.monitor or run.model,
            title=f"{run.source['name']} → {saving.path}",
            image=image if len(image) in (2, 3) else None,
            feature_names=run.source.get("feature_names"),
            id_names=[str(name) for name in run.reading.get("ids") or []],
            follow=False,
            facts=self._facts,
            **({} if port is None else {"port": port}),
        )
        run.onlooker = self._look

    def _facts(self) -> dict[str, Any]:
        total, last = self._run.source.get("total"), self._saving.last
        return {
            "saved": None if last is None else time.monotonic() - last,
            "total": None if total is None else int(total) * self._run.epochs,
        }

    def _look(self, learned: Learned) -> None:
        """Show a block; if that fails, the run continues without it."""
        try:
            numbers, first = learned.numbers, self._run.epochs == 1
            if len(numbers) and numbers[0] + self._offset <= self._last:  # another epoch
                self._offset = self._last
            self.page.update(learned.rows, learned.found, learned.ids, learned.times if first else None, numbers + self._offset)
            self._last = self.page.row
        except Exception as error:
            self._run.onlooker = None
            self.page.finish("failed", f"The page is told no more ({type(error).__name__}: {error}). The fit goes on without it.")

    def __enter__(self) -> RunPage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._run.onlooker = None
        if kind is None:
            self.page.finish()
        elif issubclass(kind, KeyboardInterrupt):
            self.page.close("stopped")
        else:
            self.page.close("failed", str(error))
