"""Replicas of one broker that elect their master by themselves. Begin with `leadership.py`."""
