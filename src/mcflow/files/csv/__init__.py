"""CSV files: type inference, and writing that changes only the filled cells.

Read `text` (encoding, blocks, batches of records) and `layout` (dialect, offsets of cells) first, then `cells` (values
and their spelling), `inference` (types from evidence, piece by piece), `reader` and `writer`. A file in memory is a
single piece of the same path.
"""
