"""A client's side towards the servers: connections, routes, heartbeats, and every request it can send."""
