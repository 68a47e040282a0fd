"""The shipped rewrites: one file per rule, listed here in the order the documentation shows them."""
