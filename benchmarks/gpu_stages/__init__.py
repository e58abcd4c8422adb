"""The stages of benchmarks/gpu.py: what each measures is in the file of its name. README.md says how to run them."""
