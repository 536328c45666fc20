"""Real servers for tests: an S3 server and HDFS, on loopback, that end with the test run."""
