"""Two copies: a master's log sent to its slaves, and a slave that follows. Begin with `stream_codec.py`."""
