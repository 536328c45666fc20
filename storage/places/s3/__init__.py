"""S3, and stores that speak its protocol; the library below is botocore, the extra `s3`.

Imports what places share, and no other place. Only `storage`, `options`, `secrets` and
`hadoop_settings` can be imported without botocore.

botocore and not s3fs: s3fs keeps one event loop for all, retries by its own rules below ours, lists
no unfinished uploads, and gives no hold on the parts of a write. botocore, on which it rests, gives
the exact requests; threads make them parallel.
"""

from __future__ import annotations

__all__: list[str] = []
