"""S3, and stores that speak its protocol; the library below is botocore, the extra `s3`.

Imports what places share, and no other place. Only `storage`, `options`, `secrets` and
`hadoop_settings` can be imported without botocore.
"""

from __future__ import annotations

__all__: list[str] = []
