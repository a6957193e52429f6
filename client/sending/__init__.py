"""From a message to its result: checks, frames, the choice of a queue, tries, transactions, requests and replies."""
