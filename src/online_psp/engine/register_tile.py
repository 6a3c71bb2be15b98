"""The innermost part of a matrix product: a tile of sums that stays in registers, written in LLVM's own terms.

A product is quick if its sums stay in registers while a loop runs down the rows. The compiler vectorises a loop over columns, but does not
keep the sums in registers by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from online_psp.engine.types import Array

VECTOR = 32
"""Bytes multiplied at a time; machines with shorter registers use two of them."""


def register_tile(tall: int, vectors: int) -> Callable[..., None]:
    """A function that adds ``C[i : i + tall, :n] X[:n, x : x + w]`` to ``B[i : i + tall, b : b + w]``, where w is `vectors` registers wide.

    The sums stay in registers while it runs down the rows of X.
    """

    def width(dtype: Any) -> int:
        return int(vectors * VECTOR // dtype.itemsize)

    def plain(B: Array, i: int, b: int, C: Array, X: Array, x: int, n: int) -> None:
        w = width(B.dtype)
        B[i : i + tall, b : b + w] += C[i : i + tall, :n] @ X[:n, x : x + w]

    if numba.config.DISABLE_JIT:
        return plain

    def tile(context: Any, B: Any, i: Any, b: Any, C: Any, X: Any, x: Any, n: Any) -> Any:
        signature = types.void(B, types.intp, types.intp, C, X, types.intp, types.intp)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            _Tile(context, builder, signature.args, values, tall, vectors).build()
            return context.get_dummy_value()

        return signature, generate

    compiled: Callable[..., None] = intrinsic(tile)
    return compiled


class _Tile:
    """The machine code of one tile, in LLVM's terms; arguments as in `register_tile`."""

    def __init__(self, context: Any, builder: Any, kinds: Any, values: Any, tall: int, vectors: int) -> None:
        self.context, self.builder, self.tall, self.vectors = context, builder, tall, vectors
        self.B, self.C, self.X = ((kinds[k], context.make_array(kinds[k])(context, builder, values[k])) for k in (0, 3, 4))
        self.i, self.b, self.x, self.n = (values[k] for k in (1, 2, 5, 6))
        self.lanes = VECTOR // (kinds[0].dtype.bitwidth // 8)
        self.vector = ir.VectorType(context.get_data_type(kinds[0].dtype), self.lanes)
        self.undefined = ir.Constant(self.vector, ir.Undefined)

    def build(self) -> None:
        builder = self.builder
        zero = ir.Constant(self.vector, [0.0] * self.lanes)
        sums = [[cgutils.alloca_once(builder, self.vector) for _ in range(self.vectors)] for _ in range(self.tall)]
        for row in sums:
            for place in row:
                builder.store(zero, place)
        with cgutils.for_range(builder, self.n) as loop:
            rows = [builder.load(place, align=1) for place in self.places(self.X, loop.index, self.x)]
            for k, row in enumerate(sums):
                factor = self.spread(builder.load(self.place(self.C, self.down(k), loop.index)))
                for x, place in zip(rows, row, strict=True):
                    product = builder.fmul(factor, x, flags=("contract",))
                    builder.store(builder.fadd(builder.load(place), product, flags=("contract",)), place)
        for k, row in enumerate(sums):
            for target, place in zip(self.places(self.B, self.down(k), self.b), row, strict=True):
                builder.store(builder.fadd(builder.load(target, align=1), builder.load(place)), target, align=1)

    def down(self, rows: int) -> Any:
        return self.builder.add(self.i, ir.Constant(self.i.type, rows))

    def place(self, array: Any, row: Any, column: Any) -> Any:
        """Pointer to an entry."""
        kind, made = array
        shape, strides = cgutils.unpack_tuple(self.builder, made.shape), cgutils.unpack_tuple(self.builder, made.strides)
        return cgutils.get_item_pointer2(self.context, self.builder, made.data, shape, strides, kind.layout, [row, column])

    def places(self, array: Any, row: Any, column: Any) -> list[Any]:
        """Pointers to the vectors that begin at an entry."""
        first, pointer = self.place(array, row, column), self.vector.as_pointer()
        steps = [ir.Constant(self.b.type, k * self.lanes) for k in range(self.vectors)]
        return [self.builder.bitcast(self.builder.gep(first, [step]), pointer) for step in steps]

    def spread(self, number: Any) -> Any:
        """A vector that repeats one number."""
        word = ir.IntType(32)
        alone = self.builder.insert_element(self.undefined, number, ir.Constant(word, 0))
        return self.builder.shuffle_vector(alone, self.undefined, ir.Constant(ir.VectorType(word, self.lanes), [0] * self.lanes))
