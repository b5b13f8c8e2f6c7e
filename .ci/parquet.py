"""Reads a Parquet file with pyarrow and polars and compares it with the CSV file of the same table.

    .ci/parquet.py TABLE.parquet TABLE.csv

It checks the types, all values, the statistics of each row group, and that filters, which use the statistics, find the same
rows as a full read.
"""
import csv, sys
import polars, pyarrow, pyarrow.compute as compute, pyarrow.parquet as parquet

TYPES = (pyarrow.uint64(), pyarrow.string(), pyarrow.bool_())


def cell(value):
    """A value as it is written in CSV."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def must(what, holds):
    if not holds:
        sys.exit(f"{sys.argv[1]}: {what}")


def check_statistics(name, column, statistics):
    must(f"nulls of {name}", statistics.null_count == column.null_count)
    values = column.drop_null()
    must(f"bounds of {name}", statistics.has_min_max == (len(values) > 0))
    if len(values) == 0:
        return
    if pyarrow.types.is_string(column.type):
        # Bounds of long strings are truncated.
        texts = [text.encode() for text in values.to_pylist()]
        must(f"bounds of {name}", statistics.min.encode() <= min(texts) and max(texts) <= statistics.max.encode())
    else:
        must(f"bounds of {name}", {"min": statistics.min, "max": statistics.max} == compute.min_max(values).as_py())


def main():
    path, other = sys.argv[1:]
    csv.field_size_limit(1 << 30)
    with open(other, newline="") as file:
        names, *rows = csv.reader(file)
    table = parquet.read_table(path)
    frame = polars.read_parquet(path)
    must("names", table.column_names == names)
    must("types", all(field.type in TYPES for field in table.schema))
    for index, name in enumerate(names):
        wanted = [row[index] for row in rows]
        must(f"values of {name}, by pyarrow", list(map(cell, table[name].to_pylist())) == wanted)
        must(f"values of {name}, by polars", list(map(cell, frame[name].to_list())) == wanted)

    file = parquet.ParquetFile(path)
    first = 0
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        for index, name in enumerate(names):
            check_statistics(name, table[name].slice(first, group.num_rows), group.column(index).statistics)
        first += group.num_rows
    must("rows", first == len(rows))

    for name in names:
        values = table[name].drop_null().to_pylist()
        for value in {values[0], values[-1], values[len(values) // 2]} if values else ():
            found = (parquet.read_table(path, filters=[(name, "==", value)]).num_rows,
                     polars.scan_parquet(path).filter(polars.col(name) == value).collect().height)
            must(f"rows where {name} is {value}", found == (values.count(value),) * 2)


if __name__ == "__main__":
    main()
