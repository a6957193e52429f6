"""From a subscription to a committed offset: rebalancing, pulling, listeners, retries."""
