"""What one client is to the servers: connections, routes, heartbeats, and every question it can ask."""
