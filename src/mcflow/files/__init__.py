"""Tables in files: CSV, Parquet, tables of many files, and atomic writes.

Read `tables` first: one file in memory, read and written. It rests on `csv`, `parquet` and `streams` (compression and
standard input and output). Then read `partitioned`, tables of any size that are read and written in parts, and
`survey`, the sample of such a table. `atomic` has atomic writes, lock files and tensor files.
"""
