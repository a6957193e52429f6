"""Replication: a master's log sent to its slaves, and a slave that follows. Start with `stream_codec.py`."""
