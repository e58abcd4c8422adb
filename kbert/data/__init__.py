"""Tokens to batches, in NumPy; frames.py turns pandas objects and other containers into plain columns."""
