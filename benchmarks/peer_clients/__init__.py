"""One client process for each peer and load: `python -m benchmarks.peer_clients.<peer> LOAD ADDRESS COUNT`."""
