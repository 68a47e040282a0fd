"""Reading and writing TOSA flatbuffers: the only package that knows their layout."""
