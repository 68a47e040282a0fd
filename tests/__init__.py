"""The test suite; a package, so that tests can share what is in ``tests.support``."""
