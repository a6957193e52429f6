"""Replicas of one broker that elect their own master. Start with `driver.py`."""
