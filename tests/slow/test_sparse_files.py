"""Sparse files: the same model as from dense rows, without ever making them dense, and errors that say what is wrong."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from scipy import sparse

from online_psp import OnlinePCA
from online_psp.io import runs as streams
from online_psp.io.sources import open_source
from tests.unit.io.test_sparse_sources import STREAMED, Maker, anndata_by_columns, csc_npz, csr_npz, matrix_market, ten_x, wide


@pytest.fixture
def few_dense_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a test that makes more rows dense than the exact phase keeps."""
    for kind in (sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.csr_matrix):
        real = kind.toarray

        def toarray(self: Any, *args: Any, real: Any = real, **kwargs: Any) -> Any:
            assert self.shape[0] <= 64, f"{self.shape[0]} sparse rows were made dense; only the exact phase may, a few"
            return real(self, *args, **kwargs)

        monkeypatch.setattr(kind, "toarray", toarray)


@pytest.mark.usefixtures("few_dense_rows")
@pytest.mark.parametrize("maker", [csr_npz, ten_x, csc_npz, matrix_market, anndata_by_columns], ids=lambda maker: maker.__name__)
def test_never_made_dense(tmp_path: Path, maker: Maker) -> None:
    """20,000 × 50,000 would be 8 GB as dense rows; the million entries are 12 MB."""
    path = maker(tmp_path, wide(20_000, 50_000, 50))
    OnlinePCA(2, oversample=0).fit(wide(300, 3000, 50))  # compiles
    tracemalloc.start()
    model = streams.fit_stream(path, tmp_path / "m.psp", OnlinePCA(2, oversample=0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.n_samples_seen_ == 20_000
    assert peak < 110e6, f"{peak / 1e6:.0f} MB at the peak, more than a few times the entries and a few bases"


@pytest.mark.parametrize("maker", STREAMED, ids=lambda maker: maker.__name__)
def test_what_lies_row_after_row_is_read_by_pieces(tmp_path: Path, maker: Maker) -> None:
    path = maker(tmp_path, wide(50_000, 20_000, 50))  # 30 MB of entries, and 40 with long indices
    tracemalloc.start()
    rows = sum(block.rows.shape[0] for block in open_source(path).blocks())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == 50_000
    assert peak < 24e6, f"{peak / 1e6:.0f} MB at the peak, more than six blocks of 4 MB"
