"""Column expressions that mean the same on every engine.

Differences of Sail, the embedded engine, from Spark, tried with 0.7.2, and what is written instead:

* ``min``, ``max``, ``min_by`` and ``max_by`` of structs and arrays do not put nulls first: a null field is skipped, so
  that the next one decides. :func:`in_order` is a key without that, :func:`least` the struct that comes first by it.
  ``sort_array`` and the columns of an ORDER BY are ordered as on Spark; ``array_sort`` of structs is not.
* ``==``, ``<=>`` and ``!=`` of two structs of unequal nullability give the opposite: compare field by field.
* ``array_contains`` gives false where Spark gives null, of an array with a null.
* ``array`` and ``array_except`` want elements that are equally nullable: :func:`nullable`, :func:`texts` and
  :func:`no_texts`.
* A field of a struct that ``when`` left null is not null, but what it would have been: :func:`field_if`.
* ``structs["field"]`` of an array of structs fails: :func:`field_of`.
* ``to_json`` writes decimals without their last zeros, and floats and moments otherwise, and a cast of a double to text
  writes ``1e20`` for ``1.0E20``: :mod:`ticdc_lab.engine.json_lines`. ``split(.., "")`` begins with an empty text.
* ``percentile_approx`` interpolates: :func:`ticdc_lab.engine.shuffle.quantiles`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from ticdc_lab.engine.sessions import is_sail


def named(name: str) -> str:
    """A column, or a field after a struct and a dot, with any name, where an expression is read."""
    return "`" + name.replace("`", "``") + "`"


def field_of(structs: Column, name: str) -> Column:
    """A field of every struct of an array, as an array."""
    return F.transform(structs, lambda s: s[name])


def parts_of(text: Column, separator: str) -> Column:
    """A text split at a separator, no pattern; Sail splits what it computed itself only after a cast."""
    return F.split(text.cast("string"), separator)


def texts(values: Iterable[str]) -> Column:
    """Constants as an array; Sail compares it with others only where its elements may be null as theirs."""
    return F.array(*map(F.lit, values)).cast("array<string>")


def computed_once(frame: DataFrame, columns: Mapping[str, Column]) -> DataFrame:
    """Add columns that a row computes once, for any number of later expressions.

    Spark keeps such a step apart by itself. Sail writes each expression into all that read it, which grows without
    bound where steps build on each other (a hash over columns found by position); what is volatile it leaves alone.
    """
    if not columns:
        return frame  # Connect refuses to add none
    if is_sail(frame.sparkSession):
        columns = {name: F.when(F.rand() < 2, column) for name, column in columns.items()}
    return frame.withColumns(dict(columns))


def made_by(kernel: Callable[[pa.RecordBatch], pa.Array], form: str, *columns: str) -> Column:
    """What a function makes of these columns of some rows, a value of the type ``form`` for each: no other is read."""

    def made(*arrays: pa.Array) -> pa.Array:
        return kernel(pa.record_batch([*arrays], names=[*columns]))

    value: Column = arrow_udf(made, form)(*columns)  # type: ignore[call-overload]
    return value


def expanded_float(text: Column) -> Column:
    """Decimal notation of a float as Go's ``FormatFloat(v, 'f', -1)`` prints it, from MySQL's print form.

    ``5e-324`` has 324 digits and ``1.7976931348623157e308`` has 309, beyond any decimal type: digits are moved as text.
    It is also what every engine casts to a decimal: Sail takes no exponent there.
    """
    digits = F.translate(F.substring_index(text, "e", 1), "-.+", "")
    exponent = F.substring_index(text, "e", -1).try_cast("int")
    sign = F.when(text.startswith("-"), "-").otherwise("")
    small = F.concat(sign, F.lit("0."), F.repeat(F.lit("0"), -exponent - 1), digits)
    fraction = F.substring(digits, exponent + 2, F.length(digits))
    large = F.concat(
        sign,
        F.rpad(digits, exponent + 1, F.lit("0")),
        F.when(fraction == "", "").otherwise(F.concat(F.lit("."), fraction)),
    )
    return F.when(text.contains("e"), F.when(exponent < 0, small).otherwise(large)).otherwise(shortest_decimal(text))


def shortest_decimal(text: Column) -> Column:
    """A number without exponent and without trailing zeros after the point."""
    return F.when(text.contains("."), F.rtrim(F.rtrim(text, F.lit("0")), F.lit("."))).otherwise(text)


def in_order(*columns: Column | str) -> Column:
    """A key for ``min``, ``max``, ``min_by`` and ``max_by`` that orders as a struct of these columns does on Spark.

    No column is a struct or holds an array with nulls. Where none can be null a struct of them will do.
    """
    given = [F.col(c) if isinstance(c, str) else c for c in columns]
    pairs = [pair for i, c in enumerate(given) for pair in (c.isNotNull().alias(f"is_{i}"), c.alias(f"at_{i}"))]
    return F.struct(*pairs)


def least(*columns: Column | str) -> Column:
    """The struct of these columns that comes first, nulls before all else: Spark's ``min(struct(..))``."""
    return F.min_by(F.struct(*columns), in_order(*columns))


def nullable(column: Column, *, because: Column) -> Column:
    """The same, for an engine that may be null: ``because`` never is, but no engine knows that."""
    return F.when(because.isNotNull(), column)


def no_texts() -> Column:
    """An empty array of strings that may be null."""
    return F.array().cast("array<string>")


def field_if(struct: str, name: str) -> Column:
    """A field of a struct that may be null, null where that is."""
    return F.when(F.col(struct).isNotNull(), F.col(f"{struct}.{name}"))
