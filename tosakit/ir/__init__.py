"""The intermediate representation: operators, tensors, graphs and programs."""
