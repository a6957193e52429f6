"""Metrics and health over HTTP: a page of samples, the sources that fill it, and the port that serves it."""
