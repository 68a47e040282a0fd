"""What a graph computes: the TOSA reference model, test inputs, and whether two graphs agree."""
