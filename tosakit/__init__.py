"""tosakit: rewrite TOSA graphs, and prove or measure that nothing broke."""
