"""The picture of docs/watch.md: ``python -m benchmarks.watch_picture FILE.png [WIDTH] [light | dark]``.

Digits of MNIST (ONLINE_PSP_DATA names their folder), the last of them shifted by three pixels; the first alarm after that is open.
"""

from __future__ import annotations

import base64
import io
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.watch import _looking
from online_psp import OnlinePCA
from online_psp.io.sources import open_source
from online_psp.monitoring import Monitor
from online_psp.watch import Dashboard, PageSettings

_ROWS, _SHIFTED, _BLOCK = 12_000, 3_000, 200
_OPEN = """
const later = Array.from(document.querySelectorAll("#alarms button")).filter((each) => Number(each.dataset.number) > arguments[0])
if (later.length) { later.at(-1).click(); later.at(-1).scrollIntoView({block: "nearest"}) }
document.activeElement.blur()
"""


def main(words: list[str]) -> None:
    """Make the picture."""
    target, width = Path(words[0]), int(words[1]) if len(words) > 1 else 1600
    images = open_source(Path(os.environ["ONLINE_PSP_DATA"]) / "train-images-idx3-ubyte.gz")
    X = next(iter(images.blocks(_ROWS))).rows.reshape(-1, 28, 28).copy()
    X[-_SHIFTED:] = np.roll(X[-_SHIFTED:], 3, axis=2)
    monitor = Monitor(OnlinePCA(16, half_life=4000))
    settings = PageSettings(title="train-images-idx3-ubyte.gz → digits.psp", port=0, image=(28, 28), id_names=["half"])
    with Dashboard(monitor, settings, follow=False) as page, _looking(page.url) as browser:
        scheme = words[2] if len(words) > 2 else "light"
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        _size(browser, width, 1200)
        for block in X.reshape(-1, _BLOCK, 784):
            page.update(block, monitor.update(block), ids=[["upper" if row[:392].sum() > row[392:].sum() else "lower"] for row in block])
            time.sleep(0.05)
        page.finish("running")
        _wait(browser, _ROWS)
        browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        browser.execute_script(_OPEN, _ROWS - _SHIFTED)
        for word in words[3:]:
            browser.execute_script(word)
        _size(browser, width, browser.execute_script("return document.documentElement.scrollHeight"))
        time.sleep(2.0)
        _write(base64.b64decode(browser.get_screenshot_as_base64()), target)


def _write(png: bytes, target: Path) -> None:
    """With a palette of 256 colours: a third of the bytes, and no difference that one sees."""
    from PIL import Image

    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=4, dither=Image.Dither.NONE).save(target, "PNG", optimize=True)


def _size(browser: Any, width: int, height: int) -> None:
    shape = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)


def _wait(browser: Any, rows: int) -> None:
    while browser.execute_script("return document.getElementById('f-samples').dataset.value") != str(rows):
        time.sleep(0.2)


if __name__ == "__main__":
    main(sys.argv[1:])
