"""Metrics and health over HTTP: a page of numbers, what fills it, and the port that serves it."""
