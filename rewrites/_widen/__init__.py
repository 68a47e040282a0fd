"""Parts of the transform ``widen_int8_activations``; private to it."""
