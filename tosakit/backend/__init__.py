"""Compilers that take the rewritten graph further; imported only when asked for."""
