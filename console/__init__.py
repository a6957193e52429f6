"""The console: web pages about a cluster, in a separate process that is a client of name servers and brokers."""
