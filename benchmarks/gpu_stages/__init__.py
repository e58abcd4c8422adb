"""The stages of benchmarks/gpu.py: what each measures is in the file of its name; docs/gpu.md says how to run them."""
