"""The RocksDB backend: state on local disks.

Imports `interface`, `byte_tables` and below.
"""

from holdfast.backends.rocksdb.backend import RocksDBStateBackend

__all__ = ["RocksDBStateBackend"]
