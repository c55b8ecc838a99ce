"""`python -m benchmarks.bench`: speed and memory, measured beside a decoder as it is commonly written (benchmarks/README.md)."""
