"""Tables and their columns: input and output, types, constraints, encodings and a Gaussian model."""
