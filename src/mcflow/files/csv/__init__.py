"""CSV files: type inference, and writing that changes only the filled cells.

Read `text` (encoding, blocks, batches of records), `layout` (offsets of cells) and `dialect` first, then `cells` and
`dates` (values and their spelling), `inference` (types from evidence, piece by piece), `reader` and `writer`. A file in
memory is a single piece of the same path.
"""
