"""The stages of benchmarks/gpu.py: what each measures is in the file of its name. Run: docs/benchmarks/gpu.md."""
