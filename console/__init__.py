"""The console: pages over a cluster, in a process of its own that is a client of name servers and brokers."""
