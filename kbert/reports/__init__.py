"""What a fitted estimator is worth on rows with labels: scores, baselines, and the rows to look at."""

from kbert.reports.page import Report

__all__ = ["Report"]
